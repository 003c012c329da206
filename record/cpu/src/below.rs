//! The functions that the wrappers replace, and those of the recorder.
//!
//! Invariant: an address does not change once it is known; it is that of the next definition, or of `missing`.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_wrap::{anywhere, missing, next};

macro_rules! functions {
    ($($number:literal $function:ident: $type:ty, $name:literal;)*) => {
        $(
            pub fn $function() -> $type {
                // SAFETY: the address is the next definition of this symbol, which has this type.
                unsafe { std::mem::transmute::<usize, $type>(address($number)) }
            }
        )*
        const NAMES: &[&CStr] = &[$($name),*];
    };
}

type Set = *const libc::sigset_t;
type Handler = libc::sighandler_t;
pub type Action = *const libc::sigaction;

functions! {
    0 sigaction: unsafe extern "C" fn(c_int, Action, *mut libc::sigaction) -> c_int, c"sigaction";
    1 signal: unsafe extern "C" fn(c_int, Handler) -> Handler, c"signal";
    2 sysv_signal: unsafe extern "C" fn(c_int, Handler) -> Handler, c"__sysv_signal";
    3 sigset: unsafe extern "C" fn(c_int, Handler) -> Handler, c"sigset";
    4 sigignore: unsafe extern "C" fn(c_int) -> c_int, c"sigignore";
    5 sighold: unsafe extern "C" fn(c_int) -> c_int, c"sighold";
    6 sigprocmask: unsafe extern "C" fn(c_int, Set, *mut libc::sigset_t) -> c_int, c"sigprocmask";
    7 pthread_sigmask: unsafe extern "C" fn(c_int, Set, *mut libc::sigset_t) -> c_int, c"pthread_sigmask";
    8 sigwait: unsafe extern "C" fn(Set, *mut c_int) -> c_int, c"sigwait";
    9 sigwaitinfo: unsafe extern "C" fn(Set, *mut libc::siginfo_t) -> c_int, c"sigwaitinfo";
    10 sigtimedwait: unsafe extern "C" fn(Set, *mut libc::siginfo_t, *const libc::timespec) -> c_int, c"sigtimedwait";
    11 signalfd: unsafe extern "C" fn(c_int, Set, c_int) -> c_int, c"signalfd";
}

/// The numbers of those that a wrapper jumps to.
pub const PTHREAD_CREATE: usize = 12;
pub const THRD_CREATE: usize = 13;
const JUMPED_TO: [&CStr; 2] = [c"pthread_create", c"thrd_create"];

/// By number; 0 until it is known.
pub static FOUND: [AtomicUsize; NAMES.len() + JUMPED_TO.len()] =
    [const { AtomicUsize::new(0) }; NAMES.len() + JUMPED_TO.len()];

/// What the recorder stores of the program's action, and what a thread begins with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pair {
    pub first: usize,
    pub second: usize,
}

type Signal = extern "C" fn() -> c_int;
type Keep = extern "C" fn(*const Pair) -> Pair;
type Thread = extern "C" fn(usize, usize) -> Pair;

static SIGNAL: AtomicUsize = AtomicUsize::new(0);
static KEEP: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicUsize = AtomicUsize::new(0);

/// REQUIRES: called by the library's constructor.
pub fn look_up() {
    for number in 0..FOUND.len() {
        address(number);
    }
    KEEP.store(anywhere(c"larder_record_cpu_handler"), Ordering::Release);
    THREAD.store(anywhere(c"larder_record_thread"), Ordering::Release);
    SIGNAL.store(anywhere(c"larder_record_cpu_signal"), Ordering::Release);
}

/// The signal that the recorder samples with; 0 if it does not.
pub fn recorder_signal() -> c_int {
    match SIGNAL.load(Ordering::Acquire) {
        0 => 0,
        // SAFETY: the recorder's function of this type.
        address => (unsafe { std::mem::transmute::<usize, Signal>(address) })(),
    }
}

/// The program's own handler and flags for that signal; sets them if there are new ones. REQUIRES: there is
/// such a signal.
pub fn own_handler(new: Option<Pair>) -> Pair {
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    match KEEP.load(Ordering::Acquire) {
        0 => Pair {
            first: libc::SIG_DFL,
            second: 0,
        },
        // SAFETY: the recorder's function of this type.
        address => (unsafe { std::mem::transmute::<usize, Keep>(address) })(new),
    }
}

/// What to start a thread with instead.
pub fn thread(function: usize, argument: usize) -> Pair {
    match THREAD.load(Ordering::Acquire) {
        0 => Pair {
            first: function,
            second: argument,
        },
        // SAFETY: the recorder's function of this type.
        address => (unsafe { std::mem::transmute::<usize, Thread>(address) })(function, argument),
    }
}

/// The function below, by its number.
pub fn address(number: usize) -> usize {
    let Some(place) = FOUND.get(number) else {
        return missing as *const () as usize;
    };
    let known = place.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    let name = NAMES.iter().chain(&JUMPED_TO).nth(number);
    let found = match next(name.copied().unwrap_or(c"")) {
        0 => missing as *const () as usize,
        found => found,
    };
    place.store(found, Ordering::Release);
    found
}
