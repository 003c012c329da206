//! Hands a copy to the recorder.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use larder_wrap::anywhere;

use crate::below::are_known;
use crate::sample;

/// The caller's stack pointer at the return address, and its frame pointer.
#[derive(Clone, Copy)]
pub struct Caller {
    pub sp: usize,
    pub bp: usize,
}

#[derive(Clone, Copy)]
pub struct Copy {
    /// Of a `CopyCall`.
    pub code: u8,
    pub destination: usize,
    /// 0 for fills.
    pub source: usize,
    pub bytes: usize,
}

/// Of `call` the lowest byte is the code, the rest the rate.
type Record = extern "C" fn(call: u64, to: usize, from: usize, bytes: usize, sp: usize, bp: usize);
/// The mean number of bytes between two samples, 0 for all; negative: do not record.
type Rate = extern "C" fn() -> i64;

static RECORD: AtomicUsize = AtomicUsize::new(0);
static RATE: AtomicI64 = AtomicI64::new(-1);

pub fn find_recorder() {
    let record = anywhere(c"larder_record_copy");
    let rate = anywhere(c"larder_record_copy_rate");
    if record == 0 || rate == 0 {
        return;
    }
    // SAFETY: the recorder's function has this type.
    let rate = unsafe { std::mem::transmute::<usize, Rate>(rate) };
    RATE.store(rate(), Ordering::Relaxed);
    RECORD.store(record, Ordering::Release);
}

/// Counts a copy, and records it if it is a sample, or if all are recorded.
pub fn note(copy: &Copy, caller: Caller) {
    // Earlier the recorder's rate is not known, and nothing may be left: see `sample`.
    if !are_known() {
        return;
    }
    let left = sample::left().wrapping_sub(copy.bytes as i64);
    sample::set_left(left);
    if left <= 0 {
        note_counted(copy, caller);
    }
}

/// The same for a copy whose bytes were counted, and where nothing was left. REQUIRES: the functions below are
/// known.
#[inline(always)]
pub fn note_counted(copy: &Copy, caller: Caller) {
    let rate = RATE.load(Ordering::Relaxed);
    if rate != 0 && !sample::is_chosen(rate, copy.bytes) {
        return;
    }
    let record = RECORD.load(Ordering::Acquire);
    if record == 0 {
        return;
    }
    // SAFETY: the recorder's function has this type.
    let record = unsafe { std::mem::transmute::<usize, Record>(record) };
    let call = u64::from(copy.code) | (rate as u64) << 8;
    let Caller { sp, bp } = caller;
    record(call, copy.destination, copy.source, copy.bytes, sp, bp);
}
