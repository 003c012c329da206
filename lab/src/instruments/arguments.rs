//! The command lines of the instruments, and the checked plans that are made from them.

use std::path::PathBuf;

use clap::Args;

use super::InstrumentPlan;
use super::alias::AliasPlan;
use super::counts::{CountsPlan, Pattern};
use super::grid::GridPlan;
use super::instructions::InstructionsPlan;
use super::output::Output;
use super::page_map::PageMapPlan;
use super::recording::RecordingPlan;
use super::stacks::StacksPlan;
use super::startup::StartupPlan;
use super::subject::Field;
use super::sweep::SweepPlan;
use crate::bench::allocators::ExtraPeer;
use crate::error::{LabError, Result};

pub const SWEEP_EXAMPLES: &str = "Examples:\n  larder sweep\n  larder sweep --dense --out sweep/\n  \
    larder sweep --sizes 50000,50000000 --allocators larder,glibc --rounds 9";
pub const ALIAS_EXAMPLES: &str = "Examples:\n  larder alias\n  \
    larder alias --padding 0,64,512 --allocators larder,glibc";
pub const GRID_EXAMPLES: &str = "Examples:\n  larder lab grid --out grid/\n  \
    larder lab grid --threads 1,2 --sizes 64,32768 --allocators larder,glibc";
pub const PAGE_MAP_EXAMPLES: &str = "Example:\n  larder lab page-map --rounds 5";
pub const COUNTS_EXAMPLES: &str = "Examples:\n  larder lab counts --allocators larder\n  \
    larder lab counts --patterns remote --threads 2,64 --out counts/";
pub const INSTRUCTIONS_EXAMPLES: &str = "Examples:\n  larder lab instructions\n  \
    larder lab instructions --sizes 16 --peer old=/tmp/old.so";
pub const STARTUP_EXAMPLES: &str =
    "Example:\n  larder lab startup --allocators larder,glibc --rounds 20";
pub const RECORDING_EXAMPLES: &str = "Example:\n  larder lab recording --rounds 9 --out recording/";
pub const STACKS_EXAMPLES: &str = "Examples:\n  larder lab stacks --out stacks/\n  \
    larder lab stacks --programs z3,python --gdb 0";

const SWEEP_SIZES: [usize; 7] = [50, 500, 5_000, 50_000, 500_000, 5_000_000, 50_000_000];
const PADDINGS: [usize; 10] = [0, 64, 128, 192, 256, 512, 1024, 1536, 2048, 4096];
const GRID_THREADS: [usize; 6] = [1, 2, 4, 8, 14, 20];
const GRID_SIZES: [usize; 6] = [64, 256, 1024, 4096, 8192, 32768];
const COUNTS_THREADS: [usize; 5] = [1, 2, 8, 64, 1000];
const PAIR_SIZES: [usize; 9] = [
    16, 50, 200, 1_000, 5_000, 20_000, 50_000, 500_000, 5_000_000,
];
const LARGEST: usize = 1 << 32;
const MOST_THREADS: usize = 10_000;

#[derive(Debug, Args)]
struct RawField {
    /// Only these, separated by commas [default: larder, glibc and every peer that `make peers` built]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// One more library to compare, with variables of its own; may be repeated
    #[arg(long, value_name = "NAME=PATH[,VARIABLE=VALUE]")]
    peer: Vec<String>,
    /// Another build of liblarder.so to measure as Larder
    #[arg(long, value_name = "PATH")]
    larder: Option<PathBuf>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    run_limit: u64,
}

