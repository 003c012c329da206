//! A cache of the stacks of recent calls, which avoids walking.
//!
//! An entry has the innermost frames of a stack: the registers of the first, the words from which the
//! others follow, and the next outer frame, which is in the walker's last stack. If all these and that
//! frame's own stack are unchanged, so is this stack: that is exact.
//!
//! Thread safety: belongs to a walker. Memory: 216 bytes an entry, up to 216 KiB; unused entries are not
//! accessed.

use crate::memory::Pages;
use crate::stack::{Frame, Word};

#[derive(Clone, Copy)]
struct Recent {
    key: u64,
    /// All 0 in an empty entry; no call has that.
    inner: Frame,
    outer: Frame,
    /// The outer frame's index in the last stack.
    outer_at: usize,
    /// The innermost frame's last; filled up at the front by repetition.
    words: [Word; WORDS],
}

/// Words of the inner frames of an entry.
pub const WORDS: usize = 8;

/// Entries in a set.
const WAYS: usize = 2;
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 9;

pub struct Recents {
    sets: Pages<[Recent; WAYS]>,
}

fn set(key: u64) -> usize {
    (key >> (64 - SET_BITS)) as usize
}

impl Recents {
    pub const fn new() -> Self {
        Recents {
            sets: Pages::empty(),
        }
    }

    pub fn forget(&mut self) {
        self.sets.release();
    }

    /// The number of a call's stack, and the frame of `last` that its inner frames continue, if there is one.
    ///
    /// # Safety
    /// The words from `at` to `high` can be read.
    #[inline(always)]
    pub unsafe fn find<'a>(
        &self,
        key: u64,
        at: &Frame,
        last: &'a [Frame],
        high: u64,
    ) -> Option<(u32, &'a Frame)> {
        for recent in self.sets.get(set(key))? {
            if recent.key != key || !recent.inner.is(at) {
                continue;
            }
            if let Some(outer) = last.get(recent.outer_at)
                && recent.outer.is(outer)
                && recent.outer.node == outer.node
                && outer.sp <= high
                // SAFETY: the words lie between the two frames.
                && unsafe { Word::all_hold(&recent.words) }
            {
                return Some((recent.inner.node, outer));
            }
        }
        None
    }

    /// The words of an entry, filled up at the front by repetition of the first, and whether its inner frames
    /// follow from the frame pointer, too.
    pub fn inner(&self, key: u64) -> Option<(&[Word], bool)> {
        let mut set = self.sets.get(set(key))?.iter();
        let recent = set.find(|recent| recent.key == key)?;
        Some((&recent.words, recent.inner.needs_bp()))
    }

    /// Adds a stack, whose innermost frames follow from these words; replaces the older entry of its set.
    pub fn note(
        &mut self,
        key: u64,
        inner: &Frame,
        words: &[Word],
        outer_at: usize,
        outer: &Frame,
    ) {
        let (Some(&first), true) = (words.first(), self.sets.grow(SETS)) else {
            return;
        };
        let mut all = [first; WORDS];
        for (to, from) in all.iter_mut().rev().zip(words.iter().rev()) {
            *to = *from;
        }
        if let Some(set) = self.sets.slice().get_mut(set(key)) {
            set.rotate_right(1);
            set[0] = Recent {
                key,
                inner: *inner,
                outer: *outer,
                outer_at,
                words: all,
            };
        }
    }
}
