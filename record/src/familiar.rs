//! The callers that copied lately, with their sites, because a copy takes less time than a look at a stack.
//!
//! A caller is familiar if its registers are the same, and the words from which its next frames follow; the frame
//! pointer only if they follow from it, too: elsewhere it may be any variable. So the innermost frames of a
//! familiar caller are exact: those that `WORDS` words lead to, two at least. The ones beyond were compared
//! `TRUST` copies ago at most.
//!
//! Thread safety: belongs to a stream. Memory: 112 bytes an entry, 28 KiB; unused until the first copy.

use crate::arch::Caller;
use crate::hash;
use crate::memory::Pages;
use crate::stack::Word;

const BITS: u32 = 8;
const WORDS: usize = 4;
/// Copies from a familiar caller until its whole stack is compared again.
const TRUST: u32 = 32;

#[derive(Clone, Copy)]
struct Familiar {
    ip: usize,
    sp: usize,
    bp: usize,
    /// The bits of `bp` that count: all or none.
    bp_mask: usize,
    /// Filled up by repetition.
    words: [Word; WORDS],
    site: u32,
    code: u8,
    /// How often it may be believed; 0 in an unused entry.
    trust: u32,
}

pub struct Familiars {
    entries: Pages<Familiar>,
}

#[inline(always)]
fn index(ip: usize, sp: usize) -> usize {
    hash::top((ip ^ sp.rotate_left(32)) as u64, BITS)
}

impl Familiars {
    pub const fn new() -> Self {
        Familiars {
            entries: Pages::empty(),
        }
    }

    pub fn forget(&mut self) {
        self.entries.release();
    }

    /// The site of this call.
    #[inline(always)]
    pub fn find(&mut self, caller: Caller, code: u8) -> Option<u32> {
        // SAFETY: a hook's caller.
        let ip = unsafe { caller.return_address() };
        let entry = self.entries.slice().get_mut(index(ip, caller.sp))?;
        let other_bp = (entry.bp ^ caller.bp) & entry.bp_mask;
        let other = (entry.ip ^ ip) | (entry.sp ^ caller.sp) | other_bp;
        if other != 0 || entry.code != code || entry.trust == 0 {
            return None;
        }
        // SAFETY: they lie above the same place of this thread's stack, or the main one, which stay.
        if !unsafe { Word::four_hold(&entry.words) } {
            return None;
        }
        entry.trust -= 1;
        Some(entry.site)
    }

    /// Notes the site of a call, whose stack follows from these words, the innermost frame's last, and from the
    /// frame pointer, if `needs_bp`.
    pub fn note(&mut self, caller: Caller, code: u8, words: &[Word], needs_bp: bool, site: u32) {
        let inner = words.get(words.len().saturating_sub(WORDS)..);
        let (Some(inner), true) = (inner, self.entries.grow(1 << BITS)) else {
            return;
        };
        let Some(&first) = inner.first() else {
            return;
        };
        // SAFETY: a hook's caller.
        let ip = unsafe { caller.return_address() };
        if let Some(entry) = self.entries.slice().get_mut(index(ip, caller.sp)) {
            let mut words = [first; WORDS];
            for (to, from) in words.iter_mut().zip(inner) {
                *to = *from;
            }
            *entry = Familiar {
                ip,
                sp: caller.sp,
                bp: caller.bp,
                bp_mask: if needs_bp { usize::MAX } else { 0 },
                words,
                site,
                code,
                trust: TRUST,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_pointer_counts_only_where_frames_follow_from_it() {
        let stack = [0x1234_usize];
        let caller = |bp| Caller {
            sp: stack.as_ptr() as usize,
            bp,
        };
        let mut familiars = Familiars::new();
        for (needs_bp, found) in [(true, None), (false, Some(7))] {
            familiars.note(caller(1), 192, &[Word::always()], needs_bp, 7);
            assert_eq!(familiars.find(caller(2), 192), found);
            assert_eq!(familiars.find(caller(1), 192), Some(7));
        }
    }

    #[test]
    fn a_familiar_caller_is_looked_at_again_after_so_many_copies() {
        let stack = [0x1234_usize];
        let caller = Caller {
            sp: stack.as_ptr() as usize,
            bp: 0,
        };
        let mut familiars = Familiars::new();
        familiars.note(caller, 192, &[Word::always()], false, 7);
        let found = |familiars: &mut Familiars| familiars.find(caller, 192).is_some();
        assert_eq!(familiars.find(caller, 193), None);
        assert!((0..TRUST).all(|_| found(&mut familiars)));
        assert!(!found(&mut familiars));
    }
}
