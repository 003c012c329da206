//! Compiles a trace to operations: addresses become slots, threads become streams, and the order between
//! threads becomes waits.
//!
//! One pass in order of time. Memory grows with live blocks, threads, and chunks of live threads, not with
//! the trace's length. What cannot be repeated (a call that failed, a free of NULL or of a block whose
//! allocation is not in the trace) is left out and counted.

use std::fs::File;
use std::io::{self, Result};

use larder_trace::{Action, AllocCall, Event, FreeCall, Trace};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::ops::{Code, MOST_SLOTS, OpsFile, Stream, word};
use super::slots::Slots;

/// Operations of all threads in a lap. Threads are up to two laps apart.
const LAP_OPERATIONS: u64 = 4096;
/// A lap is shorter, down to this, if it allocates more than this share of the peak: while threads are
/// apart, other blocks are live than in the program.
const LEAST_LAP_OPERATIONS: u64 = 256;
const LAP_PART_OF_PEAK: u64 = 32;
/// Entries of the replay's ring of laps, see `replay/pace.h`.
const RING: usize = 32;
/// Larger alignments are treated as invalid.
const MOST_ALIGNMENT: u64 = 1 << 40;

/// Totals of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub makes: u64,
    pub reallocs: u64,
    pub frees: u64,
    /// Sum of the requested bytes.
    pub bytes: u64,
    pub peak_live_bytes: u64,
    pub end_live_bytes: u64,
    pub threads: u64,
    /// Maximum of concurrent threads.
    pub most_threads: u64,
    /// Left out.
    pub failed: u64,
    pub null_frees: u64,
    pub unknown_frees: u64,
    /// Calls that the trace has lost.
    pub lost: u64,
}

impl Totals {
    pub fn operations(&self) -> u64 {
        self.makes + self.reallocs + self.frees
    }
}

/// Compiles the trace into the empty `file`. Calls `progress` at each event.
pub fn compile(trace: &Trace, file: File, mut progress: impl FnMut()) -> Result<(File, Totals)> {
    let mut compiler = Compiler::new(file);
    let mut events = trace.events();
    while let Some(event) = events.next() {
        compiler.event(&event)?;
        progress();
    }
    let damaged = events.damage().iter().filter_map(|damage| damage.events);
    let damaged = damaged.fold(0, u64::saturating_add);
    compiler.totals.lost = (compiler.totals.lost)
        .max(trace.losses().calls())
        .saturating_add(damaged);
    compiler.finish()
}

#[derive(Clone, Copy, Debug)]
struct Block {
    slot: u32,
    size: u64,
}

#[derive(Debug)]
struct Thread {
    stream: Stream,
    lap: Option<u32>,
    ended: bool,
}

/// An operation on a slot.
#[derive(Clone, Copy, Debug)]
struct Operation {
    code: Code,
    size: u64,
    /// 0: none was requested.
    alignment: u64,
}

struct Compiler {
    ops: OpsFile,
    slots: Slots,
    threads: Vec<Thread>,
    /// The running thread of a system's number.
    by_id: FxHashMap<u32, u32>,
    /// By address.
    blocks: FxHashMap<u64, Block>,
    /// The old block of a thread's current realloc, by the system's thread number.
    reallocs: FxHashMap<u32, Option<Block>>,
    /// The thread of the last operation.
    last_thread: u32,
    /// It has had an operation, or has the next one.
    lap: u32,
    lap_operations: u64,
    lap_bytes: u64,
    /// How many threads have begun a lap, by the lap's index in the ring.
    begun: [u32; RING],
    live_threads: u64,
    totals: Totals,
}

