//! Replays operations on allocators: a new process each time, in interleaved rounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use larder_base::measured::{self, last_line, scratch_failure};
use larder_base::preload::{PRELOAD_VARIABLE, loadable_path};
use larder_base::printable;
use serde::{Deserialize, Serialize};

use super::args::Touch;
use super::compile::Totals;
use super::ops::OpsFile;
use crate::bench::allocators::Allocator;
use crate::error::{self, LabError};
use crate::instruments::progress::Progress;

const PROGRAM: &str = "larder-replay";
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The output of `larder-replay`. KiB count all its resident memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    #[serde(skip_serializing)]
    malloc: PathBuf,
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub start_kib: f64,
    pub peak_kib: f64,
    pub end_kib: f64,
    pub peak_is_exact: bool,
    #[serde(skip_serializing)]
    makes: u64,
    #[serde(skip_serializing)]
    reallocs: u64,
    #[serde(skip_serializing)]
    frees: u64,
    #[serde(skip_serializing)]
    bytes: u64,
    pub handed_over: u64,
    pub waits: u64,
}

/// The measurements.
#[derive(Debug, Default)]
pub struct Runs {
    /// By allocator, then round.
    pub runs: BTreeMap<usize, Vec<Run>>,
    /// Failures in words, by allocator.
    pub failures: BTreeMap<usize, String>,
    /// Seconds of the replay without any call.
    pub dry_seconds: Vec<f64>,
    /// Resident memory of the replay itself before the first call, on the C library's malloc. What another
    /// allocator has reserved by then counts as that allocator's.
    pub own_kib: f64,
}

pub struct Replayer<'a> {
    program: PathBuf,
    operations: &'a File,
    totals: &'a Totals,
    touch: Touch,
    limit: Duration,
}

