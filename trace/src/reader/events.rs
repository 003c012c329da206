//! The calls of all streams, merged in order of time.
//!
//! Invariants: times do not decrease; at equal times, frees come before allocations, so that an address is
//! never live twice; the order within a thread is the thread's own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Trace;
use super::counters::Counted;
use super::marks::{MarkId, MarkNames};
use super::stacks::{StackId, StackTable};
use super::stream::{NODES_A_BYTE, NODES_ANYWAY, Shared, Stream};
use crate::call::{AllocCall, CopyCall, FreeCall, SystemCall};
use crate::error::Damage;
use crate::fingerprint::Fingerprint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// In ticks; see `Clock`.
    pub time: u64,
    /// The system's number of the thread.
    pub thread: u32,
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An allocation; it failed if the address is 0.
    Alloc {
        call: AllocCall,
        address: u64,
        /// Requested bytes: the product for calloc, with the terminator for strdup.
        size: u64,
        /// Elements for calloc; else 0.
        count: u64,
        /// Alignment for the aligned calls; 0 if none was requested.
        alignment: u64,
        stack: StackId,
    },
    /// A block is about to be freed. Address 0: `free(NULL)`.
    Free {
        call: FreeCall,
        address: u64,
        /// The size that the caller stated, in the sized calls; else 0.
        size: u64,
        alignment: u64,
        stack: StackId,
    },
    /// A realloc begins: `old` may be reused from here on. `ReallocEnd` is the next call of the same thread.
    ReallocStart { old: u64, stack: StackId },
    /// A realloc has returned. Address 0 with size 0 and a block in `old`: the block was freed. Other address
    /// 0: it failed, and `old` stays live.
    ReallocEnd {
        call: AllocCall,
        old: u64,
        address: u64,
        size: u64,
        /// Elements for reallocarray; else 0.
        count: u64,
        stack: StackId,
    },
    /// The program called `larder_mark`; `Events::mark_name` has the name.
    Mark { name: MarkId },
    /// A function of libc that makes a system call has returned. With `record --syscalls` only.
    SystemCall {
        call: SystemCall,
        /// The call's result; a failure is the negated error number.
        result: i64,
        /// How long it took; 0 in traces before version 2.3.
        ticks: u64,
        /// The bytes, or descriptors, that it may give or take, or a hash of the name of a file; 0: not known, or
        /// none.
        limit: u64,
        /// The descriptor that it is called with; else -1.
        descriptor: i32,
        /// Where the bytes that it moves go or come from, of several places the first; 0: none, or not known.
        buffer: u64,
        stack: StackId,
    },
    /// Bytes are about to be copied, filled or formatted, or, where only the result has their number, have
    /// been. With `record --copies` only.
    Copy {
        call: CopyCall,
        destination: u64,
        /// 0 for fills; the format for those that format.
        source: u64,
        bytes: u64,
        /// The mean number of bytes between two samples; 0 if every call was recorded.
        rate: u64,
        stack: StackId,
    },
    /// The contents of the block at this address, before the call that frees it, and, for live blocks, at the
    /// process's end. With `record --contents` only; the last one counts.
    Contents {
        address: u64,
        fingerprint: Fingerprint,
    },
    /// The thread was here, which stands for so much of its processor time. With `record --cpu` only.
    Sample { cpu_ns: u64, stack: StackId },
    /// The thread made its first call.
    ThreadStart,
    /// The thread runs its last destructors; a few calls may still follow.
    ThreadEnd,
    /// This many calls of this thread, here, are not in the trace.
    Lost { calls: u64 },
}

impl Action {
    /// The stack of a call.
    pub fn stack(&self) -> Option<StackId> {
        match *self {
            Action::Alloc { stack, .. }
            | Action::Free { stack, .. }
            | Action::ReallocStart { stack, .. }
            | Action::ReallocEnd { stack, .. }
            | Action::SystemCall { stack, .. }
            | Action::Sample { stack, .. }
            | Action::Copy { stack, .. } => Some(stack),
            _ => None,
        }
    }
}

