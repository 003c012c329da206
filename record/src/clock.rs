//! The clock of the trace's times.
//!
//! Invariant: a time that is taken before a block is given back is not later than one that is taken
//! after another thread got the same memory, and a time taken when a block was made is not later
//! than one taken by whoever was handed it: the time stamp counter is read in order with memory
//! (`ticks`), and rounding down keeps the order. While there is one thread, no order is to be kept but
//! its own.

use std::sync::atomic::{AtomicBool, Ordering};

use larder_trace::ClockKind;
use larder_trace::layout::Slot;

use crate::{arch, file, sys};

static USES_COUNTER: AtomicBool = AtomicBool::new(false);

/// Ticks of the trace are this many bits coarser than the clock's: 64 ticks of a counter are 16 to 32
/// ns. A thread's own calls are in order anyway; two threads can get the same block one after the
/// other no faster than one call is recorded, which takes longer. A byte a call is saved.
const COUNTER_SHIFT: u32 = 6;
const MONOTONIC_SHIFT: u32 = 4;

/// Ticks of a process of one thread, a power of two.
const ALONE_TICKS: u64 = 32;

/// Whether two threads have recorded. Set before the second one's first call, so whoever is handed
/// a block by it sees this set.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Chooses the counter if the processor promises one rate and the kernel found it in step.
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

/// Now, for a call of the program. While it has one thread, to whole microseconds about: that keeps
/// the order, as nobody else can see the block; less is to be written, and compressed, of each call.
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

/// A second thread begins to record. Its calls, and what others get from it, come after this.
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

/// Notes both clocks in the header page: the reader works out the counter's rate from the last note.
pub fn note() {
    file::set_slot(Slot::LastMonotonicNs, sys::clock_ns(libc::CLOCK_MONOTONIC));
    file::set_slot(Slot::LastTicks, exact());
}
