//! Answers the recorder when it asks at a program's end which blocks are lost (record/src/ask.rs). All
//! calls are in the trace, so the live blocks are known, and `look` finds which of them are reachable.
//!
//! A thread starts `look` for one process at a time; each process waits for its answer. A process that
//! cannot be examined gets none, and its trace has no record of lost blocks.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use super::look::HIDDEN_COMMAND;

/// File numbers and time.
const QUESTION_BYTES: usize = 16;

/// Answers until it is dropped.
pub struct AtEnd {
    pub name: String,
    listener: UnixListener,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl AtEnd {
    /// Listens for processes that record into the directory.
    pub fn listen(directory: &Path) -> io::Result<Self> {
        let (name, listener) = bind()?;
        let (own, directory) = (listener.try_clone()?, directory.to_owned());
        Ok(Self {
            name,
            listener,
            thread: Some(std::thread::spawn(move || answer_all(&own, &directory))),
        })
    }

    /// Stops, and returns a line for each process that could not be examined.
    pub fn finish(mut self) -> Vec<String> {
        // SAFETY: the descriptor is our own; the thread in `accept` wakes up.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        let thread = self.thread.take();
        thread.and_then(|t| t.join().ok()).unwrap_or_default()
    }
}

fn bind() -> io::Result<(String, UnixListener)> {
    let process = std::process::id();
    let name = format!("larder-record-{process}-{:016x}", fastrand::u64(..));
    let address = SocketAddr::from_abstract_name(&name)?;
    UnixListener::bind_addr(&address).map(|listener| (name, listener))
}

fn answer_all(listener: &UnixListener, directory: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    while let Ok((connection, _)) = listener.accept() {
        let Some(process) = peer(&connection) else {
            continue;
        };
        if let Err(why) = answer(connection, directory, process) {
            problems.push(format!(
                "process {process}: its lost blocks are not known: {why}"
            ));
        }
    }
    problems
}

/// Starts `look`, whose stdout is the connection.
fn answer(mut connection: UnixStream, directory: &Path, process: u32) -> Result<(), String> {
    let mut question = [0; QUESTION_BYTES];
    let asks = connection.read_exact(&mut question);
    asks.map_err(|_| "it ended before it was examined".to_owned())?;
    let (file, time) = asked(&question, directory);
    let mut look = Command::new("/proc/self/exe");
    look.arg(HIDDEN_COMMAND)
        .args([process.to_string(), time.to_string()])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(connection))
        .stderr(Stdio::piped());
    let started = look.spawn().and_then(|child| {
        // The process sees the end of the answer only when this copy of the connection is closed, too.
        drop(look);
        child.wait_with_output()
    });
    let looked = started.map_err(|error| error.to_string())?;
    let complaint = String::from_utf8_lossy(&looked.stderr);
    match looked.status.success() {
        true => Ok(()),
        false => Err(complaint.trim().replace("larder: error: ", "")),
    }
}

/// The trace file, and the time of the question.
fn asked(question: &[u8; QUESTION_BYTES], directory: &Path) -> (PathBuf, u64) {
    let number = |at: usize| {
        question[at..at + 4]
            .try_into()
            .map_or(0, u32::from_le_bytes)
    };
    let file = format!("{}-{}.ltrace", number(0), number(4));
    let time = question[8..].try_into().map_or(0, u64::from_le_bytes);
    (directory.join(file), time)
}

/// The process at the other end, if it is one of this user's.
fn peer(connection: &UnixStream) -> Option<u32> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` to `found`.
    let got = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    // SAFETY: no arguments.
    let own = unsafe { libc::geteuid() };
    let process = u32::try_from(found.pid)
        .ok()
        .filter(|process| *process != 0);
    process.filter(|_| got == 0 && (own == 0 || own == found.uid))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_question_names_a_file_of_the_directory() {
        let mut question = [0; QUESTION_BYTES];
        question[..4].copy_from_slice(&42u32.to_le_bytes());
        question[4..8].copy_from_slice(&1u32.to_le_bytes());
        question[8] = 7;
        let (file, time) = asked(&question, Path::new("/t"));
        assert_eq!((file, time), (PathBuf::from("/t/42-1.ltrace"), 7));
    }

    #[test]
    fn the_listener_stops_and_reports_what_went_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let at_end = AtEnd::listen(directory.path()).unwrap();
        let address = SocketAddr::from_abstract_name(&at_end.name).unwrap();
        let mut asks = UnixStream::connect_addr(&address).unwrap();
        asks.write_all(&[1; 3]).unwrap();
        drop(asks);
        let problems = at_end.finish();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("ended"), "{problems:?}");
    }
}
