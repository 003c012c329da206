//! Walks the calling thread's stack, and caches the last one, to walk only what changed.
//!
//! A frame's caller = f(three registers, the words that the unwinder read for the step). So if a frame of
//! the last stack has the same registers, and the words are the same, its caller is the same: that is
//! exact, and costs two loads a frame. Other frames are walked by the rules that were learnt from the
//! unwinder (`rules`), or by the unwinder.
//!
//! Thread safety: a `Walker` belongs to a stream. Nothing is allocated while walking, except that
//! the arrays of frames grow.

use std::sync::atomic::{AtomicU64, Ordering};

use framehop::FrameAddress;

use crate::arch::{self, Caller};
use crate::hash;
use crate::map::Snapshot;
use crate::memory::Pages;
use crate::recent::{self, Recents};
use crate::registers::{self, Registers};
use crate::rules::{Cache, Rule, Rules};
use crate::stack::{self, Frame, Stack, Word};
use crate::sys;

impl Caller {
    fn frame(self) -> Frame {
        // SAFETY: a hook's caller.
        let ip = unsafe { self.return_address() } as u64;
        Frame::new(
            ip << 1,
            (self.sp + arch::ENTRY_BYTES) as u64,
            self.bp as u64,
        )
    }
}

/// A frame that is not in the last stack, and what its caller was computed from.
#[derive(Clone, Copy)]
struct Fresh {
    frame: Frame,
    step: Step,
}

#[derive(Clone, Copy)]
struct Step {
    /// The caller's return address, and where its frame pointer was saved.
    words: [Word; 2],
    /// `None`: it was not found by a rule.
    rule: Option<Rule>,
}

/// Deeper stacks are cut off, and counted as truncated.
const MAX_FRAMES: usize = 1 << 16;

/// The unwinder's cache has 509 entries in 12 KiB, for each thread. A large program needs more.
const CACHES: usize = 1 << CACHE_BITS;
const CACHE_BITS: u32 = 2;

pub struct Walker {
    /// The last stack, outermost frame first.
    frames: Pages<Frame>,
    /// The words that it was read from, in the same order.
    words: Pages<Word>,
    len: usize,
    complete: bool,
    /// Whether one of these words is on a stack that may be unmapped by now.
    foreign: bool,
    /// The frames of the current walk, innermost first.
    fresh: Pages<Fresh>,
    recents: Recents,
    /// The index in them of the current call.
    key: u64,
    steps: Steps,
}

/// How to get from a frame to its caller.
struct Steps {
    caches: Option<Box<[Cache; CACHES]>>,
    rules: Rules,
    stack: Stack,
}

/// Where a walk's stack lies in `Walker::last`.
pub struct Walked {
    /// This many outermost frames are unchanged, numbers included.
    pub kept: usize,
    pub complete: bool,
}

/// The address of the signal trampoline, to which a handler returns.
static TRAMPOLINE: AtomicU64 = AtomicU64::new(0);

/// The return address of a function that `makecontext` has set up.
static CONTEXT_ROOT: AtomicU64 = AtomicU64::new(0);

/// Determines what does not change while the program runs.
pub fn start(main_stack: u64) {
    stack::start(main_stack);
    learn_trampoline();
    #[cfg(target_env = "gnu")]
    learn_context_root();
}

/// musl has no `makecontext`.
#[cfg(target_env = "gnu")]
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
        arch::context_root(&context, &stack)
    };
    if address != 0 {
        CONTEXT_ROOT.store(address, Ordering::Relaxed);
    }
}