impl Compiler {
    fn new(file: File) -> Compiler {
        Compiler {
            ops: OpsFile::new(file),
            slots: Slots::default(),
            threads: Vec::new(),
            by_id: FxHashMap::default(),
            blocks: FxHashMap::default(),
            reallocs: FxHashMap::default(),
            last_thread: 0,
            lap: 0,
            lap_operations: 0,
            lap_bytes: 0,
            begun: [0; RING],
            live_threads: 0,
            totals: Totals::default(),
        }
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let id = event.thread;
        match event.action {
            Action::Alloc {
                call,
                address,
                size,
                alignment,
                ..
            } => self.alloc(id, call, address, size, alignment),
            Action::Free {
                call,
                address,
                size,
                alignment,
                ..
            } => self.free(id, call, address, size, alignment),
            Action::ReallocStart { old, .. } => {
                let block = self.blocks.remove(&old);
                self.reallocs.insert(id, block);
                Ok(())
            }
            Action::ReallocEnd {
                old, address, size, ..
            } => {
                let block = self.reallocs.remove(&id).flatten();
                let block = block.or_else(|| self.blocks.remove(&old));
                self.realloc(id, old, block, address, size)
            }
            Action::ThreadStart => self.start_thread(id).map(|_| ()),
            Action::ThreadEnd => self.end_thread(id),
            Action::Mark { .. }
            | Action::SystemCall { .. }
            | Action::Copy { .. }
            | Action::Sample { .. }
            | Action::Contents { .. } => Ok(()),
            Action::Lost { calls } => {
                self.totals.lost = self.totals.lost.saturating_add(calls);
                Ok(())
            }
        }
    }

    fn alloc(
        &mut self,
        id: u32,
        call: AllocCall,
        address: u64,
        size: u64,
        alignment: u64,
    ) -> Result<()> {
        if address == 0 {
            self.totals.failed += 1;
            return Ok(());
        }
        let operation = making(call, size, alignment);
        self.make(id, address, operation)
    }

    fn make(&mut self, id: u32, address: u64, operation: Operation) -> Result<()> {
        let thread = self.thread(id)?;
        // The free of the previous block at this address is not in the trace.
        if let Some(old) = self.blocks.remove(&address) {
            self.end(thread, old, plain_free())?;
        }
        let slot = self.slots.take(thread);
        if slot >= MOST_SLOTS {
            let cause = format!("{MOST_SLOTS} or more blocks are live at a time");
            return Err(io::Error::other(cause));
        }
        let size = operation.size;
        self.blocks.insert(address, Block { slot, size });
        if operation.code == Code::Realloc {
            self.totals.reallocs += 1;
        } else {
            self.totals.makes += 1;
        }
        self.count_made(size);
        self.emit(thread, slot, operation)
    }

    fn free(
        &mut self,
        id: u32,
        call: FreeCall,
        address: u64,
        size: u64,
        alignment: u64,
    ) -> Result<()> {
        if address == 0 {
            self.totals.null_frees += 1;
            return Ok(());
        }
        let Some(block) = self.blocks.remove(&address) else {
            self.totals.unknown_frees += 1;
            return Ok(());
        };
        let thread = self.thread(id)?;
        // A wrong size would be a fault of the replay.
        let size = if size == block.size { size } else { 0 };
        self.end(thread, block, ending(call, size, alignment))
    }

    fn end(&mut self, thread: u32, block: Block, operation: Operation) -> Result<()> {
        self.totals.frees += 1;
        self.totals.end_live_bytes = self.totals.end_live_bytes.saturating_sub(block.size);
        self.emit(thread, block.slot, operation)?;
        self.slots.give_back(block.slot, thread);
        Ok(())
    }

    fn realloc(
        &mut self,
        id: u32,
        old: u64,
        block: Option<Block>,
        address: u64,
        size: u64,
    ) -> Result<()> {
        if address == 0 && !(size == 0 && old != 0) {
            self.totals.failed += 1;
            if let Some(block) = block {
                self.blocks.insert(old, block);
            }
            return Ok(());
        }
        let operation = Operation {
            code: Code::Realloc,
            size,
            alignment: 0,
        };
        match block {
            Some(block) if address == 0 => {
                let thread = self.thread(id)?;
                self.end(thread, block, plain_free())
            }
            None if address == 0 => {
                self.totals.unknown_frees += 1;
                Ok(())
            }
            Some(block) => {
                let thread = self.thread(id)?;
                if let Some(other) = self.blocks.remove(&address) {
                    self.end(thread, other, plain_free())?;
                }
                let slot = block.slot;
                self.blocks.insert(address, Block { slot, size });
                self.totals.reallocs += 1;
                self.totals.end_live_bytes = self.totals.end_live_bytes.saturating_sub(block.size);
                self.count_made(size);
                self.emit(thread, slot, operation)
            }
            None => {
                self.totals.unknown_frees += u64::from(old != 0);
                self.make(id, address, operation)
            }
        }
    }

