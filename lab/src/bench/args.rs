//! The command line of `larder bench`, and the checked plan that comes of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regex::Regex;

use super::allocators::ExtraPeer;
use crate::error::{LabError, Result};

pub const EXAMPLES: &str = "Examples:\n  \
    larder bench -- ./app --input data.bin\n      Your own program, on every allocator.\n  \
    larder bench --quick\n      Every peer on a subset of the workloads, within five minutes.\n  \
    larder bench --out results/\n      Everything; results.json, results.md and index.html.\n  \
    larder bench --peer old=/tmp/old.so --allocators larder,old --only lifetimes --rounds 9\n      \
    This build against an older one.\n  \
    larder bench --peer plain=out/lib/liblarder.so,LARDER_COLOUR=0 --allocators larder,plain\n      \
    One setting against another.\n  \
    larder bench --report monday/results.json tuesday/results.json --out both/";

const QUICK_SECONDS: u64 = 300;
const LEAST_QUICK_ROUNDS: u32 = 5;

#[derive(Debug, Args)]
pub struct RawBench {
    /// A subset of the workloads, with less work, that ends within five minutes
    #[arg(long)]
    quick: bool,
    /// Rounds to measure
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Passes that measure the memory after two idle seconds; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    idle_rounds: u32,
    /// Only workloads whose name matches one of these
    #[arg(long, value_name = "REGEX", num_args = 1..)]
    only: Vec<String>,
    /// Only these allocators, separated by commas [default: larder, glibc and every peer that `make peers` built]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// One more library to compare, with variables of its own; may be repeated
    #[arg(long, value_name = "NAME=PATH[,VARIABLE=VALUE]")]
    peer: Vec<String>,
    /// Another build of liblarder.so to measure as Larder
    #[arg(long, value_name = "PATH")]
    larder: Option<PathBuf>,
    /// Multiply each workload's usual work by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Reduce the work, after a pilot round, so that everything ends within this time
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    time_limit: Option<u64>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    run_limit: u64,
    /// The seed of the random orders and the confidence intervals [default: random, and reported]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leave out workloads whose programs are not installed, and say so in the report
    #[arg(long)]
    skip_missing: bool,
    /// List the workloads
    #[arg(long)]
    list: bool,
    /// Start each workload once on each allocator; no figures
    #[arg(long, conflicts_with_all = ["quick", "out", "json", "markdown"])]
    smoke: bool,
    /// Measure nothing: show results, or join those of the same libraries on the same machine
    #[arg(long, value_name = "RESULTS.JSON", num_args = 1..)]
    #[arg(conflicts_with_all = ["quick", "smoke", "list", "allocators", "peer", "only", "time_limit"])]
    report: Vec<PathBuf>,
    /// Write results.json, results.md and index.html into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the JSON to a file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the Markdown to a file, - for standard output [default if nothing else is asked for]
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Measure this command instead of the workloads
    #[arg(last = true, value_name = "COMMAND")]
    #[arg(conflicts_with_all = ["quick", "only", "scale", "time_limit", "skip_missing", "list", "report"])]
    command: Vec<String>,
}

/// What the user asked for, checked.
#[derive(Debug)]
pub struct BenchPlan {
    pub task: Task,
    pub output: Output,
}

#[derive(Debug)]
pub enum Task {
    List(Selection),
    Smoke(Selection, Field),
    Measure(Selection, Field, Effort),
    Report(Vec<PathBuf>),
}

/// Which workloads.
#[derive(Debug)]
pub struct Selection {
    pub only: Vec<Regex>,
    pub quick: bool,
    pub skip_missing: bool,
    /// The user's own instead, if it has words.
    pub command: Vec<String>,
}

/// Which allocators.
#[derive(Debug)]
pub struct Field {
    pub names: Option<Vec<String>>,
    pub extra: Vec<ExtraPeer>,
    pub larder: Option<PathBuf>,
    pub run_limit: Duration,
}

/// How much of it.
#[derive(Debug)]
pub struct Effort {
    pub rounds: u32,
    pub idle_rounds: u32,
    pub scale: f64,
    pub time_limit: Option<Duration>,
    pub seed: Option<u64>,
}

