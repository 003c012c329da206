//! Starts the command with the caller's file descriptors, signal mask, ignored signals, arguments and
//! environment, except LD_PRELOAD and LARDER_*. A descriptor 0, 1 or 2 that the caller has closed is
//! closed again, because Rust's start-up opens it on /dev/null.
//!
//! Rust's start-up ignores SIGPIPE before `main`, so a constructor reads the caller's setting earlier.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// Where the command's stdout goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdout {
    #[default]
    Ours,
    /// To our stderr, because a program reads what we print on stdout.
    Stderr,
}

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_SIGPIPE: extern "C" fn() = remember_sigpipe;

extern "C" fn remember_sigpipe() {
    SIGPIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action sigaction only writes the current one to `action`.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn restore_sigpipe() {
    let handler = if SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    // SAFETY: sets a disposition without a handler; async-signal-safe.
    unsafe { libc::signal(libc::SIGPIPE, handler) };
}

/// Replaces this process by the command; returns only if that failed.
///
/// `environment` is set on top of this process's own.
pub fn replace(path: &Path, words: &[OsString], environment: &[(&str, &OsStr)]) -> io::Error {
    for (name, value) in environment {
        // SAFETY: `run` has started no thread.
        unsafe { std::env::set_var(name, value) };
    }
    let strings = || -> io::Result<(CString, Vec<CString>)> {
        let words = words.iter().map(|word| CString::new(word.as_bytes()));
        Ok((
            CString::new(path.as_os_str().as_bytes())?,
            words.collect::<Result<_, _>>()?,
        ))
    };
    let (path, words) = match strings() {
        Ok(strings) => strings,
        Err(error) => return error,
    };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    restore_sigpipe();
    // SAFETY: both arguments are NUL-terminated and live until the call returns, if it does.
    unsafe { libc::execv(path.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Starts the command as a child and waits for its end; forwards the signals sent to us.
pub fn supervise(
    path: &Path,
    words: &[OsString],
    environment: &[(&str, &OsStr)],
    stdout: Stdout,
) -> io::Result<ExitStatus> {
    let signals = catch_signals()?;
    let mut child = start(path, words, environment, stdout, || Ok(()))?;
    let _forwarding = forward_to(signals, rustix::process::Pid::from_child(&child));
    child.wait()
}

pub type Signals = SignalsInfo<WithRawSiginfo>;

/// The signals that are forwarded, without those that the caller ignores.
pub fn catch_signals() -> io::Result<Signals> {
    let handled: Vec<i32> = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]
        .into_iter()
        .filter(|signal| !is_ignored(*signal))
        .collect();
    Signals::new(handled)
}

/// Forwards signals until it is dropped.
pub struct Forwarding {
    handle: signal_hook::iterator::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn forward_to(signals: Signals, process: rustix::process::Pid) -> Forwarding {
    Forwarding {
        handle: signals.handle(),
        thread: Some(std::thread::spawn(move || forward(signals, process))),
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Calls `last` in the child before exec. REQUIRES: `last` is async-signal-safe and takes no lock.
pub fn start(
    path: &Path,
    words: &[OsString],
    environment: &[(&str, &OsStr)],
    stdout: Stdout,
    last: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: with a null new set pthread_sigmask only writes the current one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), mask.as_mut_ptr()) };
    // SAFETY: written by the call above, and a zeroed set is a valid empty one.
    let mask = unsafe { mask.assume_init() };
    let mut command = Command::new(path);
    command
        .arg0(&words[0])
        .args(&words[1..])
        .envs(environment.iter().copied());
    if stdout == Stdout::Stderr {
        command.stdout(io::stderr());
    }
    let restore = move || {
        restore_sigpipe();
        // SAFETY: async-signal-safe, and the set outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, ptr::null_mut()) };
        last()
    };
    // SAFETY: the closure makes only async-signal-safe calls and takes no lock.
    unsafe { command.pre_exec(restore) };
    command.spawn()
}

/// Forwards signals that a process sent only to us; the terminal's reach the child by themselves.
fn forward(mut signals: Signals, child: rustix::process::Pid) {
    for info in signals.forever() {
        let from_terminal = info.si_code > 0;
        if from_terminal && matches!(info.si_signo, SIGINT | SIGQUIT) {
            continue;
        }
        if let Some(signal) = rustix::process::Signal::from_named_raw(info.si_signo) {
            let _ = rustix::process::kill_process(child, signal);
        }
    }
}

/// The exit code that a shell reports for this end.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 125,
    }
}
