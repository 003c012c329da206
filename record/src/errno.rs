//! The thread's `errno`, which a hook changes only like the function that it replaces.

use std::ffi::{c_int, c_void};

/// Restores `errno` when it is dropped.
pub struct Errno(c_int);

impl Errno {
    pub fn keep() -> Self {
        // SAFETY: the thread's own variable.
        Errno(unsafe { *libc::__errno_location() })
    }

    pub fn number(&self) -> c_int {
        self.0
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: the thread's own variable.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The return value of a function of the family that cannot allocate: sets `errno`.
pub fn out_of_memory() -> *mut c_void {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}
