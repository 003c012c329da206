//! Walks the calling thread's stack, and keeps the last one to walk only what changed.
//!
//! A frame's caller follows from the frame's three registers and the words of memory that the
//! unwinder read for it. So if a frame of the last stack has the registers it had, and the words its
//! step had read hold what they held, then the step leads where it led: checking that costs two
//! loads a frame, and is exact.
//!
//! Thread safety: a `Walker` belongs to a stream. Nothing is allocated while walking, except that
//! the arrays of frames grow.

use std::sync::atomic::{AtomicU64, Ordering};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _};

use crate::arch::{self, Caller};
use crate::map::Snapshot;
use crate::memory::Pages;
use crate::sys;

#[derive(Clone, Copy)]
pub struct Frame {
    /// Where the frame goes on: after its call, or where a signal interrupted it.
    pub ip: u64,
    sp: u64,
    bp: u64,
    /// What was read to find this frame's caller.
    reads: [(u64, u64); 2],
    /// The stream's number of the stack that ends here.
    pub node: u32,
    read_count: u8,
    pub interrupted: bool,
}

impl Frame {
    /// As the trace has it.
    pub fn packed(&self) -> u64 {
        (self.ip << 1) | u64::from(self.interrupted)
    }
}

/// More than two reads, or a signal's frame: such a step is always taken again.
const UNVERIFIABLE: u8 = 3;

/// Deeper stacks are cut, and counted as such.
const MAX_FRAMES: usize = 1 << 16;

/// The unwinder's cache has 509 places, too few for a large program.
const CACHES: usize = 1 << CACHE_BITS;
const CACHE_BITS: u32 = 4;

type Cache = CacheX86_64<MustNotAllocateDuringUnwind>;

pub struct Walker {
    /// The last stack, outermost frame first.
    frames: Pages<Frame>,
    len: usize,
    complete: bool,
    /// What the walk under way found, innermost first.
    fresh: Pages<Frame>,
    fresh_len: usize,
    caches: Option<Box<[Cache; CACHES]>>,
    stack: Stack,
}

/// Where a walk's stack lies in `Walker::last`.
pub struct Walked {
    /// This many outermost frames are as they were, numbers included.
    pub kept: usize,
    pub complete: bool,
}

/// The address of the signal trampoline, where a handler returns to.
static TRAMPOLINE: AtomicU64 = AtomicU64::new(0);

/// What a function that `makecontext` set up returns to.
static CONTEXT_ROOT: AtomicU64 = AtomicU64::new(0);

/// Where the main thread's stack began.
static MAIN_STACK: AtomicU64 = AtomicU64::new(0);

/// Learns what does not change while the program runs.
pub fn start(main_stack: u64) {
    MAIN_STACK.store(main_stack, Ordering::Relaxed);
    learn_trampoline();
    learn_context_root();
}

fn learn_context_root() {
    extern "C" fn never() {}
    let mut stack = [0usize; 128];
    // SAFETY: the context is set up on a stack of its own, and never entered.
    let address = unsafe {
        let mut context: libc::ucontext_t = std::mem::zeroed();
        if libc::getcontext(&mut context) != 0 {
            return;
        }
        context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        context.uc_stack.ss_size = size_of_val(&stack);
        context.uc_link = std::ptr::null_mut();
        libc::makecontext(&mut context, never, 0);
        let top = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        let range = stack.as_ptr_range();
        let inside = (range.start as usize..range.end as usize - 8).contains(&top);
        if inside {
            (top as *const u64).read()
        } else {
            0
        }
    };
    if address != 0 {
        CONTEXT_ROOT.store(address, Ordering::Relaxed);
    }
}

fn learn_trampoline() {
    // libc tells the kernel its trampoline with every action. SIGURG is ignored by default, so
    // ignoring it for a moment changes nothing.
    // SAFETY: the action set at the end is the one found at the beginning.
    unsafe {
        let Ok(old) = sys::signal_action(libc::SIGURG, None) else {
            return;
        };
        if old.restorer == 0 && old.handler == libc::SIG_DFL {
            let mut ignore: libc::sigaction = std::mem::zeroed();
            ignore.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(libc::SIGURG, &ignore, std::ptr::null_mut());
            if let Ok(now) = sys::signal_action(libc::SIGURG, Some(&old)) {
                TRAMPOLINE.store(now.restorer as u64, Ordering::Relaxed);
            }
        } else {
            TRAMPOLINE.store(old.restorer as u64, Ordering::Relaxed);
        }
    }
}