impl Event {
    /// At equal times, the lower comes first.
    pub(super) fn rank(&self) -> u8 {
        match self.action {
            Action::Free { .. } | Action::ReallocStart { .. } | Action::Contents { .. } => 0,
            _ => 1,
        }
    }
}

pub struct Events<'t> {
    streams: Vec<Option<Stream<'t>>>,
    /// Time, rank and number of each stream that has events left, except of the current one.
    queue: BinaryHeap<Reverse<(u64, u8, usize)>>,
    /// The stream of the run, the run's calls, and those of them that `next` has returned.
    current: Option<usize>,
    length: usize,
    taken: usize,
    stacks: StackTable,
    marks: MarkNames,
    damage: Vec<Damage>,
    counted: Vec<Counted>,
    room: u64,
    generation: u32,
}

impl<'t> Events<'t> {
    pub(super) fn new(trace: &'t Trace, stacks: StackTable) -> Self {
        let streams: Vec<_> = trace
            .index
            .streams()
            .map(|entries| Some(Stream::new(trace, entries)))
            .collect();
        let first = |(number, stream): (usize, &Option<Stream<'t>>)| {
            stream
                .as_ref()?
                .first_time()
                .map(|time| Reverse((time, 0, number)))
        };
        let queue = streams.iter().enumerate().filter_map(first).collect();
        Events {
            streams,
            queue,
            current: None,
            length: 0,
            taken: 0,
            stacks,
            marks: MarkNames::default(),
            damage: trace.index.damage().to_vec(),
            counted: Vec::new(),
            room: NODES_ANYWAY.saturating_add(trace.length.saturating_mul(NODES_A_BYTE)),
            generation: 0,
        }
    }

    /// The next call. Not an `Iterator`, so that `stacks` can be called in between.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event> {
        if self.taken >= self.run().len() && !self.next_run() {
            return None;
        }
        self.taken += 1;
        self.run().get(self.taken - 1).copied()
    }

    /// Goes on to the next run of calls, all of one thread's stream, for callers that take them by `run` and not by
    /// `next`; false if there is none.
    pub fn next_run(&mut self) -> bool {
        self.taken = 0;
        if let Some(number) = self.current.take() {
            self.requeue(number);
        }
        while let Some(Reverse((_, _, number))) = self.queue.pop() {
            let Some(Some(stream)) = self.streams.get(number) else {
                continue;
            };
            if stream.ready().is_empty() {
                self.requeue(number);
                continue;
            }
            self.generation = stream.generation();
            let ready = stream.ready();
            self.length = match self.queue.peek() {
                Some(Reverse(other)) => ready
                    .iter()
                    .take_while(|event| (event.time, event.rank(), number) < *other)
                    .count(),
                None => ready.len(),
            };
            self.current = Some(number);
            return true;
        }
        self.stacks.rest();
        false
    }

    /// The run of calls that `next_run` went on to.
    pub fn run(&self) -> &[Event] {
        let current = self.current.and_then(|number| self.streams.get(number));
        match current {
            Some(Some(stream)) => stream.ready().get(..self.length).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Decodes what follows the run in its stream.
    fn requeue(&mut self, number: usize) {
        let Some(place) = self.streams.get_mut(number) else {
            return;
        };
        let Some(stream) = place else {
            return;
        };
        stream.take(std::mem::take(&mut self.length));
        stream.advance(&mut Shared {
            stacks: &mut self.stacks,
            marks: &mut self.marks,
            damage: &mut self.damage,
            counted: &mut self.counted,
            room: &mut self.room,
        });
        match stream.next_time() {
            Some((time, rank)) => self.queue.push(Reverse((time, rank, number))),
            None => *place = None,
        }
    }

    /// Every stack that an event so far has named.
    pub fn stacks(&self) -> &StackTable {
        &self.stacks
    }

    pub fn into_stacks(self) -> StackTable {
        self.stacks
    }

    /// Of the module map, at the last event.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The name of a mark that an event so far has named: any bytes, up to `codec::MAX_MARK_NAME`.
    pub fn mark_name(&self, id: MarkId) -> &[u8] {
        self.marks.name(id)
    }

    /// The stacks and calls of the counters that were defined so far; see `Trace::counters`.
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// The damage that was found so far, also by the index.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }
}
