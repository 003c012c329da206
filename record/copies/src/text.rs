//! `strcpy` and its like. How many bytes they copy is known when they have found the end of the text.
//!
//! What appends is called below with the end of the first text as its destination, so that the text is gone
//! through once.

use std::ffi::c_char;

use larder_trace::CopyCall;
use larder_wrap::entry;
use libc::wchar_t;

use crate::below::{self, Below};
use crate::note::{Caller, Copy, note};

const WIDE: usize = size_of::<wchar_t>();

type Two = unsafe extern "C" fn(usize, usize) -> usize;
type Three = unsafe extern "C" fn(usize, usize, usize) -> usize;
type Four = unsafe extern "C" fn(usize, usize, usize, usize) -> usize;

unsafe fn two(function: Below, a: usize, b: usize) -> usize {
    // SAFETY: the function below takes two pointers.
    unsafe { std::mem::transmute::<usize, Two>(below::get(function))(a, b) }
}

unsafe fn three(function: Below, a: usize, b: usize, c: usize) -> usize {
    // SAFETY: the function below takes three words.
    unsafe { std::mem::transmute::<usize, Three>(below::get(function))(a, b, c) }
}

unsafe fn four(function: Below, a: usize, b: usize, c: usize, d: usize) -> usize {
    // SAFETY: the function below takes four words.
    unsafe { std::mem::transmute::<usize, Four>(below::get(function))(a, b, c, d) }
}

fn noted(call: CopyCall, destination: usize, source: usize, bytes: usize, caller: Caller) {
    note(
        &Copy {
            code: call.code(),
            destination,
            source,
            bytes,
        },
        caller,
    );
}

unsafe fn length(text: usize) -> usize {
    // SAFETY: a C string by contract.
    unsafe { libc::strlen(text as *const c_char) }
}

unsafe fn length_within(text: usize, most: usize) -> usize {
    // SAFETY: readable up to its end or `most` bytes by contract.
    unsafe { libc::strnlen(text as *const c_char, most) }
}

unsafe fn wide_length(text: usize) -> usize {
    // SAFETY: a wide C string by contract.
    unsafe { libc::wcslen(text as *const wchar_t) }
}

unsafe fn wide_length_within(text: usize, most: usize) -> usize {
    // SAFETY: readable up to its end or `most` characters by contract.
    (0..most)
        .find(|at| unsafe { *(text as *const wchar_t).add(*at) } == 0)
        .unwrap_or(most)
}

/// Defines an exported function of four words and its caller's registers.
macro_rules! function {
    ($($name:literal)+ $function:ident($a:ident, $b:ident, $c:ident, $d:ident, $caller:ident) $body:block) => {
        $(entry!($name => $function);)+
        unsafe extern "C" fn $function(
            $a: usize,
            $b: usize,
            $c: usize,
            $d: usize,
            sp: usize,
            bp: usize,
        ) -> usize {
            let $caller = Caller { sp, bp };
            let _ = ($c, $d);
            // SAFETY: the arguments are those that the program has for this function.
            unsafe { $body }
        }
    };
}

function!("strcpy" strcpy(to, from, _c, _d, caller) {
    let end = two(Below::STPCPY, to, from);
    noted(CopyCall::Strcpy, to, from, end - to + 1, caller);
    to
});

function!("__strcpy_chk" strcpy_chk(to, from, room, _d, caller) {
    let end = three(Below::STPCPY_CHK, to, from, room);
    noted(CopyCall::Strcpy, to, from, end - to + 1, caller);
    to
});

function!("stpcpy" "__stpcpy" stpcpy(to, from, _c, _d, caller) {
    let end = two(Below::STPCPY, to, from);
    noted(CopyCall::Stpcpy, to, from, end - to + 1, caller);
    end
});

function!("__stpcpy_chk" stpcpy_chk(to, from, room, _d, caller) {
    let end = three(Below::STPCPY_CHK, to, from, room);
    noted(CopyCall::Stpcpy, to, from, end - to + 1, caller);
    end
});

// These write all bytes, zeros behind the text.
function!("strncpy" strncpy(to, from, bytes, _d, caller) {
    noted(CopyCall::Strncpy, to, from, bytes, caller);
    three(Below::STRNCPY, to, from, bytes)
});

function!("__strncpy_chk" strncpy_chk(to, from, bytes, room, caller) {
    noted(CopyCall::Strncpy, to, from, bytes, caller);
    four(Below::STRNCPY_CHK, to, from, bytes, room)
});

function!("stpncpy" "__stpncpy" stpncpy(to, from, bytes, _d, caller) {
    noted(CopyCall::Stpncpy, to, from, bytes, caller);
    three(Below::STPNCPY, to, from, bytes)
});

function!("__stpncpy_chk" stpncpy_chk(to, from, bytes, room, caller) {
    noted(CopyCall::Stpncpy, to, from, bytes, caller);
    four(Below::STPNCPY_CHK, to, from, bytes, room)
});

