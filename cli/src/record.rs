//! `larder record`: runs the command with the recorder preloaded, or loads it into a process that runs already
//! (`running`), and prints where the trace lies.
//!
//! The trace directory is made before the command starts, never reused, and readable by its owner
//! alone; the recorder writes one file a process image into it. With `--leaks` the recorder asks at a
//! process's end which blocks are lost: `at_end` answers by `look`, a process of its own.

mod at_end;
mod look;
#[cfg(target_arch = "x86_64")]
mod running;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use clap::Args;
use larder_analysis::symbols::ElfFile;
use larder_base::execute::{self, Stdout};
use larder_base::failure::{Failure, Result};
use larder_base::libraries::{Library, LibraryPath};
use larder_base::number::counted;
use larder_base::path::{absolute, quoted};
use larder_base::preload::{Allocator, PRELOAD_VARIABLE, TRACE_DIRECTORY_VARIABLE, preload_value};
use larder_base::printable;
use larder_base::target::{Target, check_allocator_library, reason};
use larder_trace::{StopReason, Trace, trace_files};

use at_end::AtEnd;
pub use look::{HIDDEN_COMMAND as HIDDEN_LOOK, LookPlan, look};

/// Whether the recorder counts calls instead of writing each: 1 or 0.
const AGGREGATE_VARIABLE: &str = "LARDER_RECORD_AGGREGATE";
/// Whether the recorder hashes the contents of allocations when they are freed: 1 or 0.
const CONTENTS_VARIABLE: &str = "LARDER_RECORD_CONTENTS";
/// Which copies the recorder records: 0 all, else so many bytes between two on average.
const COPIES_VARIABLE: &str = "LARDER_RECORD_COPIES";
/// The recorder takes no larger rate.
const MAX_COPY_RATE: u64 = 1 << 40;
/// Whether the recorder records every system call, also those made without libc: 1 or 0.
const KERNEL_VARIABLE: &str = "LARDER_RECORD_KERNEL";
/// How often a second of processor time the recorder samples each thread's stack.
const CPU_VARIABLE: &str = "LARDER_RECORD_CPU";
/// The socket at which the recorder asks at the end which allocations are lost.
const LEAKS_VARIABLE: &str = "LARDER_RECORD_LEAKS";

pub const EXAMPLES: &str = "\
Examples:
  larder record -- ./server --once
  larder record --no-larder -o plain.trace -- ./server --once
  larder record --syscalls -- ./server --once
  larder record --syscalls=kernel -- ./server --once
  larder record --copies -- ./server --once
  larder record --copies=65536 -- ./server --many
  larder record --cpu -- ./server --once
  larder record --contents -- ./server --once
  larder record --leaks -- ./server --once
  larder record --no-times -- ./server --once
  larder record --seconds 10 4711
  larder record --malloc /usr/lib/x86_64-linux-gnu/libjemalloc.so.2 -- ./server --once";

#[derive(Debug, Default, Args)]
pub struct RecordPlan {
    /// The trace directory to make [default: ./larder-NAME-PID.trace]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Count by stack in memory instead of writing each call: cheaper, and enough for report and
    /// check
    #[arg(long, conflicts_with_all = ["syscalls", "copies", "cpu", "contents", "leaks"])]
    pub aggregate: bool,
    /// Hash each allocation's contents when it ends, so that advise finds copies and needless zeroing
    #[arg(long)]
    pub contents: bool,
    /// Leave out times and addresses when the command has ended: a fifth of the size, and all that report,
    /// advise and the rest show but times
    #[arg(long, conflicts_with_all = ["aggregate", "syscalls", "copies", "cpu", "contents", "leaks"])]
    pub no_times: bool,
    /// Find the live allocations that are unreachable at the program's end, so that advise reports leaks
    #[arg(long)]
    pub leaks: bool,
    /// Run on the program's own malloc
    #[arg(long, conflicts_with = "malloc")]
    pub no_larder: bool,
    /// Run on this shared library's malloc
    #[arg(long, value_name = "PATH")]
    pub malloc: Option<PathBuf>,
    /// Also record calls of libc's functions that make system calls, with result and duration; kernel
    /// records every system call, also those made without libc, at 3 us each
    #[arg(long, value_name = "BY", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "libc", value_enum)]
    pub syscalls: Option<MadeBy>,
    /// Also record memcpy, memset, strcpy, printf and similar calls; with BYTES only samples, one
    /// per BYTES copied on average
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "0")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=MAX_COPY_RATE))]
    pub copies: Option<u64>,
    /// Also sample each thread's stack, HZ times per second of its processor time [default: 997];
    /// report --cpu, callers and callees show the samples
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "997")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cpu: Option<u32>,
    /// End after so many seconds; only with a PID
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: Option<u32>,
    /// The command and its arguments, or a process that runs already: its number
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "COMMAND|PID")]
    pub command: Vec<OsString>,
    /// Of a command that `check` runs.
    #[arg(skip)]
    pub stdout: Stdout,
}

/// Whose system calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MadeBy {
    /// Calls of libc's functions.
    Libc,
    /// Every system call.
    Kernel,
}