impl<'a> Replayer<'a> {
    pub fn find(
        operations: &'a File,
        totals: &'a Totals,
        touch: Touch,
        limit: Duration,
    ) -> error::Result<Replayer<'a>> {
        Ok(Replayer {
            program: crate::built::built(PROGRAM)?,
            operations,
            totals,
            touch,
            limit,
        })
    }

    /// Starts the program without operations on the allocator, to check that malloc is the allocator's.
    pub fn check_loaded(&self, allocator: &Allocator) -> Result<()> {
        let file = scratch_file()?;
        let nothing = OpsFile::new(file).finish(0, 0);
        let nothing = nothing.map_err(|error| scratch_failure("a temporary file", error))?;
        let run = self.run(&nothing, Some(allocator), &[])?;
        let run = run.map_err(|cause| {
            LabError::NoRun(format!(
                "{}: {PROGRAM} does not start with it: {cause}: leave it out with --allocator",
                allocator.name
            ))
        })?;
        if run.malloc.canonicalize().ok().as_deref() == Some(&*allocator.library) {
            return Ok(());
        }
        Err(LabError::OtherMalloc(format!(
            "{}: malloc comes from {}, not from {}: the library does not define malloc or could \
             not be preloaded; leave it out with --allocator",
            allocator.name,
            printable::name(&run.malloc),
            printable::name(&allocator.library)
        ))
        .into())
    }

    /// Runs all allocators in each round, in changing order. One that fails is left out of later rounds.
    pub fn measure(&self, allocators: &[Allocator], rounds: u32) -> Result<Runs> {
        let mut measured = Runs::default();
        let mut order: Vec<usize> = (0..allocators.len()).collect();
        let progress = Progress::new((order.len() + 1) * rounds as usize);
        for _ in 0..rounds {
            fastrand::shuffle(&mut order);
            for &index in &order {
                let Some(allocator) = allocators.get(index) else {
                    continue;
                };
                progress.begin(&allocator.name);
                let failed = measured.failures.contains_key(&index);
                if !failed && let Err(cause) = self.add_run(allocator, index, &mut measured)? {
                    measured.failures.insert(index, cause);
                }
                progress.end_step();
            }
            progress.begin("no allocator");
            let dry = self.replay(None, &["--dry"])?.map_err(|cause| {
                LabError::NoRun(format!(
                    "{PROGRAM} without a preload failed: {cause}: try again"
                ))
            })?;
            measured.dry_seconds.push(dry.seconds);
            measured.own_kib = dry.start_kib;
            progress.end_step();
        }
        Ok(measured)
    }

    fn add_run(
        &self,
        allocator: &Allocator,
        index: usize,
        measured: &mut Runs,
    ) -> Result<std::result::Result<(), String>> {
        let run = self.replay(Some(allocator), &["--touch", self.touch.name()])?;
        Ok(run.map(|run| measured.runs.entry(index).or_default().push(run)))
    }

    /// Replays the whole trace; its totals must equal the compiled ones.
    fn replay(
        &self,
        allocator: Option<&Allocator>,
        options: &[&str],
    ) -> Result<std::result::Result<Run, String>> {
        let run = self.run(self.operations, allocator, options)?;
        let totals = self.totals;
        let expected = (totals.makes, totals.reallocs, totals.frees, totals.bytes);
        match &run {
            Ok(run) if (run.makes, run.reallocs, run.frees, run.bytes) != expected => {
                Err(LabError::OtherBuild(format!(
                    "{PROGRAM} carried out {} of {} calls: it is of another version; use the \
                     program and the tool of one build",
                    run.makes + run.reallocs + run.frees,
                    totals.operations()
                ))
                .into())
            }
            _ => Ok(run),
        }
    }

    /// The inner error describes how the program failed.
    fn run(
        &self,
        operations: &File,
        allocator: Option<&Allocator>,
        options: &[&str],
    ) -> Result<std::result::Result<Run, String>> {
        let unwritable = |error: std::io::Error| scratch_failure("a temporary file", error);
        let mut command = measured::command(&self.program);
        if let Some(allocator) = allocator {
            command.env(PRELOAD_VARIABLE, loadable_path(&allocator.library)?);
            command.envs(&allocator.environment);
        }
        let (out, err) = (scratch_file()?, scratch_file()?);
        command
            .args(options)
            .env("LC_ALL", "C")
            .stdin(Stdio::from(operations.try_clone().map_err(unwritable)?))
            .stdout(Stdio::from(out.try_clone().map_err(unwritable)?))
            .stderr(Stdio::from(err.try_clone().map_err(unwritable)?));
        let child = command.spawn().map_err(system(
            format!("{}: cannot be started", printable::name(&self.program)),
            "is it executable?",
        ))?;
        let Some(status) = wait(child, self.limit)? else {
            return Ok(Err(format!(
                "took more than {} s; give it longer with --run-limit",
                self.limit.as_secs()
            )));
        };
        if !status.success() {
            return Ok(Err(describe(status, &last_line(&contents(&err)))));
        }
        let printed = measured::last_object(&contents(&out));
        let run = serde_json::from_value(printed.into()).map_err(|error| {
            LabError::OtherBuild(format!(
                "{PROGRAM} of another version ({error}): use the program and the tool of one build"
            ))
        })?;
        Ok(Ok(run))
    }
}

/// The file has no name, so it is gone however the tool ends.
pub fn scratch_file() -> Result<File> {
    tempfile::tempfile().map_err(|error| scratch_failure("a temporary file", error))
}

fn contents(file: &File) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    const MOST: usize = 1 << 16;
    let mut bytes = vec![0; MOST];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

/// None: it was killed at the time limit.
fn wait(mut child: Child, limit: Duration) -> std::result::Result<Option<ExitStatus>, BaseError> {
    let start = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|error| {
            system(format!("{PROGRAM} cannot be waited for"), "try again")(error)
        })?;
        if ended.is_some() {
            return Ok(ended);
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn describe(status: ExitStatus, said: &str) -> String {
    let how = match (status.signal(), status.code()) {
        (Some(9), _) => "signal 9 (killed; out of memory?)".to_owned(),
        (Some(signal), _) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("signal {signal} ({name})")
        }
        // The program has reported why.
        (None, _) if !said.is_empty() => return said.to_owned(),
        (None, code) => format!("exit code {}", code.unwrap_or(-1)),
    };
    if said.is_empty() {
        how
    } else {
        format!("{how}: {said}")
    }
}

/// Bytes that can be allocated before the machine runs out, by the kernel's estimate.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_described() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(describe(killed, ""), "signal 9 (killed; out of memory?)");
        assert_eq!(
            describe(ExitStatus::from_raw(11), "x"),
            "signal 11 (SIGSEGV): x"
        );
        assert_eq!(describe(ExitStatus::from_raw(3 << 8), "said"), "said");
        assert_eq!(describe(ExitStatus::from_raw(3 << 8), ""), "exit code 3");
    }

    #[test]
    fn the_kernels_estimate_of_available_memory_is_read() {
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