    fn count_made(&mut self, size: u64) {
        let totals = &mut self.totals;
        totals.bytes = totals.bytes.saturating_add(size);
        totals.end_live_bytes = totals.end_live_bytes.saturating_add(size);
        totals.peak_live_bytes = totals.peak_live_bytes.max(totals.end_live_bytes);
    }

    /// The thread of this system's number; it starts now if its start is not in the trace.
    fn thread(&mut self, id: u32) -> Result<u32> {
        match self.by_id.get(&id) {
            Some(&thread) => Ok(thread),
            None => self.start_thread(id),
        }
    }

    /// The thread of the last operation starts it. In the program it may have been another one, but the order
    /// is the same.
    fn start_thread(&mut self, id: u32) -> Result<u32> {
        if let Some(&before) = self.by_id.get(&id) {
            self.mark_ended(before)?;
        }
        let thread = self.threads.len() as u32;
        let stream = self.ops.begin_thread();
        self.threads.push(Thread {
            stream,
            lap: None,
            ended: false,
        });
        self.slots.add_thread();
        self.by_id.insert(id, thread);
        self.live_threads += 1;
        self.totals.threads += 1;
        self.totals.most_threads = self.totals.most_threads.max(self.live_threads);
        if thread > 0 {
            self.keep_pace(self.last_thread)?;
            self.push(self.last_thread, word(Code::Spawn, 0, thread))?;
        }
        Ok(thread)
    }

    /// The thread lives until here, although its last operation may be long ago.
    fn end_thread(&mut self, id: u32) -> Result<()> {
        let Some(&thread) = self.by_id.get(&id) else {
            return Ok(());
        };
        self.keep_pace(thread)?;
        self.mark_ended(thread)
    }

    fn mark_ended(&mut self, thread: u32) -> Result<()> {
        let Some(state) = self.threads.get_mut(thread as usize) else {
            return Ok(());
        };
        if !std::mem::replace(&mut state.ended, true) {
            self.live_threads -= 1;
        }
        self.ops.flush(&mut state.stream)
    }

    fn emit(&mut self, thread: u32, slot: u32, operation: Operation) -> Result<()> {
        self.keep_pace(thread)?;
        self.last_thread = thread;
        self.advance_lap(operation);
        if let Some(turn) = self.slots.pass(slot, thread) {
            self.push(thread, word(Code::Wait, 0, turn))?;
        }
        if operation.alignment != 0 {
            let logarithm = operation.alignment.trailing_zeros();
            self.push(thread, word(Code::Align, 0, logarithm))?;
        }
        let high = (operation.size >> 32) as u32;
        if high != 0 {
            self.push(thread, word(Code::High, 0, high))?;
        }
        self.push(thread, word(operation.code, slot, operation.size as u32))
    }

    /// Counts an operation of the current lap.
    fn advance_lap(&mut self, operation: Operation) {
        self.lap_operations += 1;
        if operation.code <= Code::Realloc {
            self.lap_bytes = self.lap_bytes.saturating_add(operation.size);
        }
        let much = self.lap_bytes > self.totals.peak_live_bytes / LAP_PART_OF_PEAK;
        if self.lap_operations >= LAP_OPERATIONS
            || (much && self.lap_operations >= LEAST_LAP_OPERATIONS)
        {
            self.lap = self.lap.wrapping_add(1);
            self.lap_operations = 0;
            self.lap_bytes = 0;
        }
    }