impl RecordPlan {
    /// The process that runs already, if the only word is a number; a program of that name has a path.
    pub fn process(&self) -> Option<u32> {
        let [word] = self.command.as_slice() else {
            return None;
        };
        process_number(word)
    }

    /// All words of the command line, the process's number last, if options follow it.
    pub fn process_last(&self, words: &[OsString]) -> Option<Vec<OsString>> {
        let (before, command) = words.split_at(words.len() - self.command.len());
        let (number, options) = command.split_first()?;
        let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
        let may_follow = process_number(number).is_some() && options.first().is_some_and(is_option);
        if !may_follow || before.last().is_some_and(|word| word == "--") {
            return None;
        }
        Some([before, options, std::slice::from_ref(number)].concat())
    }

    /// What a process that runs already cannot be recorded with, or a command.
    pub fn check(self) -> Result<Self> {
        let of_commands = [
            self.aggregate,
            self.contents,
            self.no_times,
            self.leaks,
            self.no_larder,
            self.malloc.is_some(),
            self.syscalls.is_some(),
            self.copies.is_some(),
            self.cpu.is_some(),
        ];
        match (self.process(), self.seconds) {
            (Some(process), _) if cfg!(not(target_arch = "x86_64")) => {
                Err(Failure::failed(format!(
                    "process {process}: runs already, which is recorded on x86-64 only: start the command with `larder \
                     record -- COMMAND`"
                )))
            }
            (Some(process), _) if of_commands.contains(&true) => Err(Failure::failed(format!(
                "process {process}: runs already, which allows only --seconds and --output: see \
                 `larder record --help`"
            ))),
            (None, Some(_)) => Err(Failure::failed(
                "--seconds needs a process that runs already: name it by its number",
            )),
            _ => Ok(self),
        }
    }

    /// The malloc below the recorder.
    pub fn allocator(&self) -> Allocator {
        match &self.malloc {
            Some(path) => Allocator::Other(path.clone()),
            None if self.no_larder => Allocator::Own,
            None => Allocator::Larder,
        }
    }
}

/// Records one run; the command's own exit code.
pub fn record(plan: &RecordPlan) -> Result<u8> {
    #[cfg(target_arch = "x86_64")]
    if let Some(process) = plan.process() {
        return running::record(plan, process);
    }
    let shown = match &plan.output {
        Some(output) => output.clone(),
        None => default_output(&plan.command[0]),
    };
    let run = Run::prepare(plan)?;
    let directory = make_trace_directory(&shown)?;
    let status = run.start(&directory).inspect_err(|_| {
        let _ = fs::remove_dir(&directory);
    })?;
    let with_times = shrink(&directory, plan.no_times);
    if with_times > 0 {
        let _ = writeln!(
            io::stderr(),
            "larder: times and addresses stay in {}: damaged, not writable, or of a process that still runs",
            counted(with_times, "file")
        );
    }
    // A closed stderr is no error: the exit code is the command's.
    let _ = writeln!(
        io::stderr(),
        "larder: {}",
        summary(&shown, &directory, &run.target.program)
    );
    Ok(execute::exit_code(status))
}

/// Rewrites the files of ended processes; how many were to lose their times and could not. One that cannot be
/// rewritten is only larger.
fn shrink(directory: &Path, no_times: bool) -> u64 {
    let mut with_times = 0;
    for file in trace_files(directory).unwrap_or_default() {
        let packed = larder_trace::pack(&file);
        if no_times {
            let dropped = packed.and_then(|packed| Ok(packed && larder_trace::drop_times(&file)?));
            with_times += u64::from(!dropped.unwrap_or(false));
        }
    }
    with_times
}

/// A command that can be recorded.
pub struct Run<'a> {
    plan: &'a RecordPlan,
    target: Target,
    preload: OsString,
}

impl<'a> Run<'a> {
    pub fn prepare(plan: &'a RecordPlan) -> Result<Self> {
        let target = Target::resolve(&plan.command[0])?;
        Ok(Self {
            plan,
            preload: preload_value(&libraries(plan, &target.libraries())?)?,
            target,
        })
    }

    /// Runs the command to its end; the trace goes to the directory, an absolute path.
    pub fn start(&self, directory: &Path) -> Result<ExitStatus> {
        let at_end = match self.plan.leaks {
            true => Some(AtEnd::listen(directory).map_err(|error| {
                Failure::failed(format!("no socket can be made: {}", reason(&error)))
            })?),
            false => None,
        };
        let name = at_end.as_ref().map_or("", |at_end| &at_end.name);
        let rate = self
            .plan
            .copies
            .map_or_else(String::new, |rate| rate.to_string());
        let cpu = self.plan.cpu.map_or_else(String::new, |hz| hz.to_string());
        let switch = |on| OsStr::new(if on { "1" } else { "0" });
        let environment = [
            (PRELOAD_VARIABLE, self.preload.as_os_str()),
            (TRACE_DIRECTORY_VARIABLE, directory.as_os_str()),
            (AGGREGATE_VARIABLE, switch(self.plan.aggregate)),
            (CONTENTS_VARIABLE, switch(self.plan.contents)),
            (COPIES_VARIABLE, OsStr::new(&rate)),
            (
                KERNEL_VARIABLE,
                switch(self.plan.syscalls == Some(MadeBy::Kernel)),
            ),
            (CPU_VARIABLE, OsStr::new(&cpu)),
            (LEAKS_VARIABLE, OsStr::new(name)),
        ];
        let path = &self.target.path;
        let status = execute::supervise(path, &self.plan.command, &environment, self.plan.stdout);
        for problem in at_end.map_or_else(Vec::new, AtEnd::finish) {
            let _ = writeln!(io::stderr(), "larder: {problem}");
        }
        status.map_err(|error| {
            Failure::unfit(format!(
                "{}: cannot be executed: {}",
                printable::name(path),
                reason(&error)
            ))
        })
    }
}

