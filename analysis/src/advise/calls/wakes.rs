//! Bytes whose only purpose is to wake another thread: a pipe, or a pair of sockets, that is written a few
//! bytes at a time by some threads, and read by others of the same process.
//!
//! Memory: by the pipes that are open at once, and by the stacks that write to and read from each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_trace::{StackId, SystemCall};

use super::{Called, Concluded, Conclusion, FEWEST_CALLS, Figures, Pattern};

/// A larger write carries data.
const LARGEST_WAKE: i64 = 8;

#[derive(Default)]
struct Pipe {
    /// Bytes that were written and not yet read.
    unread: i64,
    carries_data: bool,
    writers: BTreeSet<u32>,
    readers: BTreeSet<u32>,
    /// By stack: calls, those that came while an earlier byte was unread, and their time.
    writes: BTreeMap<StackId, Figures>,
    reads: BTreeMap<StackId, u64>,
}

#[derive(Default)]
pub struct Wakes {
    /// By descriptor: the pipe's number, and whether this is the end that is read. A pair of sockets has
    /// two pipes.
    reads_from: HashMap<i32, usize>,
    writes_to: HashMap<i32, usize>,
    pipes: Vec<Pipe>,
}

impl Wakes {
    pub fn called(&mut self, called: &Called) {
        let Called {
            call,
            result,
            limit,
            descriptor,
            ..
        } = *called;
        match call {
            SystemCall::Pipe if result == 0 => self.open(descriptor, limit as i32),
            SystemCall::Socketpair if result == 0 => {
                self.open(descriptor, limit as i32);
                self.open(limit as i32, descriptor);
            }
            SystemCall::Close if result == 0 => {
                self.reads_from.remove(&descriptor);
                self.writes_to.remove(&descriptor);
            }
            SystemCall::Write | SystemCall::Send if result > 0 => {
                self.written(called);
            }
            SystemCall::Read | SystemCall::Recv if result > 0 => {
                self.read(called);
            }
            // Whatever else moves bytes through it makes it more than a wake-up.
            _ if call.counts_bytes() && result > 0 => {
                if let Some(pipe) = self.writes_to.get(&descriptor) {
                    self.pipes[*pipe].carries_data = true;
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, reader: i32, writer: i32) {
        self.reads_from.insert(reader, self.pipes.len());
        self.writes_to.insert(writer, self.pipes.len());
        self.pipes.push(Pipe::default());
    }

    fn written(&mut self, called: &Called) {
        let Some(number) = self.writes_to.get(&called.descriptor) else {
            return;
        };
        let (pipe, bytes) = (&mut self.pipes[*number], called.result);
        pipe.carries_data |= bytes > LARGEST_WAKE;
        pipe.writers.insert(called.thread);
        let figures = pipe.writes.entry(called.stack).or_default();
        figures.of += 1;
        if pipe.unread > 0 {
            figures.calls += 1;
            figures.bytes = figures.bytes.saturating_add(bytes as u64);
            figures.ns += called.ns;
        }
        pipe.unread = pipe.unread.saturating_add(bytes);
    }

    fn read(&mut self, called: &Called) {
        let Some(number) = self.reads_from.get(&called.descriptor) else {
            return;
        };
        let pipe = &mut self.pipes[*number];
        pipe.readers.insert(called.thread);
        *pipe.reads.entry(called.stack).or_default() += 1;
        // A read may return before the write that it took from has.
        pipe.unread = pipe.unread.saturating_sub(called.result).max(-LARGEST_WAKE);
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        for pipe in self.pipes {
            let apart = !pipe.readers.is_empty() && pipe.readers.is_disjoint(&pipe.writers);
            let reader = pipe.reads.iter().max_by_key(|(_, calls)| **calls);
            let Some((reader, _)) = reader.filter(|_| apart && !pipe.carries_data) else {
                continue;
            };
            let reads: u64 = pipe.reads.values().sum();
            for (stack, mut figures) in pipe.writes {
                if figures.of >= FEWEST_CALLS {
                    figures.others = reads;
                    concluded.found.push(Conclusion {
                        pattern: Pattern::Wakes,
                        stack,
                        other: Some(*reader),
                        format: None,
                        figures,
                    });
                }
            }
        }
    }
}
