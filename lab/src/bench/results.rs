//! The result of a measurement, `results.json`: every run, and what is needed to repeat and to judge it.
//! Everything that is printed is computed from it (`ranking`).
//!
//! Invariants: a run names a workload and an allocator of the lists; a pair of workload and
//! allocator that failed once has no further runs; runs of one round are neighbours in time.

use std::path::{Path, PathBuf};

use larder_base::machine::Machine;
use serde::{Deserialize, Serialize};

use super::allocators::Allocator;
use super::figures::{Figures, Metric};
use crate::error::{LabError, Result};

/// The version of the file's format.
pub const FORM: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub form: u32,
    /// In UTC, as 2026-01-31T12:00:00Z.
    pub date: String,
    pub command: String,
    pub seed: u64,
    pub rounds: u32,
    pub machine: Machine,
    pub allocators: Vec<Allocator>,
    pub workloads: Vec<Subject>,
    /// Notes for the report: workloads left out, interruption, load.
    pub notes: Vec<String>,
    pub runs: Vec<Run>,
}

/// A workload, with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    pub name: String,
    pub group: String,
    pub what: String,
    /// Its work / its usual work.
    pub scale: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub workload: String,
    pub allocator: String,
    pub pass: Pass,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// The trial before the first round; recorded only if it failed.
    Trial,
    /// Everything except idle memory.
    Round(u32),
    /// Idle memory alone: the wait disturbs the rest.
    Idle(u32),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Figures(Figures),
    /// How it ended: a signal, an exit code, a time limit.
    Failure(String),
}

/// Why results are refused, or are not joined with others.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultsError {
    #[error("{0}")]
    Unreadable(String),
    #[error("has form {0}, not {FORM}")]
    Form(u32),
    #[error("a run names the workload {0}")]
    UnknownWorkload(String),
    #[error("a run names the allocator {0}")]
    UnknownAllocator(String),
    #[error("a run is of round {0}")]
    Round(u32),
    #[error("measured on another machine or system ({other} instead of {own})")]
    Machine { other: String, own: String },
    #[error("compares other allocators")]
    Allocators,
    #[error("does not have {0}")]
    Lacks(String),
    #[error("has another build of {0}")]
    Build(String),
    #[error("ran {0} at another scale")]
    Scale(String),
}

impl Results {
    pub fn rounds_in_words(&self) -> String {
        match self.rounds {
            1 => "one round".to_owned(),
            rounds => format!("{rounds} interleaved rounds"),
        }
    }

    /// The allocator whose ratios are shown: Larder, else the first.
    pub fn reference(&self) -> &str {
        let larder = self.allocators.iter().find(|a| a.name == super::LARDER);
        larder
            .or(self.allocators.first())
            .map_or("", |allocator| &allocator.name)
    }

    /// Why this pair is left out of the comparison, if it is.
    pub fn failure(&self, workload: &str, allocator: &str) -> Option<&str> {
        let mut runs = self.runs_of(workload, allocator);
        runs.find_map(|run| match &run.outcome {
            Outcome::Failure(cause) => Some(cause.as_str()),
            Outcome::Figures(_) => None,
        })
    }

    /// The pair's figures by round; empty if it failed.
    pub fn series(&self, workload: &str, allocator: &str, metric: Metric) -> Vec<Option<f64>> {
        let mut series = Vec::new();
        if self.failure(workload, allocator).is_some() {
            return series;
        }
        for run in self.runs_of(workload, allocator) {
            let Outcome::Figures(figures) = &run.outcome else {
                continue;
            };
            let round = match (run.pass, metric) {
                (Pass::Idle(round), Metric::Idle) => round,
                (Pass::Round(round), metric) if metric != Metric::Idle => round,
                _ => continue,
            } as usize;
            if series.len() <= round {
                series.resize(round + 1, None);
            }
            series[round] = metric.of(figures);
        }
        series
    }

