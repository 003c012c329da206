//! Records what the malloc family does not see: the program's marks (`larder/mark.h`), and the results of
//! system calls from the library of wrappers (`record/io`). Uses the same guard as the malloc family.

use std::ffi::{c_char, c_int};

use larder_trace::IoCall;
use larder_trace::codec::MAX_MARK_NAME;

use crate::arch::entry;
use crate::errno::Errno;
use crate::hooks::Hook;

entry!("larder_record_mark" => mark);
unsafe extern "C" fn mark(name: *const c_char, _: usize, _: usize, _: usize, sp: usize, bp: usize) {
    if name.is_null() {
        return;
    }
    if let Some(mut hook) = Hook::enter(sp, bp) {
        // SAFETY: a C string by contract; only the part that is stored is read.
        let name = unsafe {
            let bytes = libc::strnlen(name, MAX_MARK_NAME);
            std::slice::from_raw_parts(name.cast(), bytes)
        };
        hook.mark(name);
    }
}

/// Records the result of this `IoCall`'s wrapper; the caller's registers are those of `Caller`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_io(call: u32, result: isize, sp: usize, bp: usize) {
    let code = u8::try_from(call).ok();
    let Some(call) = code.and_then(IoCall::from_code) else {
        return;
    };
    let errno = Errno::keep();
    // Calls that return no byte count return an int; the upper half of its register is undefined.
    let mut result = if call.counts_bytes() {
        result
    } else {
        result as c_int as isize
    };
    if result == -1 {
        result = -(errno.number() as isize);
    }
    if let Some(mut hook) = Hook::enter(sp, bp) {
        hook.io(call, result);
    }
}