fn learn_trampoline() {
    // libc passes its trampoline to the kernel with every action. SIGURG is ignored by default, so ignoring
    // it for a moment has no effect.
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
            words: Pages::empty(),
            len: 0,
            complete: false,
            foreign: false,
            fresh: Pages::empty(),
            recents: Recents::new(),
            key: 0,
            steps: Steps {
                caches: None,
                rules: Rules::new(),
                stack: Stack::new(),
            },
        }
    }

    /// Resets the walker for a new thread.
    pub fn forget(&mut self) {
        self.len = 0;
        self.steps.stack = Stack::new();
    }

    /// Makes room for the rules, if there is none.
    pub fn learn_rules(&mut self) {
        if self.steps.caches.is_none() {
            self.forget_rules();
        }
    }

    /// Resets the rules for another module map.
    pub fn forget_rules(&mut self) {
        self.len = 0;
        self.recents.forget();
        self.steps.rules.forget();
        self.steps.caches = Some(Box::new(std::array::from_fn(|_| Cache::new_in())));
    }

    pub fn release(&mut self) {
        self.frames.release();
        self.words.release();
        self.fresh.release();
        self.recents.forget();
        self.steps.rules.forget();
    }

    /// The same by the thread that used it: what lies in the heap, too.
    pub fn end(&mut self) {
        self.release();
        self.steps.caches = None;
        self.len = 0;
    }

    /// The last stack, outermost first; the caller sets the numbers of the frames behind `kept`.
    pub fn last(&mut self) -> &mut [Frame] {
        let len = self.len;
        self.frames.slice().get_mut(..len).unwrap_or(&mut [])
    }

    /// Whether the thread's stack has room for the recorder's own work below `sp`. A stack that is not libc's
    /// may be tiny, with other memory below.
    #[inline]
    pub fn has_room(&mut self, sp: usize) -> bool {
        self.steps.stack.has_room(sp as u64)
    }

    /// Drops the last stack, so that the next walk is a full one.
    pub fn drop_last(&mut self) {
        self.len = 0;
    }

    /// The number of the stack that a hook was called from, and whether it is complete, if it is one of the
    /// recent ones. Does not change the last stack.
    #[inline(always)]
    pub fn recall(&mut self, caller: Caller) -> Option<(u32, bool)> {
        let stack = &mut self.steps.stack;
        if self.foreign || stack.foreign {
            return None;
        }
        let at = caller.frame();
        self.key = self.steps.key(at);
        let last = self.frames.slice().get(..self.len)?;
        // SAFETY: the stack was prepared for this caller.
        let found = unsafe {
            self.recents
                .find(self.key, &at, last, self.steps.stack.high)
        };
        let (node, outer) = found?;
        let words = self.words.slice().get(..outer.words_end())?;
        // SAFETY: they lie on this thread's stack or the main one, which stay.
        let held = unsafe { Word::all_hold(words) };
        held.then_some((node, self.complete))
    }

    /// The words from which the innermost frames of the last recent stack follow, the innermost frame's last,
    /// and whether they follow from the frame pointer, too.
    pub fn inner(&self) -> Option<(&[Word], bool)> {
        match self.foreign || self.steps.stack.foreign {
            true => None,
            false => self.recents.inner(self.key),
        }
    }

    /// Notes the last stack as a recent one.
    #[inline]
    pub fn remember(&mut self) -> Option<()> {
        if self.foreign {
            return None;
        }
        let (inner, outer) = self.frames.slice().get(..self.len)?.split_last()?;
        let end = inner.words_end();
        let words = self.words.slice();
        let beyond = |frame: &Frame| end - frame.words_end() > recent::WORDS;
        let at = outer.iter().rposition(beyond).map_or(0, |at| at + 1);
        let frame = outer.get(at)?;
        let words = words.get(frame.words_end()..end)?;
        self.recents.note(self.key, inner, words, at, frame);
        Some(())
    }

    /// Walks from a hook's caller. Afterwards `last` is this stack. `None` without memory.
    pub fn walk(&mut self, map: &Snapshot, caller: Caller) -> Option<Walked> {
        let sp = caller.sp as u64;
        if self.steps.stack.low != sp {
            self.steps.stack.prepare(sp);
        }
        self.walk_from(map, caller.frame(), None)
    }

    /// The same from where a signal interrupted the thread.
    pub fn walk_interrupted(&mut self, map: &Snapshot, registers: Registers) -> Option<Walked> {
        let (ip, sp, bp) = (registers.ip()?, registers.sp()?, registers.bp()?);
        self.steps.stack.prepare_interrupted(sp);
        self.walk_from(map, Frame::new((ip << 1) | 1, sp, bp), Some(registers))
    }

    /// Takes frames, outermost first and in the trace's form, for the last stack; the next walk is a full one.
    pub fn replay(&mut self, packed: impl ExactSizeIterator<Item = u64>) -> Option<()> {
        self.len = 0;
        let len = packed.len();
        if !self.frames.grow_to(len, len.next_power_of_two().max(64)) {
            return None;
        }
        for (place, packed) in self.frames.slice().iter_mut().zip(packed) {
            *place = Frame::new(packed, 0, 0);
        }
        self.len = len;
        Some(())
    }

    /// The same, where the last stack was made so, too: returns how many outermost frames are the last one's, numbers
    /// included.
    pub fn replay_onto_last(&mut self, packed: &[u64]) -> Option<usize> {
        let last = self.frames.slice().get(..self.len)?.iter();
        let same = last
            .zip(packed)
            .take_while(|(frame, packed)| frame.packed == **packed);
        let kept = same.count();
        self.len = 0;
        let len = packed.len();
        if !self.frames.grow_to(len, len.next_power_of_two().max(64)) {
            return None;
        }
        let places = self.frames.slice().iter_mut().zip(packed);
        for (place, packed) in places.skip(kept) {
            *place = Frame::new(*packed, 0, 0);
        }
        self.len = len;
        Some(kept)
    }

    #[inline]
    fn walk_from(
        &mut self,
        map: &Snapshot,
        mut at: Frame,
        mut interrupted: Option<Registers>,
    ) -> Option<Walked> {
        let (fresh, steps) = (&mut self.fresh, &mut self.steps);
        let mut count = 0;
        let mut foreign = false;
        // The part of the last stack that may be unchanged.
        let mut old = self.frames.slice().get(..self.len)?;
        let (kept, complete) = loop {
            while let [outer @ .., frame] = old
                && frame.sp < at.sp
            {
                old = outer;
            }
            if let Some(frame) = old.last()
                && frame.is(&at)
            {
                let words = self.words.slice().get(..frame.words_end())?;
                match steps.stack.first_changed(words, self.foreign) {
                    None => {
                        foreign |= self.foreign;
                        break (old.len(), self.complete);
                    }
                    Some(word) => {
                        let outer = old.partition_point(|frame| frame.words_end() <= word);
                        old = &old[..outer];
                    }
                }
            }
            let (step, next, complete) = match steps.by_rule(&at) {
                Some((step, next)) => (step, Some(next), false),
                None => steps.by_unwinder(map, &at, &mut interrupted),
            };
            foreign |= steps.stack.foreign;
            if count >= fresh.capacity() && !fresh.grow((2 * count).max(64)) {
                return None;
            }
            *fresh.slice().get_mut(count)? = Fresh { frame: at, step };
            count += 1;
            match next {
                Some(next) if count + old.len() < MAX_FRAMES => at = next,
                Some(_) => break (0, false),
                None => break (0, complete),
            }
        };
        self.foreign = foreign;
        self.complete = complete;
        self.adopt(kept, count)?;
        Some(Walked { kept, complete })
    }

    /// Appends the fresh frames to the kept ones.
    fn adopt(&mut self, kept: usize, count: usize) -> Option<()> {
        self.len = 0;
        let len = kept + count;
        let room = len.next_power_of_two().max(64);
        if !self.frames.grow_to(len, room) || !self.words.grow_to(2 * len, 2 * room) {
            return None;
        }
        let (frames, words) = (self.frames.slice(), self.words.slice());
        let outer = frames.get(..kept)?.last();
        let mut end = outer.map_or(0, |frame| frame.words_end());
        let mut needs_bp = outer.is_some_and(|frame| frame.needs_bp());
        let fresh = self.fresh.slice().get(..count)?;
        for (to, from) in frames
            .get_mut(kept..len)?
            .iter_mut()
            .zip(fresh.iter().rev())
        {
            // The frame pointer's place does not matter if no step used it.
            let (both, needs) = match from.step.rule {
                Some(rule) => (
                    rule.restores_bp && needs_bp,
                    rule.from_bp || (!rule.restores_bp && needs_bp),
                ),
                None => (true, true),
            };
            needs_bp = needs;
            words
                .get_mut(end..end + 2)?
                .copy_from_slice(&from.step.words);
            end += 1 + usize::from(both);
            *to = Frame {
                follows: (2 * end) as u32 | u32::from(needs_bp),
                ..from.frame
            };
        }
        self.len = len;
        Some(())
    }
}

