//! One run of the command under the failing library: how it is started, and how it ended.
//!
//! A run of `--fail-each` has no input, no output except a sanitizer's report, and no core file. It is a
//! process group of its own, which is killed when it hangs.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use larder_analysis::symbols::ElfFile;
use larder_base::execute::{self, Stdout};
use larder_base::failure::{Failure, Result};
use larder_base::libraries::Library;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::printable;
use larder_base::target::{Target, reason};
use object::{Object, ObjectSection};

use super::args::FailPlan;
use super::layout::{LOG_VARIABLE, RANGE_VARIABLE};
use super::log::{ImageLog, Log};

const ASAN_VARIABLE: &str = "ASAN_OPTIONS";

/// Which calls fail: from the first to the last, counted from 1.
#[derive(Clone, Copy, Debug)]
pub enum Range {
    None,
    One(u64),
    From(u64),
}

impl Range {
    fn text(self) -> String {
        match self {
            Range::None => "-".to_owned(),
            Range::One(number) => format!("{number}-{number}"),
            Range::From(first) => format!("{first}-"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    Code(i32),
    Signal(i32),
    Hang,
    /// A sanitizer's first line.
    Report(String),
}

impl Ended {
    pub fn is_bad(&self) -> bool {
        !matches!(self, Ended::Code(_))
    }
}

pub struct Run {
    pub ended: Ended,
    pub images: Vec<ImageLog>,
    pub duration: Duration,
}

pub struct Runner<'p> {
    plan: &'p FailPlan,
    target: Target,
    preload: OsString,
    /// For a program with a sanitizer's runtime: lets it run without being the first library.
    asan_options: Option<OsString>,
}

impl<'p> Runner<'p> {
    pub fn new(plan: &'p FailPlan) -> Result<Self> {
        let target = Target::resolve(&plan.command[0])?;
        let path = target.libraries();
        let mut libraries = vec![path.find(Library::Fail)?];
        let sanitized = has_sanitizer(&target);
        // A sanitizer's runtime is a malloc of its own, which has to know of every block.
        if plan.on_larder && !sanitized {
            libraries.extend(path.allocator()?);
        }
        Ok(Runner {
            plan,
            preload: preload_value(&libraries)?,
            target,
            asan_options: sanitized.then(|| {
                let mut options = std::env::var_os(ASAN_VARIABLE).unwrap_or_default();
                options.push(":verify_asan_link_order=0");
                options
            }),
        })
    }

    /// Runs the command in the foreground, with the caller's input and output.
    pub fn foreground(&self, range: Range) -> Result<(ExitStatus, Vec<ImageLog>)> {
        let log = new_log()?;
        let text = range.text();
        let environment = self.environment(&log, OsStr::new(&text));
        let status = execute::supervise(
            &self.target.path,
            &self.plan.command,
            &environment,
            Stdout::Ours,
        );
        let status = status.map_err(|error| self.cannot_start(&error))?;
        Ok((status, read_log(&log)?))
    }

    /// Runs the command in the background; `None` if the user interrupts.
    pub fn background(
        &self,
        range: Range,
        limit: Option<Duration>,
        interrupted: &AtomicBool,
    ) -> Result<Option<Run>> {
        let log = new_log()?;
        let text = range.text();
        let mut command = Command::new(&self.target.path);
        command
            .arg0(&self.plan.command[0])
            .args(&self.plan.command[1..])
            .envs(self.environment(&log, OsStr::new(&text)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: the closure makes one async-signal-safe call.
        unsafe { command.pre_exec(without_core_file) };
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| self.cannot_start(&error))?;
        let reports = watch(child.stderr.take());
        let ended = wait(&mut child, start, limit, interrupted);
        let duration = start.elapsed();
        // Ends the processes that the run left behind.
        kill_group(&child);
        let Some(mut ended) = ended.map_err(|error| self.cannot_start(&error))? else {
            return Ok(None);
        };
        // A process that left the group may hold the pipe open for ever.
        if let Ok(report) = reports.recv_timeout(Duration::from_secs(1))
            && ended != Ended::Hang
        {
            ended = Ended::Report(report);
        }
        Ok(Some(Run {
            ended,
            images: read_log(&log)?,
            duration,
        }))
    }

    fn environment<'a>(&'a self, log: &'a Log, range: &'a OsStr) -> Vec<(&'a str, &'a OsStr)> {
        let mut environment = vec![
            (PRELOAD_VARIABLE, self.preload.as_os_str()),
            (RANGE_VARIABLE, range),
            (LOG_VARIABLE, log.path().as_os_str()),
        ];
        if let Some(options) = &self.asan_options {
            environment.push((ASAN_VARIABLE, options));
        }
        environment
    }

    fn cannot_start(&self, error: &io::Error) -> Failure {
        Failure::unfit(format!(
            "{}: cannot be executed: {}",
            printable::name(&self.target.path),
            reason(error)
        ))
    }

    /// The failure when no process of a run counted an allocation.
    pub fn nothing_counted(&self) -> Failure {
        let program = printable::name(&self.target.program);
        let own =
            ElfFile::open(&self.target.program).is_some_and(|file| file.defines_function("malloc"));
        Failure::unfit(if own {
            format!(
                "{program}: has a malloc of its own linked in, which no preload reaches: link it \
                 dynamically"
            )
        } else {
            format!(
                "{program}: no allocation was counted: it may drop LD_PRELOAD or clear its \
                 environment; `larder doctor PROGRAM` shows the cause"
            )
        })
    }
}

fn new_log() -> Result<Log> {
    Log::new().map_err(|error| {
        Failure::failed(format!(
            "no temporary file can be made: {}: set TMPDIR to a writable directory",
            reason(&error)
        ))
    })
}

fn read_log(log: &Log) -> Result<Vec<ImageLog>> {
    log.read().map_err(|error| {
        Failure::failed(format!(
            "{}: cannot be read: {}: set TMPDIR to another directory",
            printable::name(log.path()),
            reason(&error)
        ))
    })
}

/// Whether the program is linked against a sanitizer's runtime as a shared library.
fn has_sanitizer(target: &Target) -> bool {
    let names = [
        "libasan.so",
        "libtsan.so",
        "liblsan.so",
        "libhwasan.so",
        "libclang_rt.",
    ];
    ElfFile::open(&target.program).is_some_and(|file| {
        let Some(parsed) = file.parse() else {
            return false;
        };
        let strings = parsed.section_by_name(".dynstr");
        let strings = strings.and_then(|section| section.data().ok());
        strings.unwrap_or_default().split(|b| *b == 0).any(|text| {
            let name = String::from_utf8_lossy(text);
            names.iter().any(|known| name.starts_with(known))
        })
    })
}

fn without_core_file() -> io::Result<()> {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is valid; if the call fails, a core file is left.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    Ok(())
}

fn kill_group(child: &Child) {
    if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// Waits in steps that grow from a tenth of a millisecond to five; `None` if interrupted.
fn wait(
    child: &mut Child,
    start: Instant,
    limit: Option<Duration>,
    interrupted: &AtomicBool,
) -> io::Result<Option<Ended>> {
    let mut step = Duration::from_micros(100);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(match (status.code(), status.signal()) {
                (Some(code), _) => Ended::Code(code),
                (None, signal) => Ended::Signal(signal.unwrap_or(0)),
            }));
        }
        let over = limit.is_some_and(|limit| start.elapsed() > limit);
        let stop = interrupted.load(Ordering::Relaxed);
        if over || stop {
            kill_group(child);
            child.wait()?;
            return Ok((!stop).then_some(Ended::Hang));
        }
        std::thread::sleep(step);
        step = (step * 2).min(Duration::from_millis(5));
    }
}

