//! The calling thread's stack: which part of it can be read, how much room there is below, and the cached
//! frames.
//!
//! Thread safety: a `Stack` belongs to a walker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arch;
use crate::sys;

/// Where the main thread's stack began.
static MAIN_STACK: AtomicU64 = AtomicU64::new(0);
/// The main thread's control block. It is on no stack: below it lie the program's mappings.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);
/// Whether each thread's stack has a guard page below it.
static HAVE_GUARDS: AtomicBool = AtomicBool::new(true);

/// Notes that threads' stacks may have other memory directly below.
pub fn trust_no_guard() {
    HAVE_GUARDS.store(false, Ordering::Relaxed);
}

pub fn start(main_stack: u64) {
    MAIN_STACK.store(main_stack, Ordering::Relaxed);
    note_thread();
}

/// If the recording begins in another thread, the main one is not known before its first call.
pub fn note_thread() {
    if MAIN_THREAD.load(Ordering::Relaxed) == 0 && sys::thread_id() == sys::process_id() {
        MAIN_THREAD.store(arch::thread_pointer() as u64, Ordering::Relaxed);
    }
}

/// The loader's first function has no unwinding information, but it has no caller; with musl that also holds for
/// those that call `main` and a thread's function.
pub fn is_first_frame(sp: u64) -> bool {
    const ROOM: u64 = if cfg!(target_env = "musl") { 256 } else { 16 };
    let is_below = |top: u64| (top.saturating_sub(ROOM)..=top).contains(&sp);
    #[cfg(target_env = "musl")]
    if is_below(arch::stack_top()) {
        return true;
    }
    is_below(MAIN_STACK.load(Ordering::Relaxed))
}

/// The part of the stack that may be read: from the start of the walk to the stack's base.
pub struct Stack {
    pub low: u64,
    pub high: u64,
    /// It is known to be readable from here up; for another stack than the two below, nowhere.
    known: u64,
    /// Known to be readable from here up: the thread's own stack, unless it is the main one, and the main
    /// one.
    own: Range,
    main: Range,
    /// The thread's own stack has room down to here.
    room_low: u64,
    /// Another stack, a coroutine's or a signal's, which is probed while it is read.
    pub foreign: bool,
}

#[derive(Clone, Copy)]
struct Range {
    low: u64,
    high: u64,
}

const PAGE: u64 = 4096;
/// Stack that the recorder's work may take: the unwinder's tables take up to 13 KiB, compression less;
/// twice that.
const WORK_BYTES: u64 = 40 << 10;
/// A stack that reaches further than this below the known part is probed while it is read.
const PROBE_AT_ONCE: u64 = 64 << 20;

impl Stack {
    pub const fn new() -> Self {
        let none = Range { low: 0, high: 0 };
        Stack {
            low: 0,
            high: 0,
            known: 0,
            own: none,
            main: none,
            room_low: u64::MAX,
            foreign: true,
        }
    }

    #[inline]
    pub fn has_room(&mut self, sp: u64) -> bool {
        self.prepare(sp);
        let low = sp.saturating_sub(WORK_BYTES);
        // The main stack grows when it is accessed.
        let grows = sp >= self.own.high;
        !self.foreign && (grows || low >= self.room_low || self.find_room(sp, low))
    }

    #[cold]
    fn find_room(&mut self, sp: u64, low: u64) -> bool {
        if !HAVE_GUARDS.load(Ordering::Relaxed) {
            return false;
        }
        let mut at = low & !(PAGE - 1);
        let found = at;
        while at < sp {
            if !sys::readable(at) {
                return false;
            }
            at += PAGE;
        }
        self.room_low = found;
        true
    }

    /// Prepares to read from `sp` upwards.
    #[inline]
    pub fn prepare(&mut self, sp: u64) {
        if (self.known..self.high).contains(&sp) {
            self.low = sp;
            return;
        }
        self.change(sp);
    }

    /// The same for code that a signal interrupted. The word that it popped last counts as saved, in the red
    /// zone.
    pub fn prepare_interrupted(&mut self, sp: u64) {
        const RED_ZONE: u64 = 128;
        self.prepare(sp);
        let Some(low) = sp.checked_sub(RED_ZONE) else {
            return;
        };
        if low >= self.known || [low, sp - 1].into_iter().all(sys::readable) {
            self.low = low;
        }
    }

    #[cold]
    fn change(&mut self, sp: u64) {
        for range in [self.own, self.main] {
            if (range.low..range.high).contains(&sp) {
                self.enter(sp, range);
                return;
            }
        }
        self.find(sp);
    }

    #[cold]
    fn find(&mut self, sp: u64) {
        if self.main.high == 0 {
            let thread = arch::thread_pointer() as u64;
            let main = MAIN_STACK.load(Ordering::Relaxed);
            if thread != MAIN_THREAD.load(Ordering::Relaxed) {
                self.own = Range {
                    low: thread,
                    high: thread,
                };
            }
            self.main = Range {
                low: main,
                high: main,
            };
        }
        let page = sp & !(PAGE - 1);
        let range = if sp < self.own.high {
            &mut self.own
        } else {
            &mut self.main
        };
        if page < range.low && range.low - page <= PROBE_AT_ONCE {
            let mut at = page;
            while at < range.low && sys::readable(at) {
                at += PAGE;
            }
            if at >= range.low {
                range.low = page;
                let range = *range;
                self.enter(sp, range);
                return;
            }
        }
        (self.low, self.high, self.known, self.foreign) = (sp, sp, u64::MAX, true);
    }

