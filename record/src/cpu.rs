//! Samples of processor time: each thread has a timer on its own processor time, which sends it a signal. The
//! handler walks the interrupted stack, and writes it into the thread's stream with the time that it stands
//! for: the timer's period, times the periods that have passed since the last signal.
//!
//! ```text
//! thread_begins, stream::attach ─> begin_thread ─> timer ─(signal)─> handle ─> Sampler::take ─> Stream::sample
//!                                                                               └─> keep (the recorder's own code)
//! ```
//!
//! The handler runs with all signals blocked, and changes to a stack of its own at once. It may have interrupted
//! the recorder: then it touches neither the stream nor a lock, but keeps the stack for the next sample. In all
//! other code it does what a hook does that a signal handler calls.
//!
//! Thread safety: a `Sampler` belongs to a thread. Invariant: Σ samples + what is lost ≈ processor time.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, compiler_fence};

use larder_trace::layout::Slot;

use crate::arch::{self, Local, Start};
use crate::errno::Errno;
use crate::hooks::{self, guard};
use crate::map::{self, Snapshot};
use crate::memory::Pages;
use crate::registers::Registers;
use crate::signals::OwnAction;
use crate::stream::Stream;
use crate::walk::Walker;
use crate::{clock, file, hash, state, sys};

/// The signal; 0: processor time is not sampled.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);
/// How often the kernel looks at timers of processor time.
static TICK_NS: AtomicU64 = AtomicU64::new(0);
static WARNED: AtomicBool = AtomicBool::new(false);
/// The program's action for the signal.
static OWN: OwnAction = OwnAction::new();

/// What our timers send with the signal: "LCPU".
const VALUE: usize = 0x4c43_5055;
/// The first to be tried; programs that use such signals count from either end.
const FIRST_CHOICE: i32 = 53;
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// For the walk, for compression, and for definitions of modules.
const STACK_BYTES: usize = 256 << 10;
/// Words of stacks that are kept: some hundred deep ones.
const KEPT_WORDS: usize = 64 << 10;
/// Words of a kept sample before its frames: time, nanoseconds, whether it is complete, frames.
const HEAD_WORDS: usize = 4;

pub struct Sampler {
    timer: i32,
    /// Whether there was a sample.
    sampled: bool,
    generation: u32,
    walker: Walker,
    /// Samples that wait until the stream can be used.
    kept: Pages<u64>,
    kept_words: usize,
    stack: *mut u8,
}

/// A stack and the time that it stands for.
#[derive(Clone, Copy)]
pub struct Sample {
    pub time: u64,
    pub cpu_ns: u64,
}

/// Begins to sample a process: chooses the signal. Each thread then calls `begin_thread`.
pub fn start(rate_hz: u32) {
    let choices = (FIRST_CHOICE..=*REAL_TIME.end()).chain(*REAL_TIME.start()..FIRST_CHOICE);
    let is_free = |signal: &i32| {
        // SAFETY: no new action.
        let action = unsafe { sys::signal_action(*signal, None) };
        action.is_ok_and(|action| action.handler == libc::SIG_DFL)
    };
    let Some(signal) = choices.into_iter().find(is_free) else {
        return warn(None, b"every real-time signal is used");
    };
    if let Err(errno) = sys::handle_signal(signal, handle, arch::signal_return) {
        return warn(Some(errno), b"its handler cannot be set");
    }
    // SAFETY: the function has the right type; without it a child is sampled from its first allocation on.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
    PERIOD_NS.store(1_000_000_000 / u64::from(rate_hz.max(1)), Ordering::Relaxed);
    TICK_NS.store(sys::tick_ns(), Ordering::Relaxed);
    SIGNAL.store(signal, Ordering::Release);
    set_up_file(rate_hz);
}

fn set_up_file(rate_hz: u32) {
    clock::start_cpu();
    file::set_slot(Slot::SampleRate, u64::from(rate_hz));
}

fn warn(errno: Option<sys::Errno>, reason: &[u8]) {
    if !WARNED.swap(true, Ordering::Relaxed) {
        file::warn(b"processor time is not sampled", c"", errno, reason);
    }
}