/// Longer lines are cut; a report's first line is shorter.
const MAX_LINE: usize = 4096;

/// Reads a run's stderr to its end, and sends the first line of a sanitizer's report.
fn watch(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, reports) = channel();
    std::thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let (mut buffer, mut line) = (vec![0; 64 << 10], Vec::new());
        let mut found = false;
        while let Ok(bytes @ 1..) = pipe.read(&mut buffer) {
            for byte in &buffer[..bytes] {
                if *byte != b'\n' {
                    if line.len() < MAX_LINE {
                        line.push(*byte);
                    }
                    continue;
                }
                if !found && let Some(report) = sanitizer_report(&line) {
                    found = true;
                    let _ = send.send(report);
                }
                line.clear();
            }
        }
        if !found && let Some(report) = sanitizer_report(&line) {
            let _ = send.send(report);
        }
    });
    reports
}

/// The first line of a sanitizer's report, if this is one.
fn sanitizer_report(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let at = [
        "ERROR: AddressSanitizer",
        "ERROR: HWAddressSanitizer",
        "ERROR: LeakSanitizer",
        "WARNING: ThreadSanitizer",
        "WARNING: MemorySanitizer",
        "runtime error: ",
    ];
    let start = at.iter().find_map(|mark| text.find(mark))?;
    Some(text[start..].to_owned())
}

/// Set by the first signal, which ends the runs; a second one ends the tool.
pub fn interruption() -> Result<Arc<AtomicBool>> {
    let wanted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let both = signal_hook::flag::register_conditional_default(signal, Arc::clone(&wanted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&wanted)));
        both.map_err(|error| {
            Failure::failed(format!(
                "signals cannot be handled: {}: try again",
                reason(&error)
            ))
        })?;
    }
    Ok(wanted)
}

/// The command in a form that a shell takes.
pub fn words(command: &[OsString]) -> String {
    let quoted = command.iter().map(|word| {
        larder_base::path::quoted(std::path::Path::new(OsStr::from_bytes(word.as_bytes())))
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sanitizers_report_is_known_by_its_first_line() {
        let line = b"==12==ERROR: AddressSanitizer: heap-use-after-free on address 0x1";
        let report = "ERROR: AddressSanitizer: heap-use-after-free on address 0x1";
        assert_eq!(sanitizer_report(line).as_deref(), Some(report));
        assert!(sanitizer_report(b"a.c:3:5: runtime error: load of null pointer").is_some());
        assert_eq!(sanitizer_report(b"error: out of memory"), None);
    }

    #[test]
    fn endless_output_without_a_line_takes_no_memory_and_a_late_report_is_found() {
        let noise = io::repeat(b'x').take(10 << 20);
        let output = noise.chain(&b"\n=1=ERROR: LeakSanitizer: detected memory leaks"[..]);
        let report = watch(Some(output)).recv().unwrap();
        assert_eq!(report, "ERROR: LeakSanitizer: detected memory leaks");
        assert!(watch(Some(io::empty())).recv().is_err());
    }

    #[test]
    fn ranges_are_written_as_the_library_reads_them() {
        assert_eq!(Range::None.text(), "-");
        assert_eq!(Range::One(17).text(), "17-17");
        assert_eq!(Range::From(11).text(), "11-");
    }
}