impl Walker {
    pub const fn new() -> Self {
        Walker {
            frames: Pages::empty(),
            len: 0,
            complete: false,
            fresh: Pages::empty(),
            fresh_len: 0,
            caches: None,
            stack: Stack::new(),
        }
    }

    /// Begins with a new thread.
    pub fn forget(&mut self) {
        self.len = 0;
        self.stack = Stack::new();
    }

    /// Makes room for the rules, unless there is.
    pub fn learn_rules(&mut self) {
        if self.caches.is_none() {
            self.forget_rules();
        }
    }

    /// Begins with another module map: the rules that were learnt may not hold.
    pub fn forget_rules(&mut self) {
        self.len = 0;
        self.caches = Some(Box::new(std::array::from_fn(|_| Cache::new_in())));
    }

    pub fn release(&mut self) {
        self.frames.release();
        self.fresh.release();
    }

    /// The last stack, outermost first; the numbers of the frames behind `kept` are the caller's to
    /// set.
    pub fn last(&mut self) -> &mut [Frame] {
        let len = self.len;
        self.frames.slice().get_mut(..len).unwrap_or(&mut [])
    }

    /// Whether the thread's stack has room for the recorder's own work below `sp`. A stack that is not
    /// libc's may be tiny, and what lies below it anybody's.
    #[inline]
    pub fn has_room(&mut self, sp: usize) -> bool {
        self.stack.has_room(sp as u64)
    }

    /// Drops the last stack, so that the next walk is a whole one.
    pub fn drop_last(&mut self) {
        self.len = 0;
    }

    /// Walks from a hook's caller; afterwards `last` is this stack. `None` without memory.
    pub fn walk(&mut self, map: &Snapshot, caller: Caller) -> Option<Walked> {
        let sp = caller.sp as u64;
        self.stack.prepare(sp);
        // SAFETY: the hook's return address.
        let ip = unsafe { (caller.sp as *const u64).read() };
        let mut at = Frame {
            ip,
            sp: sp + 8,
            bp: caller.bp as u64,
            reads: [(0, 0); 2],
            node: 0,
            read_count: UNVERIFIABLE,
            interrupted: false,
        };
        self.fresh_len = 0;
        let mut old = self.len;
        let (kept, complete) = loop {
            match self.join(&at, &mut old) {
                Join::Whole(kept) => break (kept, self.complete),
                Join::From(frame) => at = frame,
                Join::None => {}
            }
            if self.fresh_len + old >= MAX_FRAMES {
                self.push(at)?;
                break (0, false);
            }
            let (next, complete) = self.step(map, &mut at);
            self.push(at)?;
            match next {
                Some(next) => at = next,
                None => break (0, complete),
            }
        };
        self.adopt(kept)?;
        self.complete = complete;
        Some(Walked { kept, complete })
    }

    fn push(&mut self, frame: Frame) -> Option<()> {
        let wanted = self.fresh_len + 1;
        if wanted > self.fresh.capacity() && !self.fresh.grow(wanted.next_power_of_two().max(64)) {
            return None;
        }
        *self.fresh.slice().get_mut(self.fresh_len)? = frame;
        self.fresh_len += 1;
        Some(())
    }

    /// Puts the fresh frames on top of the kept ones.
    fn adopt(&mut self, kept: usize) -> Option<()> {
        let len = kept + self.fresh_len;
        if len > self.frames.capacity() && !self.frames.grow(len.next_power_of_two().max(64)) {
            self.len = 0;
            return None;
        }
        let fresh = self.fresh.slice().get(..self.fresh_len)?;
        let frames = self.frames.slice().get_mut(kept..len)?;
        for (to, from) in frames.iter_mut().zip(fresh.iter().rev()) {
            *to = *from;
        }
        self.len = len;
        Some(())
    }

