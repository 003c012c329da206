//! The program's own action for a signal that the recorder handles.
//!
//! Thread safety: two words, each stored atomically; the flags first.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

pub struct OwnAction {
    handler: AtomicUsize,
    flags: AtomicUsize,
}

impl OwnAction {
    /// The default action.
    pub const fn new() -> Self {
        OwnAction {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicUsize::new(0),
        }
    }

    /// Handler and flags.
    pub fn get(&self) -> (usize, usize) {
        let handler = self.handler.load(Ordering::Acquire);
        (handler, self.flags.load(Ordering::Relaxed))
    }

    pub fn replace(&self, handler: usize, flags: usize) {
        self.flags.store(flags, Ordering::Relaxed);
        self.handler.store(handler, Ordering::Release);
    }

    /// Does what the program wants with a signal that is not the recorder's.
    ///
    /// # Safety
    /// A handler's arguments.
    pub unsafe fn pass_on(&self, signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        let (handler, flags) = self.get();
        match handler {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                let default = sys::KernelAction::default();
                // SAFETY: the default action, which ends the process.
                let _ = unsafe { sys::signal_action(signal, Some(&default)) };
                sys::raise(signal);
                sys::unblock(signal);
            }
            // SAFETY: the program has set it with these flags.
            _ if flags & libc::SA_SIGINFO as usize != 0 => unsafe {
                let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            },
            // SAFETY: as above.
            _ => unsafe {
                let handler: unsafe extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            },
        }
    }
}
