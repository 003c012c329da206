//! Records a process that runs already, until its end, a signal to the tool, or the end of a time.
//!
//! Invariant: from the first change to the process until the recording has ended, a signal does not end the tool.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_base::execute::{self, Signals};
use larder_base::failure::{Failure, Result};
use larder_base::libraries::{Library, LibraryPath};
use larder_base::printable;
use larder_base::target::reason;
use larder_live::process::Obstacle;
use larder_live::process::attach::{Attached, Refusal, attach};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{RecordPlan, default_output, make_trace_directory, summary};

/// How often the tool looks for signals.
const STEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Records; 0.
pub fn record(plan: &RecordPlan, process: u32) -> Result<u8> {
    let recorder = LibraryPath::from_environment().find(Library::Recorder)?;
    let recorder = fs::canonicalize(&recorder).map_err(|error| {
        let name = printable::name(&recorder);
        Failure::failed(format!("{name}: cannot be found: {}", reason(&error)))
    })?;
    let no_process = |_| Obstacle::NoProcess.failure(process);
    let id = Pid::from_raw(process as i32).ok_or(io::Error::from(io::ErrorKind::NotFound));
    let id = id.map_err(no_process)?;
    let end = pidfd_open(id, PidfdFlags::empty()).map_err(|error| no_process(error.into()))?;
    let mut signals = execute::catch_signals().map_err(|error| {
        Failure::failed(format!("signals cannot be caught: {}", reason(&error)))
    })?;
    let shown = match &plan.output {
        Some(output) => output.clone(),
        None => default_output(&name_of(process)),
    };
    let directory = fs::canonicalize(make_trace_directory(&shown)?);
    let directory = directory.map_err(|error| Failure::failed(reason(&error)))?;
    // Held while the tool runs; see `left_behind`.
    let _lock = lock(&directory);
    let attached = give_to_user(&directory, process)
        .and_then(|()| begin(process, &recorder, &directory).map_err(|why| why.failure(process)));
    let attached = attached.inspect_err(|_| {
        let _ = fs::remove_dir_all(&directory);
    })?;
    let end_by = match plan.seconds {
        Some(seconds) => format!("for {seconds} s, or until Ctrl-C"),
        None => "end with Ctrl-C".to_owned(),
    };
    say(&format!(
        "recording process {process}, of which a thread stood for {:.1} ms; {end_by}",
        milliseconds(attached.pause)
    ));
    let until = plan
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    wait(&end, &mut signals, until);
    finish(&attached, process)?;
    let program = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    say(&summary(&shown, &directory, &program));
    Ok(0)
}

/// Ends the recording of a tool that was killed, if there is one.
fn begin(
    process: u32,
    recorder: &Path,
    directory: &Path,
) -> std::result::Result<Attached, Refusal> {
    match attach(process, recorder, directory) {
        Err(Refusal::Taken) if left_behind(process) => {
            Attached::left_behind(process, recorder).detach()?;
            attach(process, recorder, directory)
        }
        other => other,
    }
}

/// Whether the process records into a directory that no tool has locked.
fn left_behind(process: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
    let files = descriptors.into_iter().flatten().flatten();
    let traces = files.filter_map(|file| {
        let trace = fs::read_link(file.path()).ok()?;
        let is_trace = trace.extension().is_some_and(|ending| ending == "ltrace");
        is_trace
            .then(|| trace.parent().map(Path::to_owned))
            .flatten()
    });
    traces
        .into_iter()
        .any(|directory| lock(&directory).is_some())
}

/// `None`: another tool has it, or it is gone.
fn lock(directory: &Path) -> Option<File> {
    let directory = File::open(directory).ok()?;
    let locked = flock(&directory, FlockOperation::NonBlockingLockExclusive);
    locked.is_ok().then_some(directory)
}

fn finish(attached: &Attached, process: u32) -> Result<()> {
    attached.detach().map(|_| ()).map_err(|why| {
        let Failure { status, message } = why.failure(process);
        let remedy = "its recording goes on until its end, or the next `larder record` of it";
        Failure::new(status, format!("{message}; {remedy}"))
    })
}

/// What the command of a process is called.
fn name_of(process: u32) -> OsString {
    let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    let name = name.trim_ascii_end().to_vec();
    OsString::from_vec(name)
}

/// A directory that root makes for another user's process is that user's.
fn give_to_user(directory: &Path, process: u32) -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // Real, effective, saved, file system.
    let effective = |field: &str| -> Option<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let own = rustix::process::geteuid().as_raw();
    let (Some(user), Some(group)) = (effective("Uid:"), effective("Gid:")) else {
        return Ok(());
    };
    if own != 0 || user == own {
        return Ok(());
    }
    std::os::unix::fs::chown(directory, Some(user), Some(group)).map_err(|error| {
        let name = printable::name(directory);
        Failure::failed(format!(
            "{name}: cannot be given to the user of process {process}: {}",
            reason(&error)
        ))
    })
}

/// Until the process ends, a signal comes, or the time is over.
fn wait(end: &OwnedFd, signals: &mut Signals, until: Option<Instant>) {
    let over = || until.is_some_and(|until| Instant::now() >= until);
    while signals.pending().next().is_none() && !over() {
        let mut ready = [PollFd::new(end, PollFlags::IN)];
        if poll(&mut ready, Some(&STEP)).is_ok_and(|count| count > 0) {
            return;
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A closed stderr is no error.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "larder: {line}");
}
