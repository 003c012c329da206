//! What the libraries share that replace functions of libc: how a function below is found, and how a wrapper is
//! exported.
//!
//! Thread safety: the loader's. Invariant: neither `errno` nor the message of the program's `dlerror()` changes.

use std::ffi::{CStr, c_void};

/// The next definition of a symbol after the calling library's, or 0.
///
/// The caller of `dlsym` decides what is next, so this must be a part of the library that wraps the function.
pub fn next(name: &CStr) -> usize {
    // SAFETY: a handle of the loader's.
    unsafe { find(libc::RTLD_NEXT, name) }
}

/// A symbol of any library, or 0.
pub fn anywhere(name: &CStr) -> usize {
    // SAFETY: a handle of the loader's.
    unsafe { find(libc::RTLD_DEFAULT, name) }
}

/// A symbol of the library with this handle, or 0.
///
/// # Safety
/// The handle must be one of the loader's, and open.
pub unsafe fn find(handle: *mut c_void, name: &CStr) -> usize {
    // SAFETY: the caller's handle, and a C string; the variable is the thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let found = libc::dlsym(handle, name.as_ptr()) as usize;
        if found == 0 {
            libc::dlerror();
        }
        *libc::__errno_location() = errno;
        found
    }
}

/// Replaces a function that this libc does not have.
pub extern "C" fn missing() -> isize {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Exports a function of this name that consists of the instructions alone.
#[macro_export]
macro_rules! exported {
    ($(#[$doc:meta])* $name:literal, $($instructions:tt)*) => {
        const _: () = {
            $(#[$doc])*
            #[cfg_attr(not(test), unsafe(export_name = $name))]
            #[unsafe(naked)]
            unsafe extern "C" fn exported() {
                core::arch::naked_asm!($($instructions)*)
            }
            #[cfg(test)]
            #[used]
            static EXPORTED: unsafe extern "C" fn() = exported;
        };
    };
}

/// An exported function of up to four arguments that passes as fifth where its return address is, in the form of
/// the recorder's `arch::Caller`, and its caller's frame pointer as sixth.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! entry {
    ($(#[$doc:meta])* $name:literal => $implementation:path) => {
        $crate::exported! {
            $(#[$doc])*
            $name,
            "mov r8, rsp",
            "mov r9, rbp",
            "jmp {0}",
            sym $implementation
        }
    };
}

#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! entry {
    ($(#[$doc:meta])* $name:literal => $implementation:path) => {
        $crate::exported! {
            $(#[$doc])*
            $name,
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x4, sp",
            "mov x5, x29",
            "mov x29, sp",
            "bl {0}",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            sym $implementation
        }
    };
}

/// Calls a function when the library is loaded.
#[macro_export]
macro_rules! constructor {
    ($function:path) => {
        #[used]
        #[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
        static CONSTRUCTOR: extern "C" fn() = {
            extern "C" fn constructor() {
                $function();
            }
            constructor
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_keeps_errno_and_gives_nothing_where_there_is_nothing() {
        // SAFETY: the thread's own variable.
        let errno = || unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno() = 77 };
        assert_ne!(anywhere(c"memcpy"), 0);
        assert_eq!(anywhere(c"larder_no_such_function"), 0);
        // SAFETY: as above, and a function of libc's.
        unsafe {
            assert_eq!(*errno(), 77);
            assert!(libc::dlerror().is_null());
        }
        assert_eq!(missing(), -1);
        // SAFETY: as above.
        assert_eq!(unsafe { *errno() }, libc::ENOSYS);
    }
}