/// Where results go; Markdown to standard output if nowhere else.
#[derive(Debug, Default)]
pub struct Output {
    pub directory: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub markdown: Option<PathBuf>,
}

impl RawBench {
    pub fn check(self) -> Result<BenchPlan> {
        let output = Output {
            directory: self.out,
            json: self.json,
            markdown: self.markdown,
        };
        if !self.report.is_empty() {
            return Ok(BenchPlan {
                task: Task::Report(self.report),
                output,
            });
        }
        if self.quick && self.rounds < LEAST_QUICK_ROUNDS {
            return Err(LabError::Rounds {
                given: self.rounds,
                least: LEAST_QUICK_ROUNDS,
            });
        }
        if !(self.scale > 0.0 && self.scale <= 1000.0) {
            return Err(LabError::Scale(self.scale));
        }
        let only = self.only.iter().map(|pattern| {
            Regex::new(pattern).map_err(|error| {
                let cause = error.to_string();
                let cause = cause.lines().last().unwrap_or_default();
                LabError::Only {
                    pattern: pattern.clone(),
                    cause: cause.trim_start_matches("error: ").to_owned(),
                }
            })
        });
        let selection = Selection {
            only: only.collect::<Result<_>>()?,
            quick: self.quick,
            skip_missing: self.skip_missing,
            command: self.command,
        };
        let extra = self
            .peer
            .iter()
            .map(|text| ExtraPeer::parse("--peer", text));
        let field = Field {
            names: self.allocators,
            extra: extra.collect::<std::result::Result<_, _>>()?,
            larder: self.larder,
            run_limit: Duration::from_secs(self.run_limit),
        };
        let quick_limit = self.quick.then_some(QUICK_SECONDS);
        let effort = Effort {
            rounds: self.rounds,
            idle_rounds: self.idle_rounds,
            scale: self.scale,
            time_limit: self.time_limit.or(quick_limit).map(Duration::from_secs),
            seed: self.seed,
        };
        let task = if self.list {
            Task::List(selection)
        } else if self.smoke {
            Task::Smoke(selection, field)
        } else {
            Task::Measure(selection, field, effort)
        };
        Ok(BenchPlan { task, output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: RawBench,
    }

    fn plan(words: &[&str]) -> Result<BenchPlan> {
        let words = std::iter::once("bench").chain(words.iter().copied());
        Line::try_parse_from(words).expect("usage").bench.check()
    }

    fn effort(words: &[&str]) -> Effort {
        match plan(words).unwrap().task {
            Task::Measure(_, _, effort) => effort,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn five_rounds_by_default() {
        let usual = effort(&[]);
        assert_eq!((usual.rounds, usual.idle_rounds), (5, 1));
        assert_eq!(usual.time_limit, None);
    }

    #[test]
    fn quick_ends_within_five_minutes_and_has_five_rounds() {
        let quick = effort(&["--quick"]);
        assert_eq!(quick.time_limit, Some(Duration::from_secs(300)));
        let longer = effort(&["--quick", "--time-limit", "600", "--rounds", "9"]);
        assert_eq!(longer.time_limit, Some(Duration::from_secs(600)));
        let error = plan(&["--quick", "--rounds", "4"]).unwrap_err();
        assert!(
            matches!(error, LabError::Rounds { given: 4, .. }),
            "{error}"
        );
    }

    #[test]
    fn wrong_values_are_refused_in_a_line() {
        let refused = |words: &[&str]| {
            let error = plan(words).unwrap_err();
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            error
        };
        let only = refused(&["--only", "("]);
        assert!(matches!(only, LabError::Only { .. }), "{only}");
        for scale in ["0", "NaN"] {
            let scale = refused(&["--scale", scale]);
            assert!(matches!(scale, LabError::Scale(_)), "{scale}");
        }
        let peer = refused(&["--peer", "old"]);
        assert!(matches!(peer, LabError::Allocator(_)), "{peer}");
    }
}