    /// Whether the last stack has this frame, and if so from where on it still holds. `old` counts
    /// the frames of the last stack that are at or above the frame's place.
    #[inline]
    fn join(&mut self, at: &Frame, old: &mut usize) -> Join {
        let frames = self.frames.slice();
        while *old > 0 && frames[*old - 1].sp < at.sp {
            *old -= 1;
        }
        if *old == 0 {
            return Join::None;
        }
        let met = &frames[*old - 1];
        if met.sp != at.sp
            || met.ip != at.ip
            || met.bp != at.bp
            || met.interrupted != at.interrupted
        {
            return Join::None;
        }
        let top = *old;
        let window = self.stack.window();
        let held = |frame: &&Frame| window.holds(frame);
        let mut number = top - frames[..top].iter().rev().take_while(held).count();
        if self.stack.foreign {
            // What lies beyond the window may be readable all the same.
            while number > 0 && self.stack.holds(&frames[number - 1]) {
                number -= 1;
            }
        }
        if number == 0 {
            return Join::Whole(top);
        }
        // The frames from here inwards are known; the step out of this one is to be taken again.
        let again = number - 1;
        let wanted = self.fresh_len + top - number;
        if !self.fresh.grow(wanted.next_power_of_two().max(64)) {
            *old = 0;
            return Join::None;
        }
        let fresh = &mut self.fresh.slice()[self.fresh_len..wanted];
        for (to, from) in fresh.iter_mut().zip(frames[number..top].iter().rev()) {
            *to = *from;
        }
        self.fresh_len = wanted;
        *old = again;
        Join::From(frames[again])
    }

    /// The caller of a frame, and, if there is none, whether the stack properly ends here.
    fn step(&mut self, map: &Snapshot, at: &mut Frame) -> (Option<Frame>, bool) {
        if at.ip == TRAMPOLINE.load(Ordering::Relaxed) && at.ip != 0 {
            return (self.step_over_signal(at), false);
        }
        if at.ip == CONTEXT_ROOT.load(Ordering::Relaxed) && at.ip != 0 {
            at.read_count = 0;
            return (None, true);
        }
        let address = if at.interrupted {
            FrameAddress::from_instruction_pointer(at.ip)
        } else {
            match FrameAddress::from_return_address(at.ip) {
                Some(address) => address,
                None => return (None, false),
            }
        };
        let Some(caches) = &mut self.caches else {
            return (None, false);
        };
        let cache =
            &mut caches[(at.ip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CACHE_BITS)) as usize];
        let mut registers = UnwindRegsX86_64::new(at.ip, at.sp, at.bp);
        let mut reads = [(0, 0); 2];
        let mut count = 0;
        let stack = &mut self.stack;
        let mut read = |address: u64| {
            let value = stack.read(address)?;
            if let Some(place) = reads.get_mut(count) {
                *place = (address, value);
            }
            count += 1;
            Ok(value)
        };
        let result = map
            .unwinder
            .unwind_frame(address, &mut registers, cache, &mut read);
        at.reads = reads;
        at.read_count = if count <= 2 {
            count as u8
        } else {
            UNVERIFIABLE
        };
        match result {
            Ok(Some(ip)) if registers.sp() > at.sp => {
                let next = Frame {
                    ip,
                    sp: registers.sp(),
                    bp: registers.bp(),
                    reads: [(0, 0); 2],
                    node: 0,
                    read_count: UNVERIFIABLE,
                    interrupted: false,
                };
                (Some(next), false)
            }
            Ok(None) if map.covers(at.ip) => (None, true),
            _ => (None, is_first_frame(at)),
        }
    }

    fn step_over_signal(&mut self, at: &mut Frame) -> Option<Frame> {
        at.read_count = UNVERIFIABLE;
        let stack = &mut self.stack;
        let registers = arch::interrupted(at.sp, &mut |address| stack.read(address))?;
        if !(self.stack.low..self.stack.high).contains(&registers.sp) {
            // The handler ran on a stack of its own, which may lie anywhere.
            self.stack.prepare(registers.sp);
        }
        Some(Frame {
            ip: registers.ip,
            sp: registers.sp,
            bp: registers.bp,
            reads: [(0, 0); 2],
            node: 0,
            read_count: UNVERIFIABLE,
            interrupted: true,
        })
    }
}

/// The loader's first function has no unwinding information, but nothing can lie above it.
fn is_first_frame(at: &Frame) -> bool {
    const ROOM: u64 = 16;
    let main = MAIN_STACK.load(Ordering::Relaxed);
    (main.saturating_sub(ROOM)..=main).contains(&at.sp)
}

