//! The functions that the wrappers replace.
//!
//! Invariant: once `are_known`, no address changes, and each is that of the next definition, or 0 where no
//! library has the function.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

macro_rules! names {
    ($($constant:ident $name:literal;)*) => {
        /// A function's place in the table.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub enum Below { $($constant),* }

        const NAMES: &[&CStr] = &[$($name),*];
    };
}

// The copying functions of old binaries may be called with overlapping memory: memmove does for both.
names! {
    MEMMOVE c"memmove";
    MEMPCPY c"mempcpy";
    MEMSET c"memset";
    BCOPY c"bcopy";
    BZERO c"bzero";
    WMEMMOVE c"wmemmove";
    WMEMPCPY c"wmempcpy";
    WMEMSET c"wmemset";
    MEMMOVE_CHK c"__memmove_chk";
    MEMPCPY_CHK c"__mempcpy_chk";
    MEMSET_CHK c"__memset_chk";
    WMEMMOVE_CHK c"__wmemmove_chk";
    WMEMPCPY_CHK c"__wmempcpy_chk";
    WMEMSET_CHK c"__wmemset_chk";
    STPCPY c"stpcpy";
    STPCPY_CHK c"__stpcpy_chk";
    STRNCPY c"strncpy";
    STRNCPY_CHK c"__strncpy_chk";
    STPNCPY c"stpncpy";
    STPNCPY_CHK c"__stpncpy_chk";
    STRNCAT c"strncat";
    STRNCAT_CHK c"__strncat_chk";
    STRLCPY c"strlcpy";
    STRLCPY_CHK c"__strlcpy_chk";
    STRLCAT c"strlcat";
    STRLCAT_CHK c"__strlcat_chk";
    WCSCPY c"wcscpy";
    WCSCPY_CHK c"__wcscpy_chk";
    WCSNCPY c"wcsncpy";
    WCSNCPY_CHK c"__wcsncpy_chk";
    WCSCAT c"wcscat";
    WCSCAT_CHK c"__wcscat_chk";
    WCSNCAT c"wcsncat";
    WCSNCAT_CHK c"__wcsncat_chk";
    VPRINTF c"vprintf";
    VPRINTF_CHK c"__vprintf_chk";
    VFPRINTF c"vfprintf";
    VFPRINTF_CHK c"__vfprintf_chk";
    VDPRINTF c"vdprintf";
    VDPRINTF_CHK c"__vdprintf_chk";
    VSPRINTF c"vsprintf";
    VSPRINTF_CHK c"__vsprintf_chk";
    VSNPRINTF c"vsnprintf";
    VSNPRINTF_CHK c"__vsnprintf_chk";
    VASPRINTF c"vasprintf";
    VASPRINTF_CHK c"__vasprintf_chk";
}

/// By `Below`. 0 until it is known.
pub static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

static KNOWN: AtomicBool = AtomicBool::new(false);

/// Whether all functions below are known.
#[inline(always)]
pub fn are_known() -> bool {
    KNOWN.load(Ordering::Acquire)
}

/// REQUIRES: called once, by the library's constructor. Earlier the loader may not have relocated libc.
pub fn look_up() {
    for (name, place) in NAMES.iter().zip(&FOUND) {
        place.store(larder_wrap::next(name), Ordering::Release);
    }
    crate::note::find_recorder();
    KNOWN.store(true, Ordering::Release);
}

/// The address of a function below that exists, because the program calls it.
#[inline]
pub fn get(function: Below) -> usize {
    match FOUND[function as usize].load(Ordering::Acquire) {
        // A constructor of another library calls it before this one's has run.
        0 => larder_wrap::next(NAMES[function as usize]),
        address => address,
    }
}
