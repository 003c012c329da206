//! The program's signals, without the recorder's.

use std::ffi::c_int;

use crate::below::{self, Action, Pair};

/// A copy of a set without the recorder's signal; `None` if the set may be used as it is.
///
/// # Safety
/// The set can be read, or is null.
unsafe fn without_ours(set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    let ours = below::recorder_signal();
    if ours == 0 || set.is_null() {
        return None;
    }
    // SAFETY: by contract.
    unsafe {
        if libc::sigismember(set, ours) != 1 {
            return None;
        }
        let mut rest = *set;
        libc::sigdelset(&mut rest, ours);
        Some(rest)
    }
}

fn is_ours(signal: c_int) -> bool {
    signal != 0 && signal == below::recorder_signal()
}

/// A wrapper of a function whose arguments are a set and others.
macro_rules! with_set {
    ($name:literal, $function:ident($($before:ident: $bt:ty,)* [$set:ident] $($after:ident: $at:ty),*)) => {
        #[cfg_attr(not(test), unsafe(export_name = $name))]
        #[cfg_attr(test, allow(dead_code))]
        unsafe extern "C" fn $function(
            $($before: $bt,)*
            $set: *const libc::sigset_t,
            $($after: $at,)*
        ) -> c_int {
            // SAFETY: the caller's own arguments.
            unsafe {
                let rest = without_ours($set);
                let set = rest.as_ref().map_or($set, std::ptr::from_ref);
                below::$function()($($before,)* set, $($after,)*)
            }
        }
    };
}

with_set!("sigwait", sigwait([set] signal: *mut c_int));
with_set!("sigwaitinfo", sigwaitinfo([set] info: *mut libc::siginfo_t));
with_set!("sigtimedwait", sigtimedwait([set] info: *mut libc::siginfo_t, time: *const libc::timespec));
with_set!("signalfd", signalfd(fd: c_int, [set] flags: c_int));

/// Unblocking the recorder's signal does no harm, and `SIG_SETMASK` must not keep it.
macro_rules! with_mask {
    ($name:literal, $function:ident) => {
        with_set!($name, $function(how: c_int, [set] old: *mut libc::sigset_t));
    };
}

with_mask!("sigprocmask", sigprocmask);
with_mask!("pthread_sigmask", pthread_sigmask);

#[cfg_attr(not(test), unsafe(export_name = "sigaction"))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn sigaction(signal: c_int, new: Action, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        if !is_ours(signal) {
            let Some(mask) = new.as_ref().and_then(|new| without_ours(&new.sa_mask)) else {
                return below::sigaction()(signal, new, old);
            };
            let mut action = *new;
            action.sa_mask = mask;
            return below::sigaction()(signal, &action, old);
        }
        let new = new.as_ref().map(|new| Pair {
            first: new.sa_sigaction,
            second: new.sa_flags as usize,
        });
        let before = below::own_handler(new);
        if let Some(old) = old.as_mut() {
            *old = std::mem::zeroed();
            old.sa_sigaction = before.first;
            old.sa_flags = before.second as c_int;
        }
        0
    }
}

/// A wrapper of a function that sets a handler and returns the one before.
macro_rules! sets_handler {
    ($($name:literal)* => $function:ident, $flags:expr) => {
        $(
            const _: () = {
                #[cfg_attr(not(test), unsafe(export_name = $name))]
                #[cfg_attr(test, allow(dead_code))]
                unsafe extern "C" fn wrapper(
                    signal: c_int,
                    handler: libc::sighandler_t,
                ) -> libc::sighandler_t {
                    if is_ours(signal) {
                        return below::own_handler(Some(Pair { first: handler, second: $flags })).first;
                    }
                    // SAFETY: the caller's own arguments.
                    unsafe { below::$function()(signal, handler) }
                }
            };
        )*
    };
}

sets_handler!("signal" "bsd_signal" "ssignal" => signal, libc::SA_RESTART as usize);
sets_handler!("sysv_signal" "__sysv_signal" => sysv_signal, 0);
sets_handler!("sigset" => sigset, 0);

#[cfg_attr(not(test), unsafe(export_name = "sigignore"))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if is_ours(signal) {
        let ignore = Pair {
            first: libc::SIG_IGN,
            second: 0,
        };
        below::own_handler(Some(ignore));
        return 0;
    }
    // SAFETY: the caller's own argument.
    unsafe { below::sigignore()(signal) }
}

#[cfg_attr(not(test), unsafe(export_name = "sighold"))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    if is_ours(signal) {
        return 0;
    }
    // SAFETY: the caller's own argument.
    unsafe { below::sighold()(signal) }
}
