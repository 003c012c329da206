//! Where bytes come from and where they go: read, formatted, copied or filled here, copied on or overwritten
//! there.
//!
//! The program's own stores are not seen. So bytes count as copied on only if the same thread copies them soon
//! after they were made, and nothing recorded was written over them.
//!
//! Memory: by `MOST_RANGES`, and by the pairs of stacks that are found. Time: O(log ranges) a call, and one for
//! each range that it covers.

use std::collections::{BTreeMap, HashMap};

use larder_trace::{Action, Event, StackId};

use super::{Concluded, Conclusion, Figures, Pattern, Total, is_most};

/// Ranges whose origin is known at once; then the lowest are forgotten.
const MOST_RANGES: usize = 1 << 14;
/// Recorded calls of the same thread until bytes in memory count as another's.
const SOON: u64 = 256;
/// The same until a block that was copied is freed.
const AT_ONCE: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Made {
    Read,
    Formatted,
    Copied,
    Filled,
}

impl Made {
    fn pattern(self) -> Pattern {
        match self {
            Made::Read => Pattern::ReadThenCopied,
            Made::Formatted => Pattern::FormattedThenCopied,
            Made::Copied => Pattern::CopiedOn,
            Made::Filled => Pattern::FilledThenOverwritten,
        }
    }
}

/// The call that made the bytes of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Maker {
    made: Made,
    stack: StackId,
}

#[derive(Clone, Copy)]
struct Range {
    end: u64,
    maker: Maker,
    thread: u32,
    /// The number of the thread's call that wrote to it last.
    at: u64,
    onward: Onward,
}

/// What became of a range.
#[derive(Clone, Copy)]
enum Onward {
    Nothing,
    /// This stack copied so many bytes of it.
    Once(StackId, u64),
    /// It is needed where it is.
    Often,
}

/// A copy whose source may be a block that is freed next.
#[derive(Clone, Copy)]
struct Last {
    source: u64,
    bytes: u64,
    stack: StackId,
    at: u64,
}

#[derive(Default)]
pub struct Bytes {
    /// By their first address; none overlaps another.
    ranges: BTreeMap<u64, Range>,
    /// By thread.
    calls: HashMap<u32, u64>,
    last: HashMap<u32, Last>,
    /// What each line made, and how often.
    made: HashMap<Maker, Figures>,
    /// What was copied on by whom, or overwritten.
    onward: HashMap<(Maker, StackId), Figures>,
    copies: HashMap<StackId, u64>,
    handed: HashMap<StackId, Figures>,
}

impl Bytes {
    pub fn event(&mut self, event: &Event) {
        let at = self.calls.entry(event.thread).or_default();
        *at += 1;
        let (thread, at) = (event.thread, *at);
        match event.action {
            Action::Copy {
                call,
                destination,
                source,
                bytes,
                stack,
                rate: 0,
            } if bytes > 0 => {
                let made = match call {
                    _ if call.formats() => Made::Formatted,
                    _ if call.fills() => Made::Filled,
                    _ => Made::Copied,
                };
                if made == Made::Copied {
                    *self.copies.entry(stack).or_default() += 1;
                    self.copied_on(source, bytes, thread, at, stack);
                    let last = Last {
                        source,
                        bytes,
                        stack,
                        at,
                    };
                    self.last.insert(thread, last);
                }
                // What goes to a stream is in no memory that is known; duplicates are allocations.
                if destination != 0 && !call.duplicates() {
                    self.write(destination, bytes, Maker { made, stack }, thread, at);
                }
            }
            Action::SystemCall {
                call,
                result,
                buffer,
                stack,
                ..
            } if call.reads() && result > 0 && buffer != 0 => {
                let maker = Maker {
                    made: Made::Read,
                    stack,
                };
                self.write(buffer, result as u64, maker, thread, at);
            }
            Action::SystemCall {
                call,
                result,
                buffer,
                ..
            } if call.writes() && result > 0 && buffer != 0 => {
                self.used(buffer, buffer.saturating_add(result as u64));
            }
            Action::Alloc { address, size, .. } if address != 0 => self.forget(address, size),
            Action::ReallocEnd {
                old, address, size, ..
            } if address != old && address != 0 => self.moved(old, address, size),
            Action::Free { address, .. } => self.freed(address, thread, at),
            _ => {}
        }
    }

    /// Each range that overlaps these bytes: its start, and itself.
    fn overlapping(&self, start: u64, end: u64) -> Vec<(u64, Range)> {
        let before = self.ranges.range(..start).next_back();
        let before = before.filter(|(_, range)| range.end > start);
        let within = self.ranges.range(start..end);
        before
            .into_iter()
            .chain(within)
            .map(|(at, r)| (*at, *r))
            .collect()
    }