    /// The thread takes part in the current lap.
    fn keep_pace(&mut self, thread: u32) -> Result<()> {
        let lap = self.lap;
        let known = self.threads.get(thread as usize);
        if known.is_some_and(|thread| thread.lap == Some(lap)) {
            return Ok(());
        }
        self.begin_lap(thread, lap)
    }

    fn begin_lap(&mut self, thread: u32, lap: u32) -> Result<()> {
        let place = |back: u32| lap.wrapping_sub(back) as usize % RING;
        let (done_2, done_3) = (self.begun[place(2)], self.begun[place(3)]);
        self.begun[place(0)] = self.begun[place(0)].wrapping_add(1);
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.lap = Some(lap);
        }
        self.push(thread, word(Code::Lap, 0, lap))?;
        self.push(thread, u64::from(done_2))?;
        self.push(thread, u64::from(done_3))
    }

    fn push(&mut self, thread: u32, word: u64) -> Result<()> {
        match self.threads.get_mut(thread as usize) {
            Some(thread) => self.ops.push(&mut thread.stream, word),
            None => Ok(()),
        }
    }

    /// Threads whose end is not in the trace stay to the end. They wait for the last two laps that have
    /// operations, because no thread wakes the waiters of an empty lap.
    fn finish(mut self) -> Result<(File, Totals)> {
        let empty = u32::from(self.lap_operations == 0);
        let after_all = self.lap.wrapping_sub(empty).wrapping_add(2);
        for thread in 0..self.threads.len() {
            if !self.threads[thread].ended {
                self.begin_lap(thread as u32, after_all)?;
            }
            self.ops.flush(&mut self.threads[thread].stream)?;
        }
        let slots = self.slots.count() as u64;
        let file = self.ops.finish(slots, self.totals.most_threads)?;
        Ok((file, self.totals))
    }
}

fn plain_free() -> Operation {
    ending(FreeCall::Free, 0, 0)
}

/// The smallest alignment that the aligned calls accept.
const LEAST_ALIGNMENT: u64 = 8;

fn making(call: AllocCall, size: u64, alignment: u64) -> Operation {
    let code = match call {
        AllocCall::Malloc | AllocCall::Strdup | AllocCall::Strndup | AllocCall::Wcsdup => {
            Code::Malloc
        }
        AllocCall::Calloc => Code::Calloc,
        AllocCall::AlignedAlloc => Code::AlignedAlloc,
        AllocCall::PosixMemalign => Code::PosixMemalign,
        AllocCall::Memalign => Code::Memalign,
        AllocCall::Valloc => Code::Valloc,
        AllocCall::Pvalloc => Code::Pvalloc,
        AllocCall::New => Code::New,
        AllocCall::NewArray => Code::NewArray,
        AllocCall::Realloc | AllocCall::Reallocarray => Code::Realloc,
    };
    let aligned = matches!(
        code,
        Code::AlignedAlloc | Code::PosixMemalign | Code::Memalign
    );
    let alignment = if aligned {
        sane(alignment).max(LEAST_ALIGNMENT)
    } else if matches!(code, Code::New | Code::NewArray) {
        sane(alignment)
    } else {
        0
    };
    Operation {
        code,
        size,
        alignment,
    }
}

fn ending(call: FreeCall, size: u64, alignment: u64) -> Operation {
    let code = match call {
        FreeCall::Free | FreeCall::FreeSized | FreeCall::FreeAlignedSized => Code::Free,
        FreeCall::Delete => Code::Delete,
        FreeCall::DeleteArray => Code::DeleteArray,
    };
    let (size, alignment) = match code {
        Code::Free => (0, 0),
        _ => (size, sane(alignment)),
    };
    Operation {
        code,
        size,
        alignment,
    }
}