    fn runs_of<'s>(&'s self, workload: &str, allocator: &str) -> impl Iterator<Item = &'s Run> {
        self.runs
            .iter()
            .filter(move |run| run.workload == workload && run.allocator == allocator)
    }

    /// Reads a file of an earlier measurement.
    pub fn read(path: &Path) -> Result<Results> {
        let results = std::fs::read_to_string(path)
            .map_err(|error| ResultsError::Unreadable(larder_base::target::reason(&error)))
            .and_then(|text| Results::parse(&text));
        results.map_err(|cause| LabError::Results {
            path: path.to_owned(),
            cause,
        })
    }

    fn parse(text: &str) -> std::result::Result<Results, ResultsError> {
        let results: Results = serde_json::from_str(text)
            .map_err(|error| ResultsError::Unreadable(error.to_string()))?;
        results.check()?;
        Ok(results)
    }

    fn check(&self) -> std::result::Result<(), ResultsError> {
        if self.form != FORM {
            return Err(ResultsError::Form(self.form));
        }
        /// No measurement has more; a larger number in the file would waste memory.
        const MOST_ROUNDS: u32 = 100_000;
        for run in &self.runs {
            if !self.workloads.iter().any(|w| w.name == run.workload) {
                return Err(ResultsError::UnknownWorkload(run.workload.clone()));
            }
            if !self.allocators.iter().any(|a| a.name == run.allocator) {
                return Err(ResultsError::UnknownAllocator(run.allocator.clone()));
            }
            if let Pass::Round(round) | Pass::Idle(round) = run.pass
                && round >= MOST_ROUNDS
            {
                return Err(ResultsError::Round(round));
            }
        }
        Ok(())
    }
}

/// Reads the files and joins them, if they compare the same libraries on the same machine.
pub fn read_all(paths: &[PathBuf]) -> Result<Results> {
    let mut joined: Option<(Results, &Path)> = None;
    for path in paths {
        let next = Results::read(path)?;
        joined = Some(match joined {
            None => (next, path),
            Some((mut first, first_path)) => {
                first.join(next).map_err(|cause| LabError::NotJoined {
                    path: path.clone(),
                    first: first_path.to_owned(),
                    cause,
                })?;
                (first, first_path)
            }
        });
    }
    joined
        .map(|(results, _)| results)
        .ok_or_else(|| LabError::usage("--report names no file: give a results.json"))
}

impl Results {
    /// Adds the runs of `other` as later rounds.
    fn join(&mut self, other: Results) -> std::result::Result<(), ResultsError> {
        if !self.machine.is_same(&other.machine) {
            return Err(ResultsError::Machine {
                other: other.machine.describe(),
                own: self.machine.describe(),
            });
        }
        if self.allocators.len() != other.allocators.len() {
            return Err(ResultsError::Allocators);
        }
        for allocator in &self.allocators {
            let same = other.allocators.iter().find(|a| a.name == allocator.name);
            match same {
                None => return Err(ResultsError::Lacks(allocator.name.clone())),
                Some(same) if !same.is_same(allocator) => {
                    return Err(ResultsError::Build(allocator.name.clone()));
                }
                Some(_) => {}
            }
        }
        for subject in &other.workloads {
            match self.workloads.iter().find(|w| w.name == subject.name) {
                Some(same) if same.scale != subject.scale => {
                    return Err(ResultsError::Scale(subject.name.clone()));
                }
                Some(_) => {}
                None => self.workloads.push(subject.clone()),
            }
        }
        let (rounds, idle) = (self.rounds, self.idle_rounds());
        self.runs.extend(other.runs.into_iter().map(|mut run| {
            run.pass = match run.pass {
                Pass::Trial => Pass::Trial,
                Pass::Round(round) => Pass::Round(round.saturating_add(rounds)),
                Pass::Idle(round) => Pass::Idle(round.saturating_add(idle)),
            };
            run
        }));
        self.rounds = self.rounds.saturating_add(other.rounds);
        self.date = format!("{}, {}", self.date, other.date);
        self.command = format!("{}; {}", self.command, other.command);
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.check()
    }