fn signal() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// In a child of fork, which has a file of its own by now: timers are not inherited.
pub fn after_fork(local: &mut Local) {
    local.sampler = std::ptr::null_mut();
    if signal().is_some() {
        let period = PERIOD_NS.load(Ordering::Relaxed).max(1);
        set_up_file((1_000_000_000 / period) as u32);
    }
}

extern "C" fn child() {
    begin_now();
}

/// Begins to sample the calling thread, if its process is sampled, before its first call.
pub fn begin_now() {
    if signal().is_some() {
        hooks::begin_now();
    }
}

/// Starts the calling thread's timer, if its process is sampled. REQUIRES: the guard is set.
pub fn begin_thread(local: &mut Local) -> *mut Sampler {
    let Some(signal) = signal() else {
        return std::ptr::null_mut();
    };
    if !local.sampler.is_null() {
        return local.sampler;
    }
    let made = make().and_then(|sampler| {
        let timer = sys::make_cpu_timer(signal, VALUE)?;
        // SAFETY: just made.
        unsafe { (*sampler).timer = timer };
        local.sampler = sampler;
        compiler_fence(Ordering::SeqCst);
        sys::unblock(signal);
        let period = PERIOD_NS.load(Ordering::Relaxed);
        // A thread's ticks come at random; so must a period that is longer.
        let first = match period < TICK_NS.load(Ordering::Relaxed) {
            true => 1,
            false => hash::spread(arch::ticks_about()) % period + 1,
        };
        sys::set_timer(timer, first, period)?;
        Ok(sampler)
    });
    made.unwrap_or_else(|errno| {
        warn(Some(errno), b"no timer can be made: raise `ulimit -i`");
        std::ptr::null_mut()
    })
}

fn make() -> Result<*mut Sampler, sys::Errno> {
    let stack = sys::map_anonymous(STACK_BYTES)?;
    let sampler = sys::map_anonymous(size_of::<Sampler>())?.cast::<Sampler>();
    // SAFETY: fresh memory of the right size and alignment.
    unsafe {
        sampler.write(Sampler {
            timer: -1,
            sampled: false,
            generation: 0,
            walker: Walker::new(),
            kept: Pages::empty(),
            kept_words: 0,
            stack,
        });
    }
    Ok(sampler)
}

/// The calling thread ends. REQUIRES: the guard is set, and the stream is not in use.
pub fn end_thread(local: &mut Local) {
    // SAFETY: null, or the thread's own.
    if let Some(ending) = unsafe { local.sampler.as_ref() } {
        // The last signal comes before this returns, so that its sample is kept.
        sys::delete_timer(ending.timer);
    }
    flush(local);
    let sampler = std::mem::replace(&mut local.sampler, std::ptr::null_mut());
    compiler_fence(Ordering::SeqCst);
    // SAFETY: null, or the thread's own, which nothing else knows now.
    if let Some(gone) = unsafe { sampler.as_mut() } {
        gone.walker.end();
        gone.release();
        // SAFETY: mapped by `make`.
        unsafe { sys::unmap(sampler.cast(), size_of::<Sampler>()) };
    }
}

/// In a child of fork: releases the memory of a parent's thread.
///
/// # Safety
/// The sampler is none of a thread of this process, or null.
pub unsafe fn abandon(sampler: *mut Sampler) {
    // SAFETY: the caller's promise.
    if let Some(gone) = unsafe { sampler.as_mut() } {
        gone.walker.release();
        gone.release();
        // SAFETY: mapped by `make`.
        unsafe { sys::unmap(sampler.cast(), size_of::<Sampler>()) };
    }
}

/// Writes what the calling thread has kept. REQUIRES: the guard is set, and the stream is not in use.
pub fn flush(local: &mut Local) {
    // SAFETY: the thread's own, or null; below, the handler is put off.
    let own = unsafe { (local.sampler.as_mut(), local.stream.as_mut()) };
    if let ((Some(sampler), Some(stream)), Some(signal)) = (own, signal()) {
        sys::block(signal);
        sampler.write_kept(stream);
        sys::unblock(signal);
    }
}

