//! All streams of the process: how a thread gets one, and what becomes of it at the thread's end.
//!
//! Thread safety: the registry only grows; taking and retiring happen under a spin lock. Streams are freed in a child
//! of fork alone. A stream writes chunks to the file of its own recording alone: `while_recording` does so, and after
//! the end of a recording `await_writers` waits for that.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

use larder_trace::StopReason;
use larder_trace::codec::Predictor;

use super::merged::Merged;
use super::{OWN_STACK_BYTES, Stream};
use crate::chunk::Live;
use crate::counters::Tally;
use crate::familiar::Familiars;
use crate::intern::Interned;
use crate::marks::MarkNames;
use crate::walk::Walker;
use crate::{clock, cpu, state, sys};

static REGISTRY: AtomicPtr<Stream> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);
static LOCKED: AtomicBool = AtomicBool::new(false);
static RETIRED: AtomicPtr<Stream> = AtomicPtr::new(std::ptr::null_mut());
/// How many threads are in `while_recording`.
static WRITERS: AtomicU32 = AtomicU32::new(0);

/// Does this if the recording of this number still runs; no other begins meanwhile.
pub fn while_recording<R>(recording: u32, act: impl FnOnce() -> R) -> Option<R> {
    WRITERS.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let result = (state::recording() == recording).then(act);
    WRITERS.fetch_sub(1, Ordering::Release);
    result
}

/// After the end of a recording: until no thread writes to its file any more.
pub fn await_writers() {
    fence(Ordering::SeqCst);
    while WRITERS.load(Ordering::Acquire) != 0 {
        sys::yield_processor();
    }
}

/// The stream that the thread has from an earlier recording of this process, or null.
pub fn of_earlier_recording(own: *mut Stream) -> *mut Stream {
    // SAFETY: streams are never freed, except in a child of fork, where the thread's pointer is cleared.
    match unsafe { own.as_ref() } {
        Some(stream) if !stream.is_retired => own,
        _ => std::ptr::null_mut(),
    }
}

/// A new one for the recording of this number; null without memory.
pub fn make(recording: u32) -> *mut Stream {
    let Ok(memory) = sys::map_anonymous(size_of::<Stream>()) else {
        state::stop(StopReason::NoMemory, libc::ENOMEM);
        return std::ptr::null_mut();
    };
    let stream = memory.cast::<Stream>();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    if number > 0 {
        clock::share();
    }
    // SAFETY: fresh memory of the right size and alignment.
    unsafe {
        stream.write(Stream {
            next: std::ptr::null_mut(),
            next_retired: std::ptr::null_mut(),
            is_retired: false,
            recording,
            tid: 0,
            generation: 0,
            live: Live::new(number),
            tally: Tally::new(number),
            predictor: Predictor::new(),
            interned: Interned::new(),
            marks: MarkNames::new(),
            walker: Walker::new(),
            familiars: Familiars::new(),
            merged: Merged::new(),
            own_stack: std::ptr::null_mut(),
            sampler: std::ptr::null_mut(),
        });
    }
    let mut head = REGISTRY.load(Ordering::Relaxed);
    loop {
        // SAFETY: not yet shared.
        unsafe { (*stream).next = head };
        match REGISTRY.compare_exchange_weak(head, stream, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return stream,
            Err(now) => head = now,
        }
    }
}

fn locked<R>(act: impl FnOnce() -> R) -> R {
    while LOCKED.swap(true, Ordering::Acquire) {
        sys::yield_processor();
    }
    let result = act();
    LOCKED.store(false, Ordering::Release);
    result
}

/// A stream whose thread has ended for the kernel: glibc frees a thread's last memory after its last
/// destructor, so a retired stream may still be written to.
pub fn take_retired() -> *mut Stream {
    let (process, thread) = (sys::process_id(), sys::thread_id());
    locked(|| {
        let mut before: *mut Stream = std::ptr::null_mut();
        let mut at = RETIRED.load(Ordering::Relaxed);
        for _ in 0..8 {
            if at.is_null() {
                break;
            }
            // SAFETY: streams are never freed, and the list is only changed under the lock.
            let (owner, next) = unsafe { ((*at).tid, (*at).next_retired) };
            if owner == thread || sys::thread_is_gone(process, owner) {
                if before.is_null() {
                    RETIRED.store(next, Ordering::Relaxed);
                } else {
                    // SAFETY: as above.
                    unsafe { (*before).next_retired = next };
                }
                // SAFETY: as above.
                unsafe { (*at).is_retired = false };
                return at;
            }
            before = at;
            at = next;
        }
        std::ptr::null_mut()
    })
}

/// Keeps the stream of a thread that is ending for another.
pub fn set_aside(stream: *mut Stream) {
    locked(|| {
        // SAFETY: in no list now, and the list is only changed under the lock.
        unsafe {
            (*stream).next_retired = RETIRED.load(Ordering::Relaxed);
            (*stream).is_retired = true;
        }
        RETIRED.store(stream, Ordering::Relaxed);
    });
}

/// In a child of fork, also one that is not recorded: the threads that held the lock, or wrote, do not exist.
pub fn forget_threads() {
    LOCKED.store(false, Ordering::Release);
    WRITERS.store(0, Ordering::Release);
}

/// In a child of fork: every stream was the parent's.
pub fn after_fork() {
    let mut stream = REGISTRY.swap(std::ptr::null_mut(), Ordering::Relaxed);
    RETIRED.store(std::ptr::null_mut(), Ordering::Relaxed);
    COUNT.store(0, Ordering::Relaxed);
    clock::after_fork();
    while !stream.is_null() {
        // SAFETY: the child has one thread, and none of these is in use by it.
        unsafe {
            let gone = &mut *stream;
            let next = gone.next;
            gone.live.abandon();
            gone.tally.release();
            gone.interned.release();
            gone.marks.release();
            gone.walker.release();
            gone.familiars.forget();
            gone.merged.release();
            cpu::abandon(gone.sampler);
            if !gone.own_stack.is_null() {
                sys::unmap(gone.own_stack, OWN_STACK_BYTES);
            }
            sys::unmap(stream.cast(), size_of::<Stream>());
            stream = next;
        }
    }
}
