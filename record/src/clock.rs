//! The clock of the trace's times.
//!
//! Invariant: time before a free ≤ time after another thread's allocation of the same memory; time of an
//! allocation ≤ times of threads that got the block. For this the time stamp counter is read in order with
//! memory (`ticks`); rounding down keeps the order. A single thread only needs its own order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_trace::ClockKind;
use larder_trace::layout::Slot;

use crate::{arch, file, sys};

static USES_COUNTER: AtomicBool = AtomicBool::new(false);

/// Ticks of the trace are this many bits coarser than the clock's, which saves a byte a call: 64 ticks of
/// a counter are 16 to 32 ns. A thread's own calls are in order anyway, and two threads cannot get the
/// same block within that time, because recording a call takes longer.
const COUNTER_SHIFT: u32 = 6;
const MONOTONIC_SHIFT: u32 = 4;

/// Ticks of a process of one thread, a power of two.
const ALONE_TICKS: u64 = 32;

/// Whether two threads have recorded. Set before the second thread's first call, so a thread that gets a
/// block from it sees this.
static SHARED: AtomicBool = AtomicBool::new(false);

/// The process's processor time when sampling began; `u64::MAX`: it is not sampled.
static CPU_BEFORE: AtomicU64 = AtomicU64::new(u64::MAX);

/// Processor time is noted from here on.
pub fn start_cpu() {
    let now = sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    CPU_BEFORE.store(now, Ordering::Relaxed);
}

/// Chooses the counter if the processor guarantees a constant rate and the kernel uses it.
pub fn start() {
    let mut source = [0u8; 16];
    let trusted = match sys::open(
        c"/sys/devices/system/clocksource/clocksource0/current_clocksource",
        libc::O_RDONLY | libc::O_CLOEXEC,
        0,
    ) {
        Ok(fd) => {
            let len = sys::read(fd, &mut source).unwrap_or(0);
            sys::close(fd);
            source[..len].starts_with(b"tsc")
        }
        Err(_) => false,
    };
    USES_COUNTER.store(trusted && arch::has_invariant_counter(), Ordering::Relaxed);
}

pub fn kind() -> (ClockKind, u32) {
    if USES_COUNTER.load(Ordering::Relaxed) {
        (ClockKind::Tsc, COUNTER_SHIFT)
    } else {
        (ClockKind::Monotonic, MONOTONIC_SHIFT)
    }
}

/// The time of a call of the program. While there is one thread, it is rounded to about 1 µs, which makes
/// the trace smaller; no other thread can see the block, so the order is kept.
#[inline]
pub fn now() -> u64 {
    if SHARED.load(Ordering::Relaxed) {
        return exact();
    }
    let ticks = if USES_COUNTER.load(Ordering::Relaxed) {
        arch::ticks_about() >> COUNTER_SHIFT
    } else {
        exact()
    };
    ticks & !(ALONE_TICKS - 1)
}

/// The time to within some instructions, not rounded: for durations.
pub fn about() -> u64 {
    if USES_COUNTER.load(Ordering::Relaxed) {
        arch::ticks_about() >> COUNTER_SHIFT
    } else {
        exact()
    }
}

/// A second thread begins to record. REQUIRES: called before its first call is recorded.
pub fn share() {
    SHARED.store(true, Ordering::SeqCst);
}

/// In a child of fork: one thread again.
pub fn after_fork() {
    SHARED.store(false, Ordering::Relaxed);
}

#[inline]
fn exact() -> u64 {
    if USES_COUNTER.load(Ordering::Relaxed) {
        arch::ticks() >> COUNTER_SHIFT
    } else {
        sys::clock_ns(libc::CLOCK_MONOTONIC) >> MONOTONIC_SHIFT
    }
}

/// Ticks and nanoseconds of `CLOCK_MONOTONIC` of one moment. Of three pairs the one that took the least time:
/// a thread may lose its processor within one, for as long as a short recording takes.
fn both() -> (u64, u64) {
    let pair = || {
        let before = exact();
        let monotonic_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        (exact() - before, before, monotonic_ns)
    };
    let (_, ticks, monotonic_ns) = [pair(), pair(), pair()]
        .into_iter()
        .min()
        .unwrap_or_default();
    (ticks, monotonic_ns)
}

/// For the header: ticks, not later than those of an event that follows, and `CLOCK_MONOTONIC`.
pub fn origin() -> (u64, u64) {
    let (ticks, monotonic_ns) = both();
    (ticks & !(ALONE_TICKS - 1), monotonic_ns)
}

/// Stores both clocks in the header page: the reader computes the counter's rate from the last values.
pub fn note() {
    let (ticks, monotonic_ns) = both();
    file::set_slot(Slot::LastMonotonicNs, monotonic_ns);
    file::set_slot(Slot::LastTicks, ticks);
    let before = CPU_BEFORE.load(Ordering::Relaxed);
    if before != u64::MAX {
        let now = sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        file::set_slot(Slot::CpuNs, now.saturating_sub(before));
    }
}
