//! The calls of an image, a word each, for a second observer of the same blocks: it takes less time than reading the
//! file again.
//!
//! A block is named by its slot in the heap. The replay numbers the slots alike, so the log does not have those of new
//! blocks.
//!
//! Invariant: the words of all logs ≤ `MOST_WORDS`, that is 96 MiB; a log that would have more is empty, and the file
//! is read again. A realloc takes up to three words. A word takes 6 bytes, and one with a large number 22, which counts
//! as four words.

use larder_trace::{Action, Event, Events, FreeCall, StackId};

use super::heap::{Block, OriginId, Slab};
use super::observe::{End, Made, Moment, Observer};

/// In tests, so few that many traces exceed it.
const MOST_WORDS: usize = if cfg!(test) { 1 << 8 } else { 1 << 24 };

// A word of 48 bits: the tag in the upper three, a number of 22 bits, and one of 23 bits.
const TAG_SHIFT: u32 = 45;
const UPPER_SHIFT: u32 = 23;
const MOST_UPPER: u32 = (1 << (TAG_SHIFT - UPPER_SHIFT)) - 1;
const MOST_LOWER: u64 = (1 << UPPER_SHIFT) - 1;

/// The following calls are this thread's.
const THREAD: u64 = 0;
/// A call from a stack.
const CALL: u64 = 1;
/// A call that concerns no block.
const OTHER: u64 = 2;
/// A block of an origin and a size.
const MADE: u64 = 3;
/// The end of the block of a slot; the upper number is one of those below.
const ENDED: u64 = 4;
/// `CALL` and `MADE` in one: the stack is the origin's.
const ALLOC: u64 = 5;
/// `CALL` and `ENDED` in one, by a free.
const FREE: u64 = 6;
/// The upper number is the tag, and its numbers are the next ones in `wide`.
const WIDE: u64 = 7;

/// Words whose blocks are looked at before they are passed on.
const AHEAD: usize = 256;

const FREED: u32 = 0;
const REPLACED: u32 = 1;
const RESIZED: u32 = 2;
const RESIZED_TO_ZERO: u32 = 3;

#[derive(Default)]
pub struct Log {
    /// The words, in two parts. Not in chunks, which malloc would not return to the system: rendering a page after
    /// the replay takes as much memory.
    low: Vec<u32>,
    high: Vec<u16>,
    most_words: usize,
    wide: Vec<(u32, u64)>,
    /// By origin.
    stacks: Vec<StackId>,
    thread: Option<u32>,
    /// The last call, until it is known what it does.
    call: Option<StackId>,
    /// The slots of the blocks that live at the end.
    live: Vec<u32>,
    is_full: bool,
}

fn word(tag: u64, upper: u32, lower: u64) -> u64 {
    tag << TAG_SHIFT | u64::from(upper) << UPPER_SHIFT | lower
}

fn tag(word: u64) -> u64 {
    word >> TAG_SHIFT
}

fn upper(word: u64) -> u32 {
    (word >> UPPER_SHIFT) as u32 & MOST_UPPER
}

