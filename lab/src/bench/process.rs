//! One run of a workload under an allocator: a new process, started by the C program `larder-measure`,
//! which is small enough not to hide the workload's memory.
//!
//! Variables of the caller's environment that affect a loader or an allocator do not reach the workload.
//! Each run has an empty folder of its own, which is removed afterwards. Thread-safe.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use larder_base::failure::Result;
use larder_base::measured::{self, last_line, last_object, scratch_failure};
use larder_base::{preload, printable};
use serde::Deserialize;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::allocators::Allocator;
use super::figures::Figures;
use super::interruption::Interruption;
use super::manifest::{Places, Preload, Workload};
use super::results::Outcome;
use crate::built::built;
use crate::error::LabError;

const MEASURE: &str = "larder-measure";
/// Inputs that take long to generate, shared by all runs.
const CACHE: &str = "cache";

/// The output of `larder-measure`.
#[derive(Debug, Deserialize)]
struct Measured {
    wall_seconds: f64,
    cpu_seconds: f64,
    peak_kib: f64,
    page_faults: f64,
    timed_out: bool,
    interrupted: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    With(Outcome),
    /// The user stopped it: it does not count.
    Interrupted,
}

/// Options of a run.
#[derive(Debug, Default)]
pub struct Settings {
    pub scale: f64,
    /// Run a copy of the program, with a copy of the allocator: where in memory the pages of a file lie may
    /// cost a run a third of its time, and every other run until the file is written anew.
    pub copies: bool,
    pub environment: Vec<(&'static str, OsString)>,
}

/// Starts runs.
pub struct Runner {
    measure: PathBuf,
    bench: PathBuf,
    scratch: TempDir,
    limit_seconds: f64,
    interruption: Interruption,
    count: AtomicU32,
}

impl Runner {
    pub fn new(bench: &Path, limit_seconds: f64) -> Result<Runner> {
        let measure = built(MEASURE)?;
        let interruption = Interruption::handle_signals()
            .map_err(|error| scratch_failure("signals cannot be handled", error))?;
        let scratch = tempfile::Builder::new().prefix("larder-bench-").tempdir();
        let scratch =
            scratch.map_err(|error| scratch_failure("no temporary folder can be made", error))?;
        fs::create_dir(scratch.path().join(CACHE))
            .map_err(|error| scratch_failure(&printable::name(scratch.path()), error))?;
        Ok(Runner {
            measure,
            bench: bench.to_owned(),
            scratch,
            limit_seconds,
            interruption,
            count: AtomicU32::new(0),
        })
    }

    pub fn is_interrupted(&self) -> bool {
        self.interruption.is_wanted()
    }

    /// A folder for one run.
    pub fn folder(&self) -> Result<PathBuf> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let folder = self.scratch.path().join(number.to_string());
        fs::create_dir(&folder)
            .map_err(|error| scratch_failure(&printable::name(&folder), error))
            .map(|()| folder)
    }

    /// The program that the workload starts, if it is missing.
    pub fn missing_program(&self, workload: &Workload) -> Option<String> {
        let program = self
            .words(workload, self.scratch.path(), 1.0)
            .swap_remove(0);
        let there = !program.contains('/') || Path::new(&program).is_file();
        (!there).then_some(program)
    }

    fn words(&self, workload: &Workload, scratch: &Path, scale: f64) -> Vec<String> {
        workload.command(&Places {
            bench: &self.bench,
            scratch,
            scale,
        })
    }

    /// Runs the workload once. Err only if the run could not be made at all.
    pub fn run(
        &self,
        workload: &Workload,
        allocator: &Allocator,
        settings: &Settings,
    ) -> Result<Ended> {
        if self.is_interrupted() {
            return Ok(Ended::Interrupted);
        }
        let folder = self.folder()?;
        let ended = self.run_in(&folder, workload, allocator, settings);
        let removed = fs::remove_dir_all(&folder);
        if let (Ok(_), Err(error)) = (&ended, removed) {
            return Err(scratch_failure(&printable::name(&folder), error));
        }
        ended
    }

    /// Scripts are not copied: they look for their neighbours.
    fn copies(
        &self,
        folder: &Path,
        program: PathBuf,
        library: &Path,
    ) -> io::Result<(PathBuf, PathBuf)> {
        let copy = |file: &Path| {
            let to = folder.join(file.file_name().unwrap_or_default());
            fs::copy(file, &to).map(|_| to)
        };
        let is_ours = program.parent() == Some(&self.bench) && program.extension().is_none();
        let program = if is_ours { copy(&program)? } else { program };
        Ok((program, copy(library)?))
    }