/// One line: what was recorded, what was lost, and the command that shows it.
fn summary(shown: &Path, directory: &Path, program: &Path) -> String {
    let name = printable::name(shown);
    let files = match trace_files(directory) {
        Ok(files) => files,
        Err(_) => {
            return format!(
                "nothing was recorded in {name}: the program may drop LD_PRELOAD or clear its \
                 environment; `larder doctor PROGRAM` shows the cause"
            );
        }
    };
    let (mut images, mut events, mut lost) = (0, 0u64, 0u64);
    let mut stopped = false;
    for trace in files.iter().filter_map(|file| Trace::open(file).ok()) {
        images += 1;
        let counted = trace.counters().map_or(0, larder_trace::Counters::calls);
        events = events.saturating_add(trace.event_count().max(counted));
        lost = lost.saturating_add(trace.losses().calls());
        stopped |= trace.process().stop != StopReason::None;
    }
    let mut text = format!("{name}: {}", counted(events, "event"));
    if images > 1 {
        text.push_str(&format!(" in {images} process images"));
    }
    if lost > 0 {
        text.push_str(&format!(", {} lost", counted(lost, "event")));
    }
    if stopped {
        text.push_str(", recording stopped early");
    }
    if events == 0 && ElfFile::open(program).is_some_and(|file| file.defines_function("malloc")) {
        text.push_str(
            ", as the program has a malloc of its own linked in, which no preload reaches",
        );
    }
    format!("{text}; see it with: larder report {}", quoted(shown))
}

fn libraries(plan: &RecordPlan, path: &LibraryPath) -> Result<Vec<PathBuf>> {
    let mut libraries = vec![path.find(Library::Recorder)?];
    if plan.syscalls == Some(MadeBy::Libc) {
        libraries.push(path.find(Library::RecorderIo)?);
    }
    if plan.copies.is_some() {
        libraries.push(path.find(Library::RecorderCopies)?);
    }
    if plan.cpu.is_some() {
        libraries.push(path.find(Library::RecorderCpu)?);
    }
    match plan.allocator() {
        Allocator::Larder => libraries.extend(path.allocator()?),
        Allocator::Own => {}
        Allocator::Other(library) => {
            check_allocator_library(&library)?;
            libraries.push(absolute(&library)?);
        }
    }
    Ok(libraries)
}

fn process_number(word: &OsStr) -> Option<u32> {
    let digits = word.to_str()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn default_output(command: &OsStr) -> PathBuf {
    let mut name = OsString::from("larder-");
    name.push(
        Path::new(command)
            .file_name()
            .unwrap_or(OsStr::new("command")),
    );
    name.push(format!("-{}.trace", std::process::id()));
    name.into()
}

/// Makes the directory, and returns its absolute path, because the command may change its own.
fn make_trace_directory(shown: &Path) -> Result<PathBuf> {
    let made = DirBuilder::new().mode(0o700).create(shown);
    made.map_err(|error| {
        let name = printable::name(shown);
        Failure::failed(match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{name}: exists already: remove it, or name another with -o")
            }
            io::ErrorKind::NotFound if !parent_is_there(shown) => {
                format!("{name}: its parent directory does not exist: make it, or choose with -o")
            }
            _ => format!(
                "{name}: cannot make the trace directory: {}: name a writable place with -o",
                reason(&error)
            ),
        })
    })?;
    absolute(shown)
}

fn parent_is_there(path: &Path) -> bool {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.is_dir(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_a_process() {
        let process = |words: &[&str]| {
            let command = words.iter().map(OsString::from).collect();
            let plan = RecordPlan {
                command,
                ..RecordPlan::default()
            };
            plan.process()
        };
        assert_eq!(process(&["4711"]), Some(4711));
        for command in [&["4711", "x"][..], &["./4711"], &["47a"], &["99999999999"]] {
            assert_eq!(process(command), None, "{command:?}");
        }
    }

    #[test]
    fn a_trace_is_named_after_its_program() {
        let name = default_output(OsStr::new("/usr/bin/env"));
        let name = name.to_str().unwrap();
        assert!(
            name.starts_with("larder-env-") && name.ends_with(".trace"),
            "{name}"
        );
    }
}
