//! `larder torture`: runs the torture program on a malloc and reports what it finds.
//!
//! The program (`larder-torture`, see docs/tasks/test-an-allocator.md) runs in a process of its own,
//! because the malloc may crash that. It reports on stdout, where this end waits for it: a program
//! that prints nothing for too long hangs, and one that ends without a report has crashed.

mod args;
mod message;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use larder_base::error::BaseError;
use larder_base::execute;
use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::libraries::{Library, LibraryPath};
use larder_base::number::counted;
use larder_base::output::{self, Content};
use larder_base::path::{absolute, quoted};
use larder_base::preload::Allocator;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::printable;
use larder_base::target::{Target, check_allocator_library, reason};
use serde_json::json;

use crate::error::{self, LabError};

use args::Victim;
pub use args::{EXAMPLES, RawTorture, TorturePlan};
use message::{Clean, Fault, Message, Progress, Start};

const PROGRAM: &str = "larder-torture";

/// The exit code if a fault was found.
const EXIT_FAULT: u8 = 1;
/// The program's own exit code for wrong use, after a line on stderr.
const PROGRAM_GAVE_UP: i32 = 2;
/// How much longer than the program's own hang limit its silence may last.
const SILENCE: Duration = Duration::from_secs(30);

/// How a run ended.
enum Outcome {
    Clean(Clean),
    Fault(Box<Fault>),
}

/// 0 if nothing was found, 1 if something was.
pub fn torture(plan: &TorturePlan) -> Result<u8> {
    let mut run = Run::start(plan)?;
    let outcome = run.watch(plan)?;
    let command = repeat_command(plan);
    output::write(None, Content::Text, |out| match plan.format {
        Format::Json => print_json(run.started.as_ref(), &outcome, &command, out),
        _ => print_text(&outcome, &command, out),
    })?;
    Ok(match outcome {
        Outcome::Clean(_) => 0,
        Outcome::Fault(_) => EXIT_FAULT,
    })
}

struct Run {
    child: Child,
    lines: Receiver<io::Result<String>>,
    /// The library that must serve malloc.
    expected: Option<PathBuf>,
    started: Option<Start>,
    bar: ProgressBar,
}

impl Run {
    fn start(plan: &TorturePlan) -> Result<Self> {
        let (program, library) = match &plan.victim {
            Victim::Program(program) => (Target::resolve(program.as_os_str())?.path, None),
            Victim::Malloc(allocator) => (crate::built::built(PROGRAM)?, library(allocator)?),
        };
        let mut command = Command::new(&program);
        command.args(&plan.options).arg("--progress");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(library) = &library {
            let preload: OsString = preload_value(std::slice::from_ref(library))?;
            command.env(PRELOAD_VARIABLE, preload);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(source) => return Err(BaseError::NotExecuted { program, source }.into()),
        };
        let lines = read_lines(child.stdout.take());
        Ok(Self {
            child,
            lines,
            expected: library,
            started: None,
            bar: progress_bar(plan),
        })
    }

    /// Reads until the program has reported its result, has ended, or hangs.
    fn watch(&mut self, plan: &TorturePlan) -> Result<Outcome> {
        let patience = Duration::from_secs(plan.hang_seconds.into()) + SILENCE;
        let outcome = loop {
            match self.lines.recv_timeout(patience) {
                Ok(Ok(line)) => {
                    if let Some(outcome) = self.take_line(plan, &line)? {
                        break outcome;
                    }
                }
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => break self.ended_silently()?,
                Err(RecvTimeoutError::Timeout) => break self.hangs(patience),
            }
        };
        self.bar.finish_and_clear();
        // After its report the program only exits; one of its children may still hold the pipe.
        if matches!(outcome, Outcome::Clean(_)) {
            let status = self.wait()?;
            if !status.success() {
                return Ok(Outcome::Fault(
                    self.crash(status, " after its work was done"),
                ));
            }
        }
        Ok(outcome)
    }

    fn take_line(&mut self, plan: &TorturePlan, line: &str) -> Result<Option<Outcome>> {
        let message = serde_json::from_str(line).map_err(|_| {
            self.stop();
            LabError::OtherBuild(format!(
                "the torture program printed '{}', which this tool does not understand: use the \
                 program and the tool of one build",
                printable::escape(line)
            ))
        })?;
        match message {
            Message::Start(start) => {
                self.check_loaded(&start)?;
                if plan.format == Format::Text {
                    self.bar.suspend(|| say(&start.in_words()));
                }
                self.started = Some(start);
                Ok(None)
            }
            Message::Progress(progress) => {
                show(&self.bar, &progress);
                Ok(None)
            }
            Message::Clean(clean) => Ok(Some(Outcome::Clean(clean))),
            Message::Fault(fault) => Ok(Some(Outcome::Fault(fault))),
        }
    }