impl Log {
    /// The log of one more image.
    pub fn beside<'a>(others: impl Iterator<Item = &'a Log>) -> Self {
        let used: usize = others.map(Log::words).sum();
        Self {
            most_words: MOST_WORDS.saturating_sub(used),
            ..Self::default()
        }
    }

    fn words(&self) -> usize {
        self.low.len() + self.wide.len() * 3
    }

    #[inline(always)]
    fn push(&mut self, tag: u64, upper: u32, lower: u64) {
        if upper > MOST_UPPER || lower > MOST_LOWER {
            self.push_wide(tag, upper, lower);
        } else if self.low.len() >= self.most_words {
            self.drop_all();
        } else {
            let word = word(tag, upper, lower);
            self.low.push(word as u32);
            self.high.push((word >> 32) as u16);
        }
    }

    #[cold]
    fn push_wide(&mut self, tag: u64, upper: u32, lower: u64) {
        self.wide.push((upper, lower));
        self.most_words = self.most_words.saturating_sub(3);
        self.push(WIDE, tag as u32, 0);
    }

    #[cold]
    fn drop_all(&mut self) {
        *self = Self {
            is_full: true,
            ..Self::default()
        };
    }

    #[inline]
    fn push_call(&mut self) {
        if let Some(stack) = self.call.take() {
            self.push(CALL, stack.0, 0);
        }
    }

    /// To be called for each event, before its effects on blocks.
    #[inline(always)]
    pub fn event(&mut self, event: &Event) {
        let call = match event.action {
            Action::Alloc { stack, .. }
            | Action::Free { stack, .. }
            | Action::ReallocEnd { stack, .. }
            | Action::SystemCall { stack, .. } => Some(stack),
            Action::Mark { .. } | Action::Copy { .. } | Action::Sample { .. } => None,
            _ => return,
        };
        if self.is_full {
            return;
        }
        self.push_call();
        if self.thread != Some(event.thread) {
            self.thread = Some(event.thread);
            self.push(THREAD, 0, event.thread.into());
        }
        match call {
            Some(_) => self.call = call,
            None => self.push(OTHER, 0, 0),
        }
    }

    #[inline]
    pub fn made(&mut self, stack: StackId, origin: OriginId, size: u64) {
        if self.is_full {
            return;
        }
        let place = origin.index();
        if self.stacks.len() <= place {
            self.stacks.resize(place + 1, StackId::UNKNOWN);
        }
        self.stacks[place] = stack;
        let tag = self.call.take().map_or(MADE, |_| ALLOC);
        self.push(tag, place as u32, size);
    }

    #[inline]
    pub fn ended(&mut self, slot: u32, how: End) {
        if self.is_full {
            return;
        }
        let code = match how {
            End::Freed(_) => FREED,
            End::Replaced => REPLACED,
            End::Reallocated(0) => RESIZED_TO_ZERO,
            End::Reallocated(_) => RESIZED,
        };
        match self.call.take_if(|_| code == FREED) {
            Some(stack) => self.push(FREE, stack.0, slot.into()),
            None => {
                self.push_call();
                self.push(ENDED, code, slot.into());
            }
        }
    }

    /// The slots of blocks that end in the words from this one on.
    fn ending(&self, from: usize) -> impl Iterator<Item = u32> {
        let words = self.low[from..].iter().zip(&self.high[from..]);
        words.take(AHEAD).filter_map(|(low, high)| {
            let word = u64::from(*high) << 32 | u64::from(*low);
            matches!(tag(word), ENDED | FREE).then_some((word & MOST_LOWER) as u32)
        })
    }

    /// Each word's tag and numbers.
    #[inline(always)]
    fn unpacked(&self) -> impl Iterator<Item = (u64, u32, u64)> {
        let mut wide = self.wide.iter().copied();
        self.low.iter().zip(&self.high).map(move |(low, high)| {
            let word = u64::from(*high) << 32 | u64::from(*low);
            match tag(word) {
                WIDE => {
                    let (wide_upper, wide_lower) = wide.next().unwrap_or_default();
                    (upper(word).into(), wide_upper, wide_lower)
                }
                tag => (tag, upper(word), word & MOST_LOWER),
            }
        })
    }

    /// To be called at the end, with the slots of the live blocks.
    pub fn finish(&mut self, live: impl Iterator<Item = u32>) {
        self.push_call();
        if !self.is_full {
            self.live.extend(live);
        }
    }

    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Passes the calls of a log to an observer: all but times, addresses, names and the new sizes of `End::Reallocated`.
pub struct Replay<'a, 't, O: Observer> {
    log: &'a Log,
    /// Has the stacks of the calls, and is not read.
    events: &'a Events<'t>,
    observer: &'a mut O,
    thread: u32,
    blocks: Slab<O::Note>,
    /// The old block of the call.
    resized: Option<Block<O::Note>>,
}

impl<'a, 't, O: Observer> Replay<'a, 't, O> {
    pub fn new(log: &'a Log, events: &'a Events<'t>, observer: &'a mut O) -> Self {
        Self {
            log,
            events,
            observer,
            thread: 0,
            blocks: Slab::default(),
            resized: None,
        }
    }