/// Time that is in no sample.
fn count_lost(cpu_ns: u64) {
    file::add_to_slot(Slot::LostSampleNs, cpu_ns);
}

/// What the handler hands to the other stack.
struct Interrupted {
    sampler: *mut Sampler,
    /// Null if the stream may be in use.
    stream: *mut Stream,
    context: *mut c_void,
    cpu_ns: u64,
}

unsafe extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's.
    let (code, value, overrun) = unsafe {
        let info = &*info.cast::<TimerInfo>();
        (info.code, info.value, info.overrun)
    };
    if code != libc::SI_TIMER || value != VALUE {
        // SAFETY: the handler's own arguments.
        return unsafe { OWN.pass_on(signal, info, context) };
    }
    let periods = 1 + u64::try_from(overrun).unwrap_or(0);
    let cpu_ns = PERIOD_NS.load(Ordering::Relaxed) * periods;
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.sampler.is_null()
        || local.stream.is_null()
        || local.in_vfork != 0
        || !state::is_recording()
    {
        return count_lost(cpu_ns);
    }
    let errno = Errno::keep();
    let outer = std::mem::replace(&mut local.guard, guard::RECORDER);
    let mut interrupted = Interrupted {
        sampler: local.sampler,
        stream: match outer {
            guard::RECORDER => std::ptr::null_mut(),
            _ => local.stream,
        },
        context,
        cpu_ns,
    };
    // SAFETY: the sampler is the thread's own.
    let top = unsafe { (*local.sampler).stack }.wrapping_add(STACK_BYTES);
    // SAFETY: only this handler uses that stack, and it is not interrupted.
    unsafe { arch::on_stack(top, take, (&raw mut interrupted).cast()) };
    local.guard = outer;
    drop(errno);
}

/// The kernel's `siginfo_t` of a timer.
#[repr(C)]
struct TimerInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    timer: i32,
    overrun: i32,
    value: usize,
}

extern "C" fn take(argument: *mut u8) {
    // SAFETY: the handler's, which waits.
    let interrupted = unsafe { &*argument.cast::<Interrupted>() };
    // SAFETY: the thread's own, and no other code of it uses them now.
    let (sampler, stream) = unsafe { (&mut *interrupted.sampler, interrupted.stream.as_mut()) };
    let mut read = |address: u64| {
        // SAFETY: within the context that the kernel has stored.
        Ok(unsafe { (address as *const u64).read() })
    };
    let registers = arch::interrupted(interrupted.context as u64, &mut read);
    let sample = Sample {
        time: clock::now(),
        cpu_ns: sampler.weigh(interrupted.cpu_ns),
    };
    let taken = registers.and_then(|registers| sampler.take(stream, registers, sample));
    if taken.is_none() {
        count_lost(sample.cpu_ns);
    }
}

impl Sampler {
    /// A thread's first sample stands for a whole interval: what passes between its last one and its end is in
    /// no sample, and a thread that is shorter than the kernel's tick has a sample as often as it is long.
    fn weigh(&mut self, cpu_ns: u64) -> u64 {
        let is_first = !std::mem::replace(&mut self.sampled, true);
        match is_first {
            true => cpu_ns.max(TICK_NS.load(Ordering::Relaxed)),
            false => cpu_ns,
        }
    }

    fn take(
        &mut self,
        stream: Option<&mut Stream>,
        registers: Registers,
        sample: Sample,
    ) -> Option<()> {
        match stream {
            None => self.keep(registers, sample),
            Some(stream) => {
                self.write_kept(stream);
                self.write(stream, registers, sample)
            }
        }
    }

    fn write(&mut self, stream: &mut Stream, registers: Registers, sample: Sample) -> Option<()> {
        for try_again in [true, true, true, false] {
            let map = stream.follow_map()?;
            self.follow(map);
            let walked = self.walker.walk_interrupted(map, registers)?;
            let complete = walked.complete;
            let node = stream.number(&mut self.walker, map, walked, try_again);
            if let Some(native) = node? {
                let node = stream.node_of_sample(&mut self.walker, native, complete)?;
                return stream.sample(node, sample);
            }
            self.walker.drop_last();
        }
        None
    }

