//! The stacks of recent calls, found again without walking.
//!
//! An entry has the innermost frames of a stack: the registers of the first, the words that the
//! others follow from, and the frame of the walker's last stack that they stand on. If all that is
//! as it was, and that frame's own stack too, then so is this one: that is exact.
//!
//! Thread safety: belongs to a walker. Bounds: 216 bytes an entry, 216 KiB, of which only what is
//! used is touched.

use crate::memory::Pages;
use crate::stack::{Frame, Word};

#[derive(Clone, Copy)]
struct Recent {
    key: u64,
    /// All 0, which no call's is, if there is no entry.
    inner: Frame,
    outer: Frame,
    /// The outer frame's place in the last stack.
    outer_at: usize,
    /// Filled up by repetition.
    words: [Word; WORDS],
}

/// Of the inner frames of an entry.
pub const WORDS: usize = 8;

/// Entries that a key may have.
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

    /// The number of a call's stack, if it stands on a frame of `last`, and that frame.
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

    /// Notes a stack, whose innermost frames follow from these words, in the place of the set's older one.
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
        for (to, from) in all.iter_mut().zip(words) {
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
