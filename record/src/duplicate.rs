//! `strdup` and its like: an allocation and a copy, recorded as one call of the family, and, with copies, as one
//! copy.

use std::ffi::{c_char, c_void};

use larder_trace::{AllocCall, CopyCall};
use larder_wrap::entry;

use crate::arch::Caller;
use crate::errno::out_of_memory;
use crate::hooks::{Hook, below, guard};
use crate::{real, state};

/// A copy of `bytes` bytes and a terminator of `end` bytes, as one call.
#[inline(always)]
unsafe fn duplicate(
    call: AllocCall,
    text: *const u8,
    bytes: usize,
    end: usize,
    caller: Caller,
) -> *mut c_void {
    let size = bytes + end;
    let function = below!(malloc, real::early(size, 1));
    let act = || {
        // SAFETY: the text is `bytes` long, the block has room for it and the terminator.
        unsafe {
            let block = function(size).cast::<u8>();
            if !block.is_null() {
                block.copy_from_nonoverlapping(text, bytes);
                block.add(bytes).write_bytes(0, end);
            }
            block.cast::<c_void>()
        }
    };
    let Some(mut hook) = Hook::enter(caller.sp, caller.bp) else {
        return act();
    };
    let block = hook.below(guard::BELOW, act);
    hook.made(call, block, size, 0);
    if state::copies_are_recorded() && !block.is_null() {
        hook.copied(
            copied_by(call).code(),
            block as usize,
            text as usize,
            size,
            0,
        );
    }
    block
}

fn copied_by(call: AllocCall) -> CopyCall {
    match call {
        AllocCall::Strndup => CopyCall::Strndup,
        AllocCall::Wcsdup => CopyCall::Wcsdup,
        _ => CopyCall::Strdup,
    }
}

entry!("strdup" => strdup);
entry!("__strdup" => strdup);
unsafe extern "C" fn strdup(
    text: *const c_char,
    _: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    // SAFETY: a C string by contract.
    unsafe {
        let bytes = libc::strlen(text);
        duplicate(AllocCall::Strdup, text.cast(), bytes, 1, Caller { sp, bp })
    }
}

entry!("strndup" => strndup);
entry!("__strndup" => strndup);
unsafe extern "C" fn strndup(
    text: *const c_char,
    most: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    // SAFETY: readable up to its end or `most` bytes by contract.
    unsafe {
        let bytes = libc::strnlen(text, most);
        duplicate(AllocCall::Strndup, text.cast(), bytes, 1, Caller { sp, bp })
    }
}

entry!("wcsdup" => wcsdup);
unsafe extern "C" fn wcsdup(
    text: *const libc::wchar_t,
    _: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    const WIDE: usize = size_of::<libc::wchar_t>();
    // SAFETY: a wide C string by contract.
    unsafe {
        let bytes = libc::wcslen(text) * WIDE;
        duplicate(
            AllocCall::Wcsdup,
            text.cast(),
            bytes,
            WIDE,
            Caller { sp, bp },
        )
    }
}