    /// Calls `progress` for each call.
    pub fn run(&mut self, mut progress: impl FnMut()) {
        let mut stack = StackId::UNKNOWN;
        for (place, (tag, upper, lower)) in self.log.unpacked().enumerate() {
            if place.is_multiple_of(AHEAD) {
                self.blocks.look_ahead(self.log.ending(place));
            }
            match tag {
                THREAD => self.thread = lower as u32,
                OTHER => self.call(Action::Sample { cpu_ns: 0, stack }),
                MADE => self.made(stack, upper, lower),
                ENDED => self.ended(stack, lower as u32, upper),
                _ => {
                    stack = match tag {
                        ALLOC => self.log.stacks[upper as usize],
                        _ => StackId(upper),
                    };
                    self.call(Action::Free {
                        call: FreeCall::Free,
                        address: 0,
                        size: 0,
                        alignment: 0,
                        stack,
                    });
                    match tag {
                        ALLOC => self.made(stack, upper, lower),
                        FREE => self.ended(stack, lower as u32, FREED),
                        _ => {}
                    }
                    progress();
                }
            }
        }
    }

    /// The observer, and the blocks that live at the end.
    pub fn end(self) -> (&'a mut O, Vec<Block<O::Note>>) {
        let live = self.log.live.iter();
        let blocks = live.filter_map(|slot| self.blocks.get(*slot).copied());
        (self.observer, blocks.collect())
    }

    #[inline(always)]
    fn call(&mut self, action: Action) {
        let event = Event {
            time: 0,
            thread: self.thread,
            action,
        };
        self.resized = None;
        self.observer.event(&event, self.events);
    }

    fn moment(&self, stack: StackId) -> Moment<'a> {
        Moment {
            time: 0,
            thread: self.thread,
            stack,
            stacks: self.events.stacks(),
        }
    }

    fn made(&mut self, stack: StackId, origin: u32, size: u64) {
        let origin = OriginId::new(origin);
        let made = Made {
            origin,
            address: 0,
            size,
            old: self.resized.as_ref(),
        };
        let note = self.observer.made(self.moment(stack), &made);
        self.blocks.add(Block { size, origin, note });
    }

    fn ended(&mut self, stack: StackId, slot: u32, how: u32) {
        let Some(block) = self.blocks.end(slot) else {
            return;
        };
        let how = match how {
            FREED => End::Freed(FreeCall::Free),
            REPLACED => End::Replaced,
            RESIZED_TO_ZERO => End::Reallocated(0),
            _ => {
                self.resized = Some(block);
                End::Reallocated(1)
            }
        };
        self.observer.ended(self.moment(stack), 0, &block, how);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_come_back_in_order() {
        let mut log = Log::beside(std::iter::empty());
        let words = [
            (ALLOC, 0, 0),
            (ALLOC, MOST_UPPER, MOST_LOWER),
            (ALLOC, MOST_UPPER + 1, 5),
            (MADE, 5, MOST_LOWER + 1),
            (FREE, u32::MAX, u64::MAX),
            (THREAD, 0, u32::MAX.into()),
            (OTHER, 0, 0),
        ];
        for (tag, upper, lower) in words {
            log.push(tag, upper, lower);
        }
        assert_eq!(log.unpacked().collect::<Vec<_>>(), words);
        assert_eq!(log.words(), words.len() + 4 * 3);
    }

    #[test]
    fn a_log_with_too_many_words_is_empty() {
        for (lower, most) in [(1, MOST_WORDS), (u64::MAX, MOST_WORDS / 4)] {
            let mut log = Log::beside(std::iter::empty());
            for _ in 0..most {
                log.push(MADE, 0, lower);
            }
            assert!(!log.is_full());
            assert!(Log::beside([&log].into_iter()).most_words == 0);
            log.push(MADE, 0, lower);
            assert!(log.is_full() && log.words() == 0);
        }
    }
}