    fn enter(&mut self, sp: u64, range: Range) {
        (self.low, self.high, self.known, self.foreign) = (sp, range.high, range.low, false);
    }

    #[inline]
    pub fn read(&mut self, address: u64) -> Result<u64, ()> {
        // One comparison: below `low` the difference wraps around.
        if address.wrapping_sub(self.low) >= (self.high - self.low).saturating_sub(7) {
            self.reach(address)?;
        }
        // SAFETY: within the part of the stack that is known to be readable.
        Ok(unsafe { (address as *const u64).read_unaligned() })
    }

    /// Extends a foreign stack up to an address, page by page.
    #[cold]
    fn reach(&mut self, address: u64) -> Result<(), ()> {
        if !self.foreign || address < self.low || address - self.low > PROBE_AT_ONCE {
            return Err(());
        }
        let end = (address + 8).next_multiple_of(PAGE);
        while self.high < end {
            if !sys::readable(self.high) {
                return Err(());
            }
            self.high = (self.high & !(PAGE - 1)) + PAGE;
        }
        Ok(())
    }

    /// The first word that has changed. `foreign`: some may lie on another stack.
    #[inline(always)]
    pub fn first_changed(&mut self, words: &[Word], foreign: bool) -> Option<usize> {
        if foreign || self.foreign {
            return words.iter().position(|&word| !self.holds(word));
        }
        // SAFETY: the words lie on this thread's stack or the main one, which stay.
        unsafe {
            let (fours, rest) = words.as_chunks::<4>();
            let whole = fours
                .iter()
                .take_while(|four| Word::four_hold(four))
                .count();
            let part = fours.get(whole).map_or(rest, |four| four.as_slice());
            let held = part.iter().take_while(|word| word.still_holds()).count();
            let at = 4 * whole + held;
            (at < words.len()).then_some(at)
        }
    }

    /// Whether a word is unchanged.
    pub fn holds(&mut self, word: Word) -> bool {
        if word.address == &raw const ZERO as u64 {
            return word.value == ZERO;
        }
        self.read(word.address) == Ok(word.value)
    }
}

#[derive(Clone, Copy)]
pub struct Frame {
    /// Where the frame continues, after its call or where a signal interrupted it, in the trace's form: twice
    /// the address, plus 1 if interrupted.
    pub packed: u64,
    pub sp: u64,
    pub bp: u64,
    /// The stream's number of the stack that ends here.
    pub node: u32,
    /// Twice the number of words from which the frames from here outwards follow, plus 1 if they follow from
    /// `bp`, too.
    pub follows: u32,
}

const _: () = assert!(size_of::<Frame>() == 32);

impl Frame {
    pub fn new(packed: u64, sp: u64, bp: u64) -> Frame {
        Frame {
            packed,
            sp,
            bp,
            node: 0,
            follows: 0,
        }
    }

    pub fn ip(&self) -> u64 {
        self.packed >> 1
    }

    pub fn is_interrupted(&self) -> bool {
        self.packed & 1 != 0
    }

    /// Whether the outer frames are the same if their words are.
    #[inline(always)]
    pub fn is(&self, other: &Frame) -> bool {
        self.sp == other.sp
            && self.packed == other.packed
            && (!self.needs_bp() || self.bp == other.bp)
    }

    #[inline(always)]
    pub fn needs_bp(&self) -> bool {
        self.follows & 1 != 0
    }

    /// The end, in the stack's words, outermost first, of the words of the frames from here outwards.
    #[inline(always)]
    pub fn words_end(&self) -> usize {
        (self.follows >> 1) as usize
    }
}

/// A word of memory, and its value.
#[derive(Clone, Copy)]
pub struct Word {
    pub address: u64,
    pub value: u64,
}

static ZERO: u64 = 0;

impl Word {
    /// Always holds.
    pub fn always() -> Word {
        Word {
            address: &raw const ZERO as u64,
            value: 0,
        }
    }

    /// Never holds.
    pub fn never() -> Word {
        Word {
            value: 1,
            ..Word::always()
        }
    }

    /// The same as `Stack::holds` without a check of where the word lies.
    ///
    /// # Safety
    /// It can be read.
    #[inline(always)]
    unsafe fn still_holds(self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.difference() == 0 }
    }

    #[inline(always)]
    unsafe fn difference(self) -> u64 {
        // SAFETY: as for `still_holds`.
        unsafe { (self.address as *const u64).read_unaligned() ^ self.value }
    }

    /// Whether all are unchanged.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    pub unsafe fn all_hold(words: &[Word]) -> bool {
        let (fours, rest) = words.as_chunks::<4>();
        // SAFETY: the caller's promise.
        unsafe {
            fours.iter().all(|four| Word::four_hold(four))
                && rest.iter().all(|word| word.still_holds())
        }
    }

    /// The same for four, without a branch.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    pub unsafe fn four_hold([a, b, c, d]: &[Word; 4]) -> bool {
        // SAFETY: the caller's promise.
        unsafe { a.difference() | b.difference() | c.difference() | d.difference() == 0 }
    }
}