impl Steps {
    /// A hash of the innermost frames.
    #[inline(always)]
    fn key(&self, at: Frame) -> u64 {
        let mix = |key: u64, frame: Frame| hash::spread(key ^ frame.packed);
        let mut key = mix(at.sp.rotate_left(32), at);
        if let Some((_, next)) = self.by_rule(&at) {
            key = mix(key, next);
            if let Some((_, next)) = self.by_rule(&next) {
                key = mix(key, next);
            }
        }
        key
    }

    /// The step to a frame's caller; if there is none, whether the stack is complete. `interrupted`: the
    /// registers at the last signal frame of this walk.
    fn by_unwinder(
        &mut self,
        map: &Snapshot,
        at: &Frame,
        interrupted: &mut Option<Registers>,
    ) -> (Step, Option<Frame>, bool) {
        let end = Word::always();
        let never = Step {
            words: [Word::never(); 2],
            rule: None,
        };
        let ip = at.ip();
        let ours = arch::signal_return as *const () as u64;
        if ip == ours
            || ip == TRAMPOLINE.load(Ordering::Relaxed) && ip != 0
            || arch::is_signal_return(ip, || map.covers(ip) || sys::readable(ip))
        {
            return (never, self.over_signal(at, interrupted), false);
        }
        let last = Step {
            words: [end; 2],
            ..never
        };
        if ip == CONTEXT_ROOT.load(Ordering::Relaxed) && ip != 0 {
            return (last, None, true);
        }
        let address = if at.is_interrupted() {
            Some(FrameAddress::from_instruction_pointer(ip))
        } else {
            FrameAddress::from_return_address(ip)
        };
        let (Some(address), Some(caches)) = (address, &mut self.caches) else {
            return (never, None, false);
        };
        // Code that was not interrupted has made a call; of such code, only the loader's does.
        let is_loader = map.is_loader(ip);
        if at.is_interrupted() || is_loader {
            match registers::needed(map, address.address_for_lookup()) {
                Some(true) => return (never, self.by_registers(map, at, interrupted), false),
                Some(false) => {}
                // The unwinder would guess.
                None if is_loader => return (last, None, stack::is_first_frame(at.sp)),
                None => {}
            }
        }
        let cache = &mut caches[hash::top(ip, CACHE_BITS)];
        // The caller follows from a register that no frame has.
        let by_link = arch::HAS_LINK_REGISTER && at.is_interrupted();
        let mut registers = arch::unwind_registers(at, interrupted);
        let mut words = [end; 2];
        let mut count = 0;
        let stack = &mut self.stack;
        let mut read = |address: u64| {
            let value = stack.read(address)?;
            if let Some(place) = words.get_mut(count) {
                *place = Word { address, value };
            }
            count += 1;
            Ok(value)
        };
        let result = arch::unwind(map, address, &mut registers, cache, &mut read);
        // Memory below the frame may be unmapped when the frame is checked again.
        let again = words.iter().take(count).all(|word| word.address >= at.sp);
        let step = if count <= words.len() && again && !by_link {
            Step { words, rule: None }
        } else {
            never
        };
        match result {
            Ok(Some(ip)) if registers.sp() > at.sp || by_link && registers.sp() == at.sp => {
                if !at.is_interrupted() {
                    self.rules.learn(map, cache, at.ip());
                }
                let next = Frame::new(ip << 1, registers.sp(), arch::frame_pointer(&registers));
                (step, Some(next), false)
            }
            Ok(None) if map.covers(ip) => (step, None, true),
            _ => (step, None, stack::is_first_frame(at.sp)),
        }
    }