    /// A preload that the loader refuses costs a line on stderr, and the program runs on another
    /// malloc.
    fn check_loaded(&mut self, start: &Start) -> error::Result<()> {
        let Some(expected) = &self.expected else {
            return Ok(());
        };
        let same = expected
            .canonicalize()
            .is_ok_and(|path| Path::new(&start.malloc).canonicalize().ok() == Some(path));
        if same {
            return Ok(());
        }
        let error = LabError::OtherMalloc(format!(
            "{}: was preloaded, but malloc comes from {}: see `larder doctor`",
            printable::name(expected),
            printable::escape(&start.malloc)
        ));
        self.stop();
        Err(error)
    }

    fn ended_silently(&mut self) -> error::Result<Outcome> {
        let status = self.wait()?;
        if status.code() == Some(PROGRAM_GAVE_UP) {
            let cause = "the torture program could not run: see its line above";
            return Err(LabError::NoRun(cause.to_owned()));
        }
        Ok(Outcome::Fault(self.crash(status, " without a report")))
    }

    fn crash(&self, status: ExitStatus, how: &str) -> Box<Fault> {
        let code = execute::exit_code(status);
        self.fault(
            "crash",
            format!("the torture program ended with exit code {code}{how}"),
        )
    }

    fn hangs(&mut self, patience: Duration) -> Outcome {
        self.stop();
        let seconds = counted(patience.as_secs(), "second");
        Outcome::Fault(self.fault(
            "hang",
            format!("the torture program has printed nothing for {seconds}"),
        ))
    }

    fn fault(&self, kind: &str, text: String) -> Box<Fault> {
        Box::new(Fault {
            kind: kind.to_owned(),
            text,
            at: None,
            block: None,
            other: None,
            repeat: self
                .started
                .as_ref()
                .map(|start| start.repeat.clone())
                .unwrap_or_default(),
        })
    }

    fn wait(&mut self) -> error::Result<ExitStatus> {
        self.child.wait().map_err(|error| {
            LabError::NoRun(format!(
                "the torture program cannot be waited for: {}",
                reason(&error)
            ))
        })
    }

    fn stop(&mut self) {
        self.bar.finish_and_clear();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn library(allocator: &Allocator) -> Result<Option<PathBuf>> {
    Ok(match allocator {
        Allocator::Larder => Some(LibraryPath::from_environment().find(Library::Allocator)?),
        Allocator::Own => None,
        Allocator::Other(library) => {
            check_allocator_library(library)?;
            Some(absolute(library)?)
        }
    })
}

fn read_lines(stdout: Option<ChildStdout>) -> Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stdout
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
        {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// In a shell, with the options that the program names.
fn repeat_command(plan: &TorturePlan) -> String {
    let option = match &plan.victim {
        Victim::Malloc(Allocator::Larder) => String::new(),
        Victim::Malloc(Allocator::Own) => " --no-larder".to_owned(),
        Victim::Malloc(Allocator::Other(library)) => format!(" --lib {}", quoted(library)),
        Victim::Program(program) => format!(" --program {}", quoted(program)),
    };
    format!("larder torture{option}")
}

fn progress_bar(plan: &TorturePlan) -> ProgressBar {
    // Hidden by itself where stderr is no terminal.
    let bar = ProgressBar::new(plan.seconds.into());
    if let Ok(style) = ProgressStyle::with_template("torturing {wide_bar} {pos}/{len} s, {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_position(progress.seconds as u64);
    let operations = counted(progress.operations, "operation");
    bar.set_message(format!(
        "{operations}, {} MiB live",
        progress.live_bytes >> 20
    ));
}

fn say(line: &str) {
    // A reader that has closed the pipe needs no more.
    let _ = writeln!(io::stdout(), "{line}");
}

fn print_text(outcome: &Outcome, command: &str, out: &mut dyn Write) -> io::Result<()> {
    match outcome {
        Outcome::Clean(clean) => writeln!(out, "{}", clean.in_words()),
        Outcome::Fault(fault) => writeln!(out, "{}", fault.in_words(command)),
    }
}

fn print_json(
    started: Option<&Start>,
    outcome: &Outcome,
    command: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let value = match outcome {
        Outcome::Clean(clean) => json!({"start": started, "clean": clean}),
        Outcome::Fault(fault) => {
            let repeat = format!("{command} {}", fault.repeat);
            json!({"start": started, "fault": fault, "command": repeat})
        }
    };
    output::write_json(&value, out)
}
