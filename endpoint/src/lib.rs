//! Serves the heap by HTTP from within the program: the same as `larder serve`, for the process itself,
//! at `LARDER_LISTEN`. Preloaded or linked beside liblarder, which has no network code.
//!
//! Its threads do not disturb the program: they block all signals, and have a heap (`dlmalloc`) and a
//! table of open files of their own, so neither the program nor its children inherit a socket. A child
//! of fork has no such thread, and serves nothing.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use larder_live::serve::{Listener, Place, Service, is_token, serve_all};
use rustix::fs::{Mode, OFlags};

mod memory;

#[global_allocator]
static MEMORY: memory::Patient = memory::Patient;

/// The socket, whose name in the file system is removed on drop, and the process that listens.
static LISTENER: Mutex<Option<(u32, Listener)>> = Mutex::new(None);

/// How long the constructor waits until the thread listens or reports why it cannot.
const START: Duration = Duration::from_secs(10);
const STACK_BYTES: usize = 256 << 10;

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        start();
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = errno };
    }
    constructor
};

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = larder_endpoint_close;

/// Removes the socket's name. liblarder finds this library by this function, and calls it before it ends
/// a process by itself. Any thread may call it.
#[unsafe(no_mangle)]
pub extern "C" fn larder_endpoint_close() {
    // In a child of fork, the thread that holds the lock does not exist.
    let Ok(mut listener) = LISTENER.try_lock() else {
        return;
    };
    if listener
        .as_ref()
        .is_some_and(|(id, _)| *id == std::process::id())
    {
        *listener = None;
    }
}

/// `None` if the program has other rights than its user.
fn variable(name: &CStr) -> Option<OsString> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *const c_char;
    }
    // SAFETY: the name ends with a zero.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a variable's value, which nothing changes while the libraries are loaded.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsString::from_vec(value.to_bytes().to_vec())).filter(|value| !value.is_empty())
}

fn complain(what: impl Display, why: impl Display) {
    let shown: String = what.to_string().chars().take(200).collect();
    let line = format!(
        "larder: LARDER_LISTEN: {}: {why}; nothing is served\n",
        shown.escape_debug()
    );
    // stderr may be closed.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

fn start() {
    let Some(wanted) = variable(c"LARDER_LISTEN") else {
        return;
    };
    // A child frees this thread's variables as it exits, and the thread that serves may hold the heap's
    // lock at any fork.
    // SAFETY: called once; no other thread uses this library's heap yet, so its lock is free.
    unsafe { dlmalloc::enable_alloc_after_fork() };
    let wanted = String::from_utf8_lossy(wanted.as_bytes()).into_owned();
    let place = wanted.replace("%p", &std::process::id().to_string());
    let place: Place = match place.parse() {
        Ok(place) => place,
        Err(why) => return complain(wanted, why),
    };
    let token = match place {
        Place::Path(_) => None,
        Place::Port(_) => {
            let token = variable(c"LARDER_TOKEN").and_then(|token| token.into_string().ok());
            match token.filter(|token| is_token(token)) {
                Some(token) => Some(token),
                None => {
                    let why = "LARDER_TOKEN has to have 16 to 255 characters, without spaces";
                    return complain(wanted, why);
                }
            }
        }
    };
    let (begun, begins) = channel();
    let serve = move || run(&wanted, &place, token, begun);
    let thread = thread::Builder::new().name("larder-endpoint".into());
    match without_signals(|| thread.stack_size(STACK_BYTES).spawn(serve)) {
        // The thread reports what it cannot do.
        Ok(_) => drop(begins.recv_timeout(START)),
        Err(error) => complain("the thread", error),
    }
}

/// A new thread inherits the signal mask of its creator.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: both are written by the calls before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let made = make();
    // SAFETY: written by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    made
}

/// Runs in the thread. Drops `begun` when it listens, or cannot.
fn run(wanted: &str, place: &Place, token: Option<String>, begun: Sender<()>) {
    if let Err(error) = leave_files() {
        let why = "the system cannot separate open files; it takes Linux 5.9";
        complain(format_args!("close_range: {error}"), why);
    } else if let Some((socket, service)) = listen(wanted, place, token) {
        leave_standard_files();
        drop(begun);
        serve_all(&socket, &service);
    }
}

type Serving = (larder_live::serve::Socket, Arc<Service>);

fn listen(wanted: &str, place: &Place, token: Option<String>) -> Option<Serving> {
    let listener = match Listener::open(place) {
        Ok(listener) => listener,
        Err(error) => {
            complain(wanted, larder_live::serve::reason(&error));
            return None;
        }
    };
    let service = match Service::of_itself(token) {
        Ok(service) => Arc::new(service),
        Err(obstacle) => {
            complain(wanted, obstacle);
            return None;
        }
    };
    match listener.socket.try_clone() {
        Ok(socket) => {
            let mut kept = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = Some((std::process::id(), listener));
            Some((socket, service))
        }
        Err(error) => {
            complain(wanted, larder_live::serve::reason(&error));
            None
        }
    }
}

/// Gives the calling thread, and those that it creates, a table of open files of their own, with the
/// standard ones for error messages.
fn leave_files() -> io::Result<()> {
    const FIRST: u32 = 3;
    // SAFETY: no code of this library uses the files that are closed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    match done as c_int {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Replaces the program's standard files, so that its pipes are not held open, and no client's socket
/// gets such a number.
fn leave_standard_files() {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    for file in 0..3 {
        use std::os::fd::AsRawFd;
        match &nothing {
            // SAFETY: the table of open files is this thread's own.
            Ok(nothing) => unsafe { libc::dup2(nothing.as_raw_fd(), file) },
            // SAFETY: as above.
            Err(_) => unsafe { libc::close(file) },
        };
    }
}