    /// Changes to another module map. Takes the heap's lock.
    fn follow(&mut self, map: &Snapshot) {
        if self.generation != map.generation {
            self.generation = map.generation;
            self.walker.forget_rules();
        }
    }

    /// Keeps a sample: the recorder was interrupted, so the stream and all locks may be in use.
    fn keep(&mut self, registers: Registers, sample: Sample) -> Option<()> {
        let map = map::current()?;
        if self.generation != map.generation {
            return None;
        }
        let walked = self.walker.walk_interrupted(map, registers)?;
        let frames = self.walker.last();
        let (at, words) = (self.kept_words, HEAD_WORDS + frames.len());
        let kept = match self.kept.grow(KEPT_WORDS) {
            true => self.kept.slice().get_mut(at..at + words),
            false => None,
        };
        if let Some((head, rest)) = kept.and_then(<[u64]>::split_first_chunk_mut::<HEAD_WORDS>) {
            let complete = u64::from(walked.complete);
            *head = [sample.time, sample.cpu_ns, complete, frames.len() as u64];
            for (place, frame) in rest.iter_mut().zip(frames) {
                *place = frame.packed;
            }
            self.kept_words += words;
        } else {
            count_lost(sample.cpu_ns);
        }
        // Its frames have no numbers.
        self.walker.drop_last();
        Some(())
    }

    /// Writes the samples that were kept.
    fn write_kept(&mut self, stream: &mut Stream) {
        let mut at = 0;
        let words = std::mem::take(&mut self.kept_words);
        while at < words {
            let rest = self.kept.slice().get(at..words).unwrap_or_default();
            let Some((&[time, cpu_ns, complete, count], rest)) = rest.split_first_chunk() else {
                return;
            };
            let count = count as usize;
            at += HEAD_WORDS + count;
            let sample = Sample { time, cpu_ns };
            let frames = rest.get(..count).unwrap_or_default();
            let replayed = self.walker.replay(frames.iter().copied());
            let walked = stream.follow_map().zip(replayed);
            let number = walked.and_then(|(map, ())| {
                let walked = crate::walk::Walked {
                    kept: 0,
                    complete: complete != 0,
                };
                stream.number(&mut self.walker, map, walked, false)
            });
            let written = number
                .flatten()
                .and_then(|node| stream.sample(node, sample));
            if written.is_none() {
                count_lost(cpu_ns);
            }
            self.walker.drop_last();
        }
    }

    fn release(&mut self) {
        self.kept.release();
        // SAFETY: mapped by `make`.
        unsafe { sys::unmap(self.stack, STACK_BYTES) };
    }
}

/// The signal that the wrappers keep to us; 0 if there is none.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_cpu_signal() -> i32 {
    SIGNAL.load(Ordering::Acquire)
}

/// The program's own handler for our signal: stores it, and returns the one before with its flags.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_cpu_handler(new: *const Start) -> Start {
    let (function, argument) = OWN.get();
    // SAFETY: the wrapper's, or null.
    if let Some(new) = unsafe { new.as_ref() } {
        OWN.replace(new.function, new.argument);
    }
    Start { function, argument }
}

/// What a new thread is to be started with, so that it is sampled from its beginning on.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_thread(function: usize, argument: usize) -> Start {
    let start = Start { function, argument };
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if signal().is_none() || local.guard != guard::NONE || !state::is_recording() {
        return start;
    }
    local.guard = guard::RECORDER;
    let waiting = Box::into_raw(Box::new(start));
    local.guard = guard::NONE;
    Start {
        function: arch::thread_start as *const () as usize,
        argument: waiting as usize,
    }
}

/// The first code of a new thread.
pub extern "C" fn thread_begins(waiting: usize) -> Start {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    local.guard = guard::RECORDER;
    // SAFETY: from `larder_record_thread`, for this thread alone.
    let start = *unsafe { Box::from_raw(waiting as *mut Start) };
    local.guard = guard::NONE;
    begin_now();
    start
}
