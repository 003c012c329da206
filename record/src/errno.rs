//! The thread's `errno`, which no hook changes but as the function it stands for does.

use std::ffi::{c_int, c_void};

/// Puts `errno` back when it goes.
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

/// What a function of the family returns that found none.
pub fn out_of_memory() -> *mut c_void {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}