    /// A fast version for most frames; `None`: it does not apply to this one.
    #[inline(always)]
    fn by_rule(&self, at: &Frame) -> Option<(Step, Frame)> {
        if at.is_interrupted() {
            return None;
        }
        let rule = self.rules.get(at.ip())?;
        let base = if rule.from_bp { at.bp } else { at.sp };
        let sp = base.wrapping_add_signed(i64::from(rule.up));
        let bp_at = sp.wrapping_add_signed(i64::from(rule.bp_at));
        // Both words lie within the frame, which lies within the stack.
        if sp <= at.sp || bp_at < at.sp || sp > self.stack.high {
            return None;
        }
        let read = |address: u64| Word {
            address,
            // SAFETY: the known part of the stack reaches from below this frame to `high`.
            value: unsafe { (address as *const u64).read_unaligned() },
        };
        let ip_at = sp.wrapping_add_signed(i64::from(rule.return_address_at()));
        let words = [read(ip_at), read(bp_at)];
        let [ip, bp] = words.map(|word| word.value);
        let ip = arch::without_signature(ip);
        if ip == 0 {
            return None;
        }
        let step = Step {
            words,
            rule: Some(rule),
        };
        let bp = if rule.restores_bp { bp } else { at.bp };
        Some((step, Frame::new(ip << 1, sp, bp)))
    }

    /// The caller does not follow from words in the frame, so the step is repeated each time.
    #[cold]
    fn by_registers(
        &mut self,
        map: &Snapshot,
        at: &Frame,
        interrupted: &Option<Registers>,
    ) -> Option<Frame> {
        let stack = &mut self.stack;
        let mut read = |address: u64| stack.read(address).ok();
        let caller = (*interrupted)?.caller_of(map, (at.ip(), at.sp), &mut read)?;
        let (ip, sp) = (caller.ip()?, caller.sp()?);
        (ip != 0 && sp > at.sp).then(|| Frame::new(ip << 1, sp, caller.bp().unwrap_or(0)))
    }

    fn over_signal(&mut self, at: &Frame, interrupted: &mut Option<Registers>) -> Option<Frame> {
        let stack = &mut self.stack;
        let context = at.sp.checked_add(arch::CONTEXT_AT)?;
        let registers = arch::interrupted(context, &mut |address| stack.read(address))?;
        *interrupted = Some(registers);
        let (ip, sp, bp) = (registers.ip()?, registers.sp()?, registers.bp()?);
        if !(stack.low..stack.high).contains(&sp) {
            // The handler runs on an alternate stack, which may lie anywhere.
            stack.prepare_interrupted(sp);
        }
        Some(Frame::new((ip << 1) | 1, sp, bp))
    }
}
