//! Runs a command and visits each of its processes at its end, however it ends: the kernel stops it
//! there for us, with all of its memory, and it ends after the visit.
//!
//! One thread traces, because ptrace is per thread, and another starts the command: starting waits for
//! exec, and exec waits for the tracer. Until its end a process stops only for fork, exec and signals.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use larder_base::execute::{self, Stdout};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::ptrace;

const EVERY: libc::c_int = libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK;

/// Like `execute::supervise`; `at_end` gets each process's number.
pub fn supervise(
    path: &Path,
    words: &[OsString],
    environment: &[(&str, &OsStr)],
    stdout: Stdout,
    at_end: &mut dyn FnMut(u32),
) -> io::Result<ExitStatus> {
    let signals = execute::catch_signals()?;
    let (number, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    let (go, start) = pipe_with(PipeFlags::CLOEXEC)?;
    std::thread::scope(|scope| {
        let starting = scope.spawn(move || {
            let wait = move || wait_for_tracer(&tell, &go);
            execute::start(path, words, environment, stdout, wait)
        });
        let process = match trace_from_start(number, start) {
            Ok(process) => process,
            Err(error) => {
                // The command was not started, or cannot be traced.
                let mut child = starting.join().map_err(|_| io::ErrorKind::Other)??;
                child.kill()?;
                child.wait()?;
                return Err(error);
            }
        };
        if !reaches_exec(process)? {
            let child = starting.join().map_err(|_| io::ErrorKind::Other)?;
            return child.and_then(|mut child| child.wait());
        }
        let id = rustix::process::Pid::from_raw(process).ok_or(io::ErrorKind::Other)?;
        let _forwarding = execute::forward_to(signals, id);
        to_the_end(process, at_end)
    })
}

/// In the child, before exec: async-signal-safe.
fn wait_for_tracer(tell: &OwnedFd, go: &OwnedFd) -> io::Result<()> {
    let id = std::process::id().to_ne_bytes();
    rustix::io::write(tell, &id)?;
    rustix::io::read(go, &mut [0; 1])?;
    Ok(())
}

fn trace_from_start(number: OwnedFd, start: OwnedFd) -> io::Result<libc::pid_t> {
    let mut id = [0; 4];
    File::from(number).read_exact(&mut id)?;
    let process = u32::from_ne_bytes(id) as libc::pid_t;
    // Only exec: the caller reports what fails before it.
    ptrace::request(
        libc::PTRACE_SEIZE,
        process,
        libc::PTRACE_O_TRACEEXEC as usize,
    )?;
    File::from(start).write_all(&[1])?;
    Ok(process)
}

/// Whether it stops; it may end before.
fn reaches_exec(process: libc::pid_t) -> io::Result<bool> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let which = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
        // SAFETY: waitid writes to `info`, which is large enough; all zeros are a valid one.
        let code = unsafe {
            let waited = libc::waitid(libc::P_PID, process as u32, info.as_mut_ptr(), which);
            if waited != 0 {
                return Err(io::Error::last_os_error());
            }
            info.assume_init().si_code
        };
        if ![libc::CLD_TRAPPED, libc::CLD_STOPPED].contains(&code) {
            return Ok(false);
        }
        let (_, status) = wait(process)?;
        if event(status) == libc::PTRACE_EVENT_EXEC {
            ptrace::request(libc::PTRACE_SETOPTIONS, process, EVERY as usize)?;
            ptrace::request(libc::PTRACE_CONT, process, 0)?;
            return Ok(true);
        }
        go_on(process, status);
    }
}

fn to_the_end(command: libc::pid_t, at_end: &mut dyn FnMut(u32)) -> io::Result<ExitStatus> {
    loop {
        let (process, status) = wait(-1)?;
        if !libc::WIFSTOPPED(status) {
            if process == command {
                return Ok(ExitStatus::from_raw(status));
            }
            continue;
        }
        if event(status) == libc::PTRACE_EVENT_EXIT {
            at_end(process as u32);
        }
        go_on(process, status);
    }
}

fn wait(process: libc::pid_t) -> io::Result<(libc::pid_t, libc::c_int)> {
    let mut status = 0;
    loop {
        // SAFETY: writes to `status` alone.
        let found = unsafe { libc::waitpid(process, &mut status, libc::__WALL) };
        if found > 0 {
            return Ok((found, status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// 0: a signal is about to be delivered.
fn event(status: libc::c_int) -> libc::c_int {
    status >> 16
}

/// Continues as without us: a signal is delivered, and one that stops the process stops it.
fn go_on(process: libc::pid_t, status: libc::c_int) {
    const STOPS: [libc::c_int; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let signal = libc::WSTOPSIG(status);
    let (request, signal) = match event(status) {
        0 => (libc::PTRACE_CONT, signal),
        libc::PTRACE_EVENT_STOP if STOPS.contains(&signal) => (libc::PTRACE_LISTEN, 0),
        _ => (libc::PTRACE_CONT, 0),
    };
    // It may have been killed meanwhile.
    let _ = ptrace::request(request, process, signal as usize);
}