/// 0 if it cannot have been an alignment.
fn sane(alignment: u64) -> u64 {
    if alignment.is_power_of_two() && alignment <= MOST_ALIGNMENT {
        alignment
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_trace::StackId;

    const STACK: StackId = StackId(0);

    fn compiled(events: &[(u32, Action)]) -> Totals {
        let mut compiler = Compiler::new(tempfile::tempfile().unwrap());
        for (time, (thread, action)) in events.iter().enumerate() {
            let event = Event {
                time: time as u64,
                thread: *thread,
                action: *action,
            };
            compiler.event(&event).unwrap();
        }
        compiler.finish().unwrap().1
    }

    fn alloc(address: u64, size: u64) -> Action {
        Action::Alloc {
            call: AllocCall::Malloc,
            address,
            size,
            count: 0,
            alignment: 0,
            stack: STACK,
        }
    }

    fn free(address: u64) -> Action {
        Action::Free {
            call: FreeCall::Free,
            address,
            size: 0,
            alignment: 0,
            stack: STACK,
        }
    }

    fn realloc(old: u64, address: u64, size: u64) -> [Action; 2] {
        let start = Action::ReallocStart { old, stack: STACK };
        let end = Action::ReallocEnd {
            call: AllocCall::Realloc,
            old,
            address,
            size,
            count: 0,
            stack: STACK,
        };
        [start, end]
    }

    #[test]
    fn nothing_comes_to_nothing() {
        assert_eq!(compiled(&[]), Totals::default());
        let idle = compiled(&[(1, Action::ThreadStart), (1, Action::ThreadEnd)]);
        assert_eq!((idle.operations(), idle.threads), (0, 1));
    }

    #[test]
    fn what_cannot_be_repeated_is_left_out_and_counted() {
        let [start, end] = realloc(0x90, 0, 8);
        let totals = compiled(&[
            (1, alloc(0, 8)),
            (1, free(0)),
            (1, free(0x70)),
            (1, alloc(0x90, 5)),
            (1, start),
            (1, end),
            (1, Action::Lost { calls: 3 }),
            (1, free(0x90)),
        ]);
        assert_eq!((totals.makes, totals.frees, totals.reallocs), (1, 1, 0));
        assert_eq!((totals.failed, totals.null_frees), (2, 1));
        assert_eq!((totals.unknown_frees, totals.lost), (1, 3));
        assert_eq!((totals.peak_live_bytes, totals.end_live_bytes), (5, 0));
    }

    #[test]
    fn a_realloc_of_no_bytes_frees_and_one_of_the_unknown_makes() {
        let [start, end] = realloc(0x10, 0, 0);
        let [start_2, end_2] = realloc(0x20, 0x30, 9);
        let totals = compiled(&[
            (1, alloc(0x10, 4)),
            (1, start),
            (1, end),
            (1, start_2),
            (1, end_2),
        ]);
        assert_eq!((totals.makes, totals.frees, totals.reallocs), (1, 1, 1));
        assert_eq!((totals.unknown_frees, totals.end_live_bytes), (1, 9));
    }

    #[test]
    fn an_address_handed_out_during_a_realloc_is_another_block() {
        let [start, end] = realloc(0x10, 0x40, 100);
        let totals = compiled(&[
            (1, alloc(0x10, 4)),
            (1, start),
            (2, alloc(0x10, 7)),
            (1, end),
            (2, free(0x10)),
            (2, free(0x40)),
        ]);
        assert_eq!((totals.makes, totals.frees, totals.reallocs), (2, 2, 1));
        assert_eq!((totals.peak_live_bytes, totals.end_live_bytes), (107, 0));
    }

    #[test]
    fn a_block_whose_end_was_not_seen_is_freed_before_the_next_at_its_place() {
        let totals = compiled(&[(1, alloc(0x10, 4)), (2, alloc(0x10, 6)), (1, free(0x10))]);
        assert_eq!((totals.makes, totals.frees), (2, 2));
        assert_eq!((totals.peak_live_bytes, totals.end_live_bytes), (6, 0));
    }

    #[test]
    fn a_thread_number_that_returns_is_another_thread() {
        let life = [
            (7, Action::ThreadStart),
            (7, alloc(0x10, 1)),
            (7, free(0x10)),
            (7, Action::ThreadEnd),
        ];
        let totals = compiled(&life.repeat(3));
        assert_eq!((totals.threads, totals.most_threads), (3, 1));
    }
}