    fn idle_rounds(&self) -> u32 {
        let idle = |run: &Run| match run.pass {
            Pass::Idle(round) => Some(round + 1),
            Pass::Trial | Pass::Round(_) => None,
        };
        self.runs.iter().filter_map(idle).max().unwrap_or(0)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two workloads, three allocators, `rounds` rounds of known figures: on `slow`, Larder takes
    /// half of glibc's time and memory; `crash` failed on `peer`.
    pub fn example(rounds: u32) -> Results {
        let allocator = |name: &str| Allocator {
            name: name.to_owned(),
            version: "1".to_owned(),
            library: format!("/lib/{name}.so").into(),
            sha256: format!("hash of {name}"),
            ..Allocator::default()
        };
        let subject = |name: &str| Subject {
            name: name.to_owned(),
            group: "own".to_owned(),
            what: format!("what {name} does"),
            scale: 1.0,
        };
        let mut results = Results {
            form: FORM,
            date: "2026-01-31T12:00:00Z".to_owned(),
            command: "larder bench".to_owned(),
            seed: 1,
            rounds,
            machine: Machine::default(),
            allocators: ["larder", "glibc", "peer"].map(allocator).into(),
            workloads: ["slow", "crash"].map(subject).into(),
            notes: Vec::new(),
            runs: Vec::new(),
        };
        for round in 0..rounds {
            for (workload, allocator, units) in [
                ("slow", "larder", 1.0),
                ("slow", "glibc", 2.0),
                ("slow", "peer", 4.0),
                ("crash", "larder", 3.0),
                ("crash", "glibc", 1.0),
            ] {
                // The machine is slower in every other round, for all allocators.
                let seconds = units * 0.1 * f64::from(1 + round % 2);
                results.runs.push(Run {
                    workload: workload.to_owned(),
                    allocator: allocator.to_owned(),
                    pass: Pass::Round(round),
                    outcome: Outcome::Figures(Figures {
                        wall_seconds: seconds,
                        cpu_seconds: seconds,
                        peak_kib: units * 1024.0,
                        page_faults: units * 10.0,
                        ..Figures::default()
                    }),
                });
            }
        }
        results.runs.push(Run {
            workload: "crash".to_owned(),
            allocator: "peer".to_owned(),
            pass: Pass::Trial,
            outcome: Outcome::Failure("signal 11 (SIGSEGV)".to_owned()),
        });
        results
    }

    #[test]
    fn what_is_written_is_read() {
        let results = example(3);
        let text = serde_json::to_string(&results).unwrap();
        let back: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        assert_eq!(back.failure("crash", "peer"), Some("signal 11 (SIGSEGV)"));
        assert_eq!(back.series("slow", "glibc", Metric::Time).len(), 3);
        assert!(back.series("crash", "peer", Metric::Time).is_empty());
    }

    #[test]
    fn joined_rounds_follow_each_other() {
        let mut first = example(2);
        first.join(example(3)).unwrap();
        assert_eq!(first.rounds, 5);
        let series = first.series("slow", "larder", Metric::Time);
        assert_eq!(series.len(), 5);
        assert!(series.iter().all(Option::is_some));
    }

    #[test]
    fn what_differs_is_not_joined() {
        let join = |change: fn(&mut Results)| {
            let mut other = example(2);
            change(&mut other);
            example(2).join(other).unwrap_err()
        };
        assert!(matches!(
            join(|r| r.machine.kernel = "other".to_owned()),
            ResultsError::Machine { .. }
        ));
        let (slow, glibc) = ("slow".to_owned(), "glibc".to_owned());
        let build = join(|r| r.allocators[1].sha256 = "x".to_owned());
        assert_eq!(build, ResultsError::Build(glibc.clone()));
        let renamed = join(|r| r.allocators[1].name = "x".to_owned());
        assert_eq!(renamed, ResultsError::Lacks(glibc));
        assert_eq!(join(|r| drop(r.allocators.pop())), ResultsError::Allocators);
        let scaled = join(|r| r.workloads[0].scale = 0.5);
        assert_eq!(scaled, ResultsError::Scale(slow));
    }

    #[test]
    fn a_file_that_contradicts_itself_is_refused() {
        let check = |change: fn(&mut Results)| {
            let mut results = example(1);
            change(&mut results);
            results.check().unwrap_err()
        };
        assert_eq!(
            check(|r| r.runs[0].workload = "none".to_owned()),
            ResultsError::UnknownWorkload("none".to_owned())
        );
        let endless = check(|r| r.runs[0].pass = Pass::Round(u32::MAX));
        assert_eq!(endless, ResultsError::Round(u32::MAX));
        assert_eq!(check(|r| r.form += 1), ResultsError::Form(FORM + 1));
    }
}
