//! The command line of `larder replay`, and the checked plan that comes of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::bench::allocators::{AllocatorError, ExtraPeer};
use crate::instruments::output::Output;

pub const EXAMPLES: &str = "Examples:\n  \
    larder record --no-larder -o app.trace -- ./app --input data.bin\n  \
    larder replay app.trace\n      Its calls on every allocator that is installed.\n  \
    larder replay app.trace --allocator larder --allocator glibc --rounds 9 --out replay/\n  \
    larder replay app.trace --allocator old=/tmp/old.so --allocator larder\n  \
    larder replay app.trace --operations app.ops\n  \
    LD_PRELOAD=/tmp/old.so perf record out/libexec/larder/larder-replay < app.ops";

#[derive(Debug, Args)]
pub struct RawReplay {
    /// The trace: the directory that `record` made, or one .ltrace file
    trace: PathBuf,
    /// Replay on this allocator, a name or a library, with variables of its own; may be repeated
    /// [default: larder, glibc and every peer that `make peers` built]
    #[arg(long, value_name = "NAME[=PATH[,VARIABLE=VALUE]]")]
    allocator: Vec<String>,
    /// The process to replay [default: the one with most calls]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Rounds to measure
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Which bytes of each allocation to write: none, the first and last, or one in each page
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Touch::All)]
    touch: Touch,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    run_limit: u64,
    /// Write replay.md, replay.json and replay.svg into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of Markdown
    #[arg(long)]
    json: bool,
    /// Measure nothing: write the file that larder-replay reads, to run it by hand
    #[arg(long, value_name = "FILE", conflicts_with_all = ["allocator", "out", "json"])]
    operations: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Touch {
    None,
    Edges,
    All,
}

impl Touch {
    pub fn name(self) -> &'static str {
        match self {
            Touch::None => "none",
            Touch::Edges => "edges",
            Touch::All => "all",
        }
    }
}

#[derive(Debug)]
pub struct ReplayPlan {
    pub trace: PathBuf,
    pub pid: Option<u32>,
    pub touch: Touch,
    pub task: Task,
}

#[derive(Debug)]
pub enum Task {
    Measure(Measurement),
    WriteOperations(PathBuf),
}

#[derive(Debug)]
pub struct Measurement {
    /// None: all that are installed.
    pub names: Option<Vec<String>>,
    pub extra: Vec<ExtraPeer>,
    pub rounds: u32,
    pub run_limit: Duration,
    pub output: Output,
}

impl RawReplay {
    pub fn check(self) -> Result<ReplayPlan, AllocatorError> {
        let task = match self.operations {
            Some(file) => Task::WriteOperations(file),
            None => {
                let libraries = self.allocator.iter().filter(|text| text.contains('='));
                let extra = libraries.map(|text| ExtraPeer::parse("--allocator", text));
                let extra: Vec<ExtraPeer> = extra.collect::<Result<_, _>>()?;
                let name = |text: &String| text.split('=').next().unwrap_or_default().to_owned();
                let names: Vec<String> = self.allocator.iter().map(name).collect();
                Task::Measure(Measurement {
                    names: (!names.is_empty()).then_some(names),
                    extra,
                    rounds: self.rounds,
                    run_limit: Duration::from_secs(self.run_limit),
                    output: Output {
                        directory: self.out,
                        json: self.json,
                    },
                })
            }
        };
        Ok(ReplayPlan {
            trace: self.trace,
            pid: self.pid,
            touch: self.touch,
            task,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        replay: RawReplay,
    }

    fn measurement(words: &[&str]) -> Result<Measurement, AllocatorError> {
        let words = ["replay", "t"].iter().chain(words);
        let plan = Line::try_parse_from(words).expect("usage").replay.check()?;
        match plan.task {
            Task::Measure(measurement) => Ok(measurement),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn allocators_are_named_or_given_as_libraries() {
        let plan = measurement(&["--allocator", "glibc", "--allocator", "old=/o.so,A=1"]).unwrap();
        assert_eq!(plan.names.unwrap(), ["glibc", "old"]);
        assert_eq!(plan.extra.len(), 1);
        assert_eq!(plan.extra[0].environment["A"], "1");
        assert_eq!(measurement(&[]).unwrap().names, None);
        let error = measurement(&["--allocator", "=x"]).unwrap_err();
        let AllocatorError::Argument { option, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(option, "--allocator");
    }
}