    fn run_in(
        &self,
        folder: &Path,
        workload: &Workload,
        allocator: &Allocator,
        settings: &Settings,
    ) -> Result<Ended> {
        let problem = |error: io::Error| scratch_failure(&printable::name(folder), error);
        let [output, out, err, work] =
            ["measured.json", "stdout", "stderr", "work"].map(|name| folder.join(name));
        fs::create_dir(&work).map_err(problem)?;
        let words = self.words(workload, &work, settings.scale);
        let (mut program, mut library) = (PathBuf::from(&words[0]), allocator.library.clone());
        if settings.copies {
            (program, library) = self.copies(folder, program, &library).map_err(problem)?;
        }
        let library = preload::loadable_path(&library)?;
        let mut command = measured::command(&self.measure);
        let outer = match workload.preload {
            Preload::Whole => library.as_os_str(),
            Preload::Inner => {
                command.env("BENCH_PRELOAD", &library);
                OsStr::new("-")
            }
        };
        command
            .arg(outer)
            .arg(&output)
            .arg(self.limit_seconds.to_string())
            .arg(program)
            .args(&words[1..])
            .env("BENCH_SCALE", settings.scale.to_string())
            .env("TMPDIR", &work)
            .env("BENCH_CACHE", self.scratch.path().join(CACHE))
            .envs(&workload.environment)
            .envs(&allocator.environment)
            .envs(settings.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out).map_err(problem)?)
            .stderr(fs::File::create(&err).map_err(problem)?);
        if !workload.given {
            command.env("LC_ALL", "C").current_dir(&work);
        }
        let run = self.interruption.run(&mut command);
        let status = run.map_err(|error| scratch_failure(MEASURE, error))?;
        if !status.success() {
            let said = last_line(&fs::read(&err).unwrap_or_default());
            return Err(LabError::NoRun(format!(
                "{} on {}: {MEASURE} failed: {said}: build it again with `make build`",
                workload.name, allocator.name
            ))
            .into());
        }
        let text = fs::read_to_string(&output).map_err(problem)?;
        let measured: Measured = serde_json::from_str(&text).map_err(|error| {
            LabError::OtherBuild(format!(
                "{MEASURE} of another version ({error}): build it again with `make build`"
            ))
        })?;
        if measured.interrupted || self.is_interrupted() {
            return Ok(Ended::Interrupted);
        }
        if let Some(cause) = measured.failure(self.limit_seconds) {
            let said = last_line(&fs::read(&err).unwrap_or_default());
            let colon = if said.is_empty() { "" } else { ": " };
            return Ok(Ended::With(Outcome::Failure(format!(
                "{cause}{colon}{said}"
            ))));
        }
        let printed = fs::read(&out).map_err(problem)?;
        Ok(Ended::With(Outcome::Figures(
            measured.figures(&last_object(&printed)),
        )))
    }
}

impl Measured {
    fn failure(&self, limit_seconds: f64) -> Option<String> {
        if self.timed_out {
            return Some(format!("took more than {limit_seconds} s"));
        }
        match (self.signal, self.exit_code) {
            (Some(signal), _) => {
                let name = signal_hook::low_level::signal_name(signal);
                let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
                Some(format!("signal {signal}{name}"))
            }
            (None, Some(0)) => None,
            (None, code) => Some(format!("exit code {}", code.unwrap_or(-1))),
        }
    }

    /// The workload's own figures take precedence over those measured from outside.
    fn figures(&self, report: &Map<String, Value>) -> Figures {
        let own = |name: &str| report.get(name).and_then(Value::as_f64);
        let per_million = |rate: f64| 1e6 / rate;
        Figures {
            wall_seconds: self.wall_seconds,
            seconds: own("seconds").or_else(|| own("operations_per_second").map(per_million)),
            cpu_seconds: own("cpu_seconds").unwrap_or(self.cpu_seconds),
            peak_kib: own("peak_kib")
                .or_else(|| own("peak_rss_kib"))
                .unwrap_or(self.peak_kib),
            page_faults: own("page_faults").unwrap_or(self.page_faults),
            mappings: own("mappings"),
            idle_rss_kib: own("idle_rss_kib"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            wall_seconds: 2.0,
            cpu_seconds: 1.5,
            peak_kib: 1000.0,
            page_faults: 10.0,
            timed_out: false,
            interrupted: false,
            exit_code: Some(0),
            signal: None,
        }
    }

    #[test]
    fn the_workloads_own_figures_win() {
        let report = last_object(
            b"noise\n{\"seconds\": 9}\n{broken\n{\"seconds\": 0.5, \"peak_rss_kib\": 7, \"mappings\": 3}\nend\n",
        );
        let figures = measured().figures(&report);
        assert_eq!(figures.seconds, Some(0.5));
        assert_eq!(figures.peak_kib, 7.0);
        assert_eq!(figures.mappings, Some(3.0));
        assert_eq!(figures.cpu_seconds, 1.5);
        assert_eq!(figures.idle_rss_kib, None);
    }

    #[test]
    fn a_rate_is_turned_into_time() {
        let report = last_object(b"{\"operations_per_second\": 2000000}");
        assert_eq!(measured().figures(&report).seconds, Some(0.5));
    }

    #[test]
    fn an_end_is_described() {
        assert_eq!(measured().failure(9.0), None);
        let crashed = Measured {
            signal: Some(11),
            exit_code: None,
            ..measured()
        };
        assert_eq!(crashed.failure(9.0).unwrap(), "signal 11 (SIGSEGV)");
        let refused = Measured {
            exit_code: Some(3),
            ..measured()
        };
        assert_eq!(refused.failure(9.0).unwrap(), "exit code 3");
        let endless = Measured {
            timed_out: true,
            ..crashed
        };
        assert_eq!(endless.failure(9.0).unwrap(), "took more than 9 s");
    }
}