enum Join {
    None,
    /// This many outermost frames of the last stack hold.
    Whole(usize),
    /// The walk goes on from this frame of the last stack.
    From(Frame),
}

/// What may be read: the part of the stack from the walk's beginning to where the stack began.
struct Stack {
    low: u64,
    high: u64,
    /// Known to be readable, down to here: of the thread's own stack, and of the main one.
    own: Range,
    main: Range,
    /// There is room to work down to here on the thread's own stack.
    room_low: u64,
    /// Neither of them: a coroutine's or a signal's stack, probed as it is read.
    foreign: bool,
}

#[derive(Clone, Copy)]
struct Range {
    low: u64,
    high: u64,
}

const PAGE: u64 = 4096;
/// What the recorder's work may take of a stack: the unwinder's tables are 13 KiB at most, compression
/// less, and there is as much to spare.
const WORK_BYTES: u64 = 40 << 10;
/// A stack that is deeper than this below what is known is probed as it is read.
const PROBE_AT_ONCE: u64 = 64 << 20;

impl Stack {
    const fn new() -> Self {
        let none = Range { low: 0, high: 0 };
        Stack {
            low: 0,
            high: 0,
            own: none,
            main: none,
            room_low: u64::MAX,
            foreign: true,
        }
    }

    #[inline]
    fn has_room(&mut self, sp: u64) -> bool {
        self.prepare(sp);
        let low = sp.saturating_sub(WORK_BYTES);
        !self.foreign && (low >= self.room_low || self.find_room(sp, low))
    }

    #[cold]
    fn find_room(&mut self, sp: u64, low: u64) -> bool {
        if sp >= self.own.high {
            return true; // The main stack grows as it is touched.
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

    /// Makes ready to read from `sp` upwards.
    #[inline]
    fn prepare(&mut self, sp: u64) {
        for range in [self.own, self.main] {
            if (range.low..range.high).contains(&sp) {
                (self.low, self.high, self.foreign) = (sp, range.high, false);
                return;
            }
        }
        self.find(sp);
    }

    #[cold]
    fn find(&mut self, sp: u64) {
        if self.own.high == 0 {
            let own = arch::thread_pointer() as u64;
            let main = MAIN_STACK.load(Ordering::Relaxed);
            self.own = Range {
                low: own,
                high: own,
            };
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
                (self.low, self.high, self.foreign) = (sp, range.high, false);
                return;
            }
        }
        (self.low, self.high, self.foreign) = (sp, sp, true);
    }

    #[inline]
    fn read(&mut self, address: u64) -> Result<u64, ()> {
        let window = self.window();
        if address.wrapping_sub(window.low) >= window.words {
            self.reach(address)?;
        }
        // SAFETY: within what is known to be readable of a stack below the walk's frames.
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

    /// Whether the words that a step had read are still what they were.
    fn holds(&mut self, frame: &Frame) -> bool {
        let reads = frame.reads.into_iter().take(usize::from(frame.read_count));
        frame.read_count != UNVERIFIABLE
            && reads
                .into_iter()
                .all(|(address, value)| self.read(address) == Ok(value))
    }

    /// What can be read without another look.
    #[inline]
    fn window(&self) -> Window {
        Window {
            low: self.low,
            words: (self.high - self.low).saturating_sub(7),
        }
    }
}

/// Addresses of readable words, `words` of them from `low` on.
#[derive(Clone, Copy)]
struct Window {
    low: u64,
    words: u64,
}

impl Window {
    /// As `Stack::holds`, but false for what lies outside.
    #[inline(always)]
    fn holds(self, frame: &Frame) -> bool {
        match (frame.read_count, frame.reads) {
            (1, [first, _]) => self.still(first),
            (2, [first, second]) => self.still(first) && self.still(second),
            (count, _) => count == 0,
        }
    }

    #[inline(always)]
    fn still(self, (address, value): (u64, u64)) -> bool {
        // As one comparison: below `low` the difference wraps around.
        // SAFETY: a word inside of the window, see `Stack::read`.
        address.wrapping_sub(self.low) < self.words
            && unsafe { (address as *const u64).read_unaligned() } == value
    }
}