#[derive(Debug, Args)]
struct RawOutput {
    /// Write JSON, Markdown and plots (SVG) into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RawRounds {
    /// Rounds; each measures everything once, in a random order
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

#[derive(Debug, Args)]
struct RawScale {
    /// Multiply the usual work of a run by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
}

#[derive(Debug, Args)]
pub struct RawSweep {
    /// Sizes in bytes, separated by commas [default: 50 to 50000000 in steps of ten times]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "dense"
    )]
    sizes: Option<Vec<usize>>,
    /// Measure six sizes a decade
    #[arg(long)]
    dense: bool,
    #[command(flatten)]
    rounds: RawRounds,
    #[command(flatten)]
    scale: RawScale,
    #[command(flatten)]
    field: RawField,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawAlias {
    /// Paddings in bytes, separated by commas [default: 0 and nine up to 4096]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "dense"
    )]
    padding: Option<Vec<usize>>,
    /// Measure every multiple of 64 up to 4096
    #[arg(long)]
    dense: bool,
    /// Sweeps over the arrays in a run
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iterations: u32,
    #[command(flatten)]
    rounds: RawRounds,
    #[command(flatten)]
    field: RawField,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawGrid {
    /// Numbers of threads, separated by commas [default: 1,2,4,8,14,20]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "dense"
    )]
    threads: Option<Vec<usize>>,
    /// Largest sizes in bytes, separated by commas [default: 64,256,1024,4096,8192,32768]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "dense"
    )]
    sizes: Option<Vec<usize>>,
    /// Measure 1 to 20 threads by each power of two from 64 to 32768
    #[arg(long)]
    dense: bool,
    #[command(flatten)]
    rounds: RawRounds,
    #[command(flatten)]
    scale: RawScale,
    #[command(flatten)]
    field: RawField,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawPageMap {
    /// Numbers of threads, separated by commas [default: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    threads: Option<Vec<usize>>,
    #[command(flatten)]
    rounds: RawRounds,
    #[command(flatten)]
    scale: RawScale,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawCounts {
    /// Patterns, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    patterns: Option<Vec<Pattern>>,
    /// Numbers of threads, separated by commas [default: 1,2,8,64,1000]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    threads: Option<Vec<usize>>,
    /// Pairs of malloc and free to count, over all threads; at least 2,000 a thread
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    operations: u64,
    #[command(flatten)]
    field: RawField,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawInstructions {
    /// Sizes in bytes, separated by commas [default: nine from 16 to 5000000]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sizes: Option<Vec<usize>>,
    /// Pairs of malloc and free to count
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pairs: u64,
    #[command(flatten)]
    field: RawField,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawStartup {
    /// Processes for each allocator and round
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    spawns: u32,
    #[command(flatten)]
    rounds: RawRounds,
    #[command(flatten)]
    field: RawField,
    #[command(flatten)]
    output: RawOutput,
}

#[derive(Debug, Args)]
pub struct RawRecording {
    #[command(flatten)]
    rounds: RawRounds,
    #[command(flatten)]
    scale: RawScale,
    #[command(flatten)]
    output: RawOutput,
}

impl RawRecording {
    pub fn check(self) -> Result<InstrumentPlan> {
        Ok(InstrumentPlan::Recording(RecordingPlan {
            rounds: self.rounds.rounds,
            scale: self.scale.check()?,
            output: self.output.into(),
        }))
    }
}

#[derive(Debug, Args)]
pub struct RawStacks {
    /// Samples of each program that gdb walks, too; 0: do not use gdb
    #[arg(long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    gdb: u32,
    /// Only these, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    programs: Option<Vec<String>>,
    #[command(flatten)]
    scale: RawScale,
    #[command(flatten)]
    output: RawOutput,
}

impl RawStacks {
    pub fn check(self) -> Result<InstrumentPlan> {
        Ok(InstrumentPlan::Stacks(StacksPlan {
            scale: self.scale.check()?,
            debugged: self.gdb,
            programs: self.programs,
            output: self.output.into(),
        }))
    }
}

impl RawField {
    fn check(self) -> Result<Field> {
        let extra = self
            .peer
            .iter()
            .map(|text| ExtraPeer::parse("--peer", text));
        Ok(Field {
            names: self.allocators,
            extra: extra.collect::<std::result::Result<_, _>>()?,
            larder: self.larder,
            run_limit_seconds: self.run_limit,
        })
    }
}

impl From<RawOutput> for Output {
    fn from(raw: RawOutput) -> Output {
        Output {
            directory: raw.out,
            json: raw.json,
        }
    }
}

impl RawScale {
    fn check(self) -> Result<f64> {
        let scale = self.scale;
        if scale > 0.0 && scale <= 1000.0 {
            return Ok(scale);
        }
        Err(LabError::Scale(scale))
    }
}

/// Sorted, without duplicates; fails if a value is out of bounds.
fn list(
    option: &'static str,
    given: Option<Vec<usize>>,
    usual: &[usize],
    low: usize,
    high: usize,
) -> Result<Vec<usize>> {
    let mut values = given.unwrap_or_else(|| usual.to_vec());
    values.sort_unstable();
    values.dedup();
    match values.iter().find(|value| !(low..=high).contains(value)) {
        Some(&value) => Err(LabError::OutOfBounds {
            option,
            value,
            low,
            high,
        }),
        None if values.is_empty() => Err(LabError::NoNumber(option)),
        None => Ok(values),
    }
}

/// 50, 75, 100, 150, 200, 300 and their multiples by ten, up to 50 MB.
fn dense_sizes() -> Vec<usize> {
    let decade = [50, 75, 100, 150, 200, 300];
    let decades = (0..6).map(|power| 10_usize.pow(power));
    let sizes = decades.flat_map(|factor| decade.map(|size| size * factor));
    sizes.chain([50_000_000]).collect()
}

impl RawSweep {
    pub fn check(self) -> Result<InstrumentPlan> {
        let usual = if self.dense {
            dense_sizes()
        } else {
            SWEEP_SIZES.to_vec()
        };
        Ok(InstrumentPlan::Sweep(SweepPlan {
            sizes: list("sizes", self.sizes, &usual, 1, LARGEST)?,
            rounds: self.rounds.rounds,
            scale: self.scale.check()?,
            field: self.field.check()?,
            output: self.output.into(),
        }))
    }
}

impl RawAlias {
    pub fn check(self) -> Result<InstrumentPlan> {
        let usual = if self.dense {
            (0..=4096).step_by(64).collect()
        } else {
            PADDINGS.to_vec()
        };
        Ok(InstrumentPlan::Alias(AliasPlan {
            paddings: list("padding", self.padding, &usual, 0, 1 << 20)?,
            iterations: self.iterations,
            rounds: self.rounds.rounds,
            field: self.field.check()?,
            output: self.output.into(),
        }))
    }
}

impl RawGrid {
    pub fn check(self) -> Result<InstrumentPlan> {
        let (threads, sizes) = if self.dense {
            ((1..=20).collect(), (6..=15).map(|bits| 1 << bits).collect())
        } else {
            (GRID_THREADS.to_vec(), GRID_SIZES.to_vec())
        };
        Ok(InstrumentPlan::Grid(GridPlan {
            threads: list("threads", self.threads, &threads, 1, MOST_THREADS)?,
            sizes: list("sizes", self.sizes, &sizes, 1, LARGEST)?,
            rounds: self.rounds.rounds,
            scale: self.scale.check()?,
            field: self.field.check()?,
            output: self.output.into(),
        }))
    }
}

impl RawPageMap {
    pub fn check(self) -> Result<InstrumentPlan> {
        Ok(InstrumentPlan::PageMap(PageMapPlan {
            threads: list("threads", self.threads, &[1, 2], 1, MOST_THREADS)?,
            rounds: self.rounds.rounds,
            scale: self.scale.check()?,
            output: self.output.into(),
        }))
    }
}

impl RawCounts {
    pub fn check(self) -> Result<InstrumentPlan> {
        Ok(InstrumentPlan::Counts(CountsPlan {
            patterns: self.patterns.unwrap_or_else(|| Pattern::ALL.to_vec()),
            threads: list("threads", self.threads, &COUNTS_THREADS, 1, MOST_THREADS)?,
            operations: self.operations,
            field: self.field.check()?,
            output: self.output.into(),
        }))
    }
}

impl RawInstructions {
    pub fn check(self) -> Result<InstrumentPlan> {
        Ok(InstrumentPlan::Instructions(InstructionsPlan {
            sizes: list("sizes", self.sizes, &PAIR_SIZES, 1, LARGEST)?,
            pairs: self.pairs,
            field: self.field.check()?,
            output: self.output.into(),
        }))
    }
}

impl RawStartup {
    pub fn check(self) -> Result<InstrumentPlan> {
        Ok(InstrumentPlan::Startup(StartupPlan {
            spawns: self.spawns,
            rounds: self.rounds.rounds,
            field: self.field.check()?,
            output: self.output.into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dense_sweep_holds_the_plain_one() {
        let dense = dense_sizes();
        assert!(
            SWEEP_SIZES.iter().all(|size| dense.contains(size)),
            "{dense:?}"
        );
        assert!(dense.is_sorted_by(|a, b| a < b), "{dense:?}");
    }

    #[test]
    fn lists_are_sorted_and_bounded() {
        assert_eq!(list("x", Some(vec![3, 1, 3]), &[], 1, 9).unwrap(), [1, 3]);
        assert_eq!(list("x", None, &[5], 1, 9).unwrap(), [5]);
        let none = list("x", Some(vec![]), &[], 1, 9).unwrap_err();
        assert!(matches!(none, LabError::NoNumber("x")), "{none}");
        let zero = list("x", Some(vec![0]), &[], 1, 9).unwrap_err();
        assert!(
            matches!(zero, LabError::OutOfBounds { value: 0, .. }),
            "{zero}"
        );
    }

    #[test]
    fn a_scale_is_positive() {
        let check = |scale| RawScale { scale }.check();
        assert!(check(0.5).is_ok());
        for wrong in [0.0, -1.0, f64::NAN, 1e9] {
            let refused = check(wrong);
            assert!(matches!(refused, Err(LabError::Scale(_))), "{wrong}");
        }
    }
}