    fn copied_on(&mut self, source: u64, bytes: u64, thread: u32, at: u64, stack: StackId) {
        let end = source.saturating_add(bytes);
        self.used(source, end);
        for (start, range) in self.overlapping(source, end) {
            let soon = range.thread == thread && at - range.at <= SOON;
            let bytes = range.end.min(end) - start.max(source);
            let onward = match range.onward {
                Onward::Nothing if soon && range.maker.stack != stack => Onward::Once(stack, bytes),
                // The next part of it.
                Onward::Once(by, moved)
                    if by == stack && moved.saturating_add(bytes) <= range.end - start =>
                {
                    Onward::Once(by, moved + bytes)
                }
                Onward::Once(..) => Onward::Often,
                Onward::Nothing | Onward::Often => continue,
            };
            match (range.onward, onward) {
                (Onward::Once(by, moved), Onward::Often) => {
                    let figures = self.onward.entry((range.maker, by)).or_default();
                    figures.calls = figures.calls.saturating_sub(1);
                    figures.bytes = figures.bytes.saturating_sub(moved);
                }
                _ => {
                    let figures = self.onward.entry((range.maker, stack)).or_default();
                    figures.calls += 1;
                    figures.bytes = figures.bytes.saturating_add(bytes);
                }
            }
            if let Some(range) = self.ranges.get_mut(&start) {
                range.onward = onward;
            }
        }
    }

    /// These bytes are read, so a fill of them is needed.
    fn used(&mut self, start: u64, end: u64) {
        for (from, range) in self.overlapping(start, end) {
            if range.maker.made == Made::Filled {
                self.ranges.remove(&from);
            }
        }
    }

    fn write(&mut self, start: u64, bytes: u64, maker: Maker, thread: u32, at: u64) {
        let end = start.saturating_add(bytes);
        let sum = self.made.entry(maker).or_default();
        sum.calls += 1;
        sum.bytes = sum.bytes.saturating_add(bytes);
        for (from, range) in self.overlapping(start, end) {
            let covered = range.end.min(end) - from.max(start);
            let length = range.end - from;
            let filled = range.maker.made == Made::Filled && maker.made != Made::Filled;
            let soon = range.thread == thread && at - range.at <= SOON;
            if filled && soon && is_most(covered, length) {
                let figures = self.onward.entry((range.maker, maker.stack)).or_default();
                figures.calls += 1;
                figures.bytes = figures.bytes.saturating_add(covered);
            }
            self.ranges.remove(&from);
        }
        let range = Range {
            end,
            maker,
            thread,
            at,
            onward: Onward::Nothing,
        };
        let mut begin = start;
        // What is appended piece by piece is one range.
        if let Some((from, before)) = self.ranges.range(..start).next_back()
            && before.end == start
            && before.maker == maker
            && before.thread == thread
            && matches!(before.onward, Onward::Nothing)
        {
            begin = *from;
        }
        self.ranges.insert(begin, range);
        if self.ranges.len() > MOST_RANGES {
            self.ranges.pop_first();
        }
    }

    fn forget(&mut self, start: u64, bytes: u64) {
        for (from, _) in self.overlapping(start, start.saturating_add(bytes)) {
            self.ranges.remove(&from);
        }
    }

    /// A block of this new size moved, with the bytes in it.
    fn moved(&mut self, old: u64, new: u64, size: u64) {
        let within = self.ranges.range(old..old.saturating_add(size));
        let within: Vec<_> = within.map(|(at, range)| (*at, *range)).collect();
        self.forget(new, size);
        for (from, range) in within {
            self.ranges.remove(&from);
            let end = new
                .saturating_add(range.end - old)
                .min(new.saturating_add(size));
            let start = new.saturating_add(from - old);
            if start < end {
                self.ranges.insert(start, Range { end, ..range });
            }
        }
    }

    fn freed(&mut self, address: u64, thread: u32, at: u64) {
        if let Some(last) = self.last.get(&thread)
            && last.source == address
            && address != 0
            && at - last.at <= AT_ONCE
        {
            let figures = self.handed.entry(last.stack).or_default();
            figures.calls += 1;
            figures.bytes = figures.bytes.saturating_add(last.bytes);
            self.last.remove(&thread);
        }
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        for ((maker, other), figures) in self.onward {
            concluded.found.push(Conclusion {
                pattern: maker.made.pattern(),
                stack: maker.stack,
                other: Some(other),
                format: None,
                figures,
            });
        }
        for (maker, all) in self.made {
            concluded.totals.push(Total {
                pattern: maker.made.pattern(),
                stack: maker.stack,
                of: all.bytes,
                others: all.calls,
            });
        }
        for (stack, figures) in self.handed {
            concluded.found.push(Conclusion {
                pattern: Pattern::HandedOver,
                stack,
                other: None,
                format: None,
                figures,
            });
        }
        for (stack, calls) in self.copies {
            concluded.totals.push(Total {
                pattern: Pattern::HandedOver,
                stack,
                of: calls,
                others: 0,
            });
        }
    }
}