function!("strcat" strcat(to, from, _c, _d, caller) {
    let at = to + length(to);
    let end = two(Below::STPCPY, at, from);
    noted(CopyCall::Strcat, at, from, end - at + 1, caller);
    to
});

function!("__strcat_chk" strcat_chk(to, from, room, _d, caller) {
    let at = to + length(to);
    let end = three(Below::STPCPY_CHK, at, from, room.saturating_sub(at - to));
    noted(CopyCall::Strcat, at, from, end - at + 1, caller);
    to
});

function!("strncat" strncat(to, from, most, _d, caller) {
    let at = to + length(to);
    noted(CopyCall::Strncat, at, from, length_within(from, most) + 1, caller);
    three(Below::STRNCAT, at, from, most);
    to
});

function!("__strncat_chk" strncat_chk(to, from, most, room, caller) {
    let at = to + length(to);
    noted(CopyCall::Strncat, at, from, length_within(from, most) + 1, caller);
    four(Below::STRNCAT_CHK, at, from, most, room.saturating_sub(at - to));
    to
});

/// Notes what `strlcpy` copied of a text of this length to a place of so many bytes.
fn limited(call: CopyCall, to: usize, from: usize, length: usize, room: usize, caller: Caller) {
    let bytes = length.saturating_add(1).min(room);
    noted(call, to, from, bytes, caller);
}

function!("strlcpy" strlcpy(to, from, room, _d, caller) {
    let length = three(Below::STRLCPY, to, from, room);
    limited(CopyCall::Strlcpy, to, from, length, room, caller);
    length
});

function!("__strlcpy_chk" strlcpy_chk(to, from, room, object, caller) {
    let length = four(Below::STRLCPY_CHK, to, from, room, object);
    limited(CopyCall::Strlcpy, to, from, length, room, caller);
    length
});

function!("strlcat" strlcat(to, from, room, _d, caller) {
    let before = length_within(to, room);
    let length = three(Below::STRLCAT, to, from, room);
    limited(CopyCall::Strlcat, to + before, from, length - before, room - before, caller);
    length
});

function!("__strlcat_chk" strlcat_chk(to, from, room, object, caller) {
    let before = length_within(to, room);
    let length = four(Below::STRLCAT_CHK, to, from, room, object);
    limited(CopyCall::Strlcat, to + before, from, length - before, room - before, caller);
    length
});

function!("wcscpy" wcscpy(to, from, _c, _d, caller) {
    noted(CopyCall::Wcscpy, to, from, (wide_length(from) + 1) * WIDE, caller);
    two(Below::WCSCPY, to, from)
});

function!("__wcscpy_chk" wcscpy_chk(to, from, room, _d, caller) {
    noted(CopyCall::Wcscpy, to, from, (wide_length(from) + 1) * WIDE, caller);
    three(Below::WCSCPY_CHK, to, from, room)
});

function!("wcsncpy" wcsncpy(to, from, count, _d, caller) {
    noted(CopyCall::Wcsncpy, to, from, count.saturating_mul(WIDE), caller);
    three(Below::WCSNCPY, to, from, count)
});

function!("__wcsncpy_chk" wcsncpy_chk(to, from, count, room, caller) {
    noted(CopyCall::Wcsncpy, to, from, count.saturating_mul(WIDE), caller);
    four(Below::WCSNCPY_CHK, to, from, count, room)
});

function!("wcscat" wcscat(to, from, _c, _d, caller) {
    let at = to + wide_length(to) * WIDE;
    noted(CopyCall::Wcscat, at, from, (wide_length(from) + 1) * WIDE, caller);
    two(Below::WCSCAT, at, from);
    to
});

function!("__wcscat_chk" wcscat_chk(to, from, room, _d, caller) {
    let before = wide_length(to);
    let at = to + before * WIDE;
    noted(CopyCall::Wcscat, at, from, (wide_length(from) + 1) * WIDE, caller);
    three(Below::WCSCAT_CHK, at, from, room.saturating_sub(before));
    to
});

function!("wcsncat" wcsncat(to, from, most, _d, caller) {
    let at = to + wide_length(to) * WIDE;
    let bytes = (wide_length_within(from, most) + 1) * WIDE;
    noted(CopyCall::Wcsncat, at, from, bytes, caller);
    three(Below::WCSNCAT, at, from, most);
    to
});

function!("__wcsncat_chk" wcsncat_chk(to, from, most, room, caller) {
    let before = wide_length(to);
    let at = to + before * WIDE;
    let bytes = (wide_length_within(from, most) + 1) * WIDE;
    noted(CopyCall::Wcsncat, at, from, bytes, caller);
    four(Below::WCSNCAT_CHK, at, from, most, room.saturating_sub(before));
    to
});
