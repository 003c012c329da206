//! The calls of all streams, merged in order of time.
//!
//! Invariants: times never go back; of equal times, what ends a block comes before what makes one,
//! so that an address is never live twice; the order within a thread is the thread's own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Trace;
use super::counters::Counted;
use super::marks::{MarkId, MarkNames};
use super::stacks::{StackId, StackTable};
use super::stream::{NODES_A_BYTE, NODES_ANYWAY, Shared, Stream};
use crate::call::{AllocCall, FreeCall, IoCall};
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
    /// A block was made, or, with address 0, was not.
    Alloc {
        call: AllocCall,
        address: u64,
        /// Bytes asked for: of calloc the product, of strdup with the terminator.
        size: u64,
        /// Elements, of calloc; else 0.
        count: u64,
        /// Of the aligned calls; 0 if the caller asked for none.
        alignment: u64,
        stack: StackId,
    },
    /// A block is about to be ended. Address 0: `free(NULL)`.
    Free {
        call: FreeCall,
        address: u64,
        /// As the caller stated it, in the sized calls; else 0.
        size: u64,
        alignment: u64,
        stack: StackId,
    },
    /// A realloc begins: from here on `old` may be handed out again. `ReallocEnd` of the same thread
    /// follows, and no other call of that thread comes between.
    ReallocStart { old: u64, stack: StackId },
    /// A realloc is done. Address 0 with size 0 and a block in `old`: the block was freed. Address 0
    /// otherwise: it failed, and `old` lives on.
    ReallocEnd {
        call: AllocCall,
        old: u64,
        address: u64,
        size: u64,
        /// Elements, of reallocarray; else 0.
        count: u64,
        stack: StackId,
    },
    /// The program called `larder_mark`; `Events::mark_name` has the name.
    Mark { name: MarkId },
    /// A wrapper of a system call has returned. With `record --syscalls` only.
    Io {
        call: IoCall,
        /// As the call answered; a failure is the error number, negated.
        result: i64,
        stack: StackId,
    },
    /// What the block at this address holds: told before the call that ends it, and at the process's end
    /// of those that live. With `record --contents` only; what is told last holds.
    Contents {
        address: u64,
        fingerprint: Fingerprint,
    },
    /// The thread made its first call.
    ThreadStart,
    /// The thread runs its last destructors; a few calls may still follow.
    ThreadEnd,
    /// This many calls of this thread, here, are not in the trace.
    Lost { calls: u64 },
}

impl Event {
    /// Of equal times, the lower comes first.
    pub(super) fn rank(&self) -> u8 {
        match self.action {
            Action::Free { .. } | Action::ReallocStart { .. } | Action::Contents { .. } => 0,
            _ => 1,
        }
    }
}

pub struct Events<'t> {
    streams: Vec<Option<Stream<'t>>>,
    /// Time, rank and number of each stream that has something left.
    queue: BinaryHeap<Reverse<(u64, u8, usize)>>,
    stacks: StackTable,
    marks: MarkNames,
    damage: Vec<Damage>,
    counted: Vec<Counted>,
    room: u64,
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
            stacks,
            marks: MarkNames::default(),
            damage: trace.index.damage().to_vec(),
            counted: Vec::new(),
            room: NODES_ANYWAY.saturating_add(trace.length.saturating_mul(NODES_A_BYTE)),
        }
    }

    /// The next call. Not an `Iterator`, so that `stacks` may be asked in between.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event> {
        loop {
            let Reverse((_, _, number)) = self.queue.pop()?;
            let stream = self.streams.get_mut(number)?.as_mut()?;
            let event = stream.pop();
            let mut shared = Shared {
                stacks: &mut self.stacks,
                marks: &mut self.marks,
                damage: &mut self.damage,
                counted: &mut self.counted,
                room: &mut self.room,
            };
            if stream.advance(&mut shared) {
                if let Some((time, rank)) = stream.next_time() {
                    self.queue.push(Reverse((time, rank, number)));
                }
            } else {
                self.streams[number] = None;
            }
            if event.is_some() {
                return event;
            }
        }
    }

    /// Every stack that an event so far has named.
    pub fn stacks(&self) -> &StackTable {
        &self.stacks
    }

    pub fn into_stacks(self) -> StackTable {
        self.stacks
    }

    /// The name of a mark that an event so far has named: any bytes, at most `codec::MAX_MARK_NAME`.
    pub fn mark_name(&self, id: MarkId) -> &[u8] {
        self.marks.name(id)
    }

    /// What the counters that were defined so far count; see `Trace::counters`.
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// What was found wrong so far, the index's findings included.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }
}
