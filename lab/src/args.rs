//! The command line of the tests and measurements, as typed after `larder`, and the plans made from it.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use larder_base::command_line::UsageError;
use larder_base::failure;

use crate::bench::{self, BenchPlan, RawBench};
use crate::error::Result;
use crate::instruments::InstrumentPlan;
use crate::instruments::arguments as instruments;
use crate::replay::{self, RawReplay, ReplayPlan};
use crate::torture::{self, RawTorture, TorturePlan};

/// The tests and measurements of `larder`.
#[derive(Debug, Parser)]
#[command(name = "larder", bin_name = "larder", version, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = false)]
struct Cli {
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    /// Compare allocators: time and memory, workload by workload
    #[command(after_help = bench::EXAMPLES)]
    Bench(RawBench),
    /// Run a trace's calls again, on every allocator: time, peak memory, fragmentation
    #[command(after_help = replay::EXAMPLES)]
    Replay(RawReplay),
    /// Test a malloc for faults: Larder's, or any other
    #[command(after_help = torture::EXAMPLES)]
    Torture(RawTorture),
    /// Time a malloc and free by size, from 50 B to 50 MB
    #[command(after_help = instruments::SWEEP_EXAMPLES)]
    Sweep(instruments::RawSweep),
    /// Run a stencil over large arrays, by padding: which of them alias, and what that costs
    #[command(after_help = instruments::ALIAS_EXAMPLES)]
    Alias(instruments::RawAlias),
    /// Measure Larder itself, for its developers
    #[command(subcommand, arg_required_else_help = false)]
    Lab(RawOwn),
    /// The spellings from before there was `lab`
    #[command(flatten)]
    Own(RawOwn),
}

/// What measures Larder itself.
#[derive(Debug, Subcommand)]
enum RawOwn {
    /// Run t-test1's mix by threads and largest size
    #[command(after_help = instruments::GRID_EXAMPLES)]
    Grid(instruments::RawGrid),
    /// Time the page map's look-up from an address to its descriptor against a hash map behind a lock
    #[command(after_help = instruments::PAGE_MAP_EXAMPLES)]
    PageMap(instruments::RawPageMap),
    /// Count what limits an allocator on many processors: atomics, locks, waits, system calls
    #[command(after_help = instruments::COUNTS_EXAMPLES)]
    Counts(instruments::RawCounts),
    /// Count the instructions of a malloc and free by size
    #[command(after_help = instruments::INSTRUCTIONS_EXAMPLES)]
    Instructions(instruments::RawInstructions),
    /// Time a program that does nothing, and measure the memory of one that does little
    #[command(after_help = instruments::STARTUP_EXAMPLES)]
    Startup(instruments::RawStartup),
    /// Measure the cost of recording a program, against heaptrack
    #[command(after_help = instruments::RECORDING_EXAMPLES)]
    Recording(instruments::RawRecording),
    /// Compare recorded stacks with what libgcc's and gdb's unwinders find
    #[command(after_help = instruments::STACKS_EXAMPLES)]
    Stacks(instruments::RawStacks),
}

/// What the user asked for, checked.
#[derive(Debug)]
pub enum Plan {
    Bench(Box<BenchPlan>),
    Instrument(Box<InstrumentPlan>),
    Replay(ReplayPlan),
    Torture(TorturePlan),
    /// Help or the version, ready to print.
    Show(String),
}

/// Parses and checks the words after the tool's own name.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> failure::Result<Plan> {
    let words: Vec<OsString> = words.into_iter().collect();
    match read(&words) {
        Ok(cli) => Ok(cli.command.check()?),
        Err(error) if error.use_stderr() => Err(UsageError::new(&error, &command(), &words).into()),
        Err(help) => Ok(Plan::Show(help.render().to_string())),
    }
}

fn read(words: &[OsString]) -> std::result::Result<Cli, clap::Error> {
    let parsed = command().try_get_matches_from(words);
    parsed.and_then(|matches| Cli::from_arg_matches(&matches))
}

/// Help does not show the old spellings.
pub fn command() -> clap::Command {
    let own = RawOwn::augment_subcommands(clap::Command::new("lab"));
    own.get_subcommands().fold(Cli::command(), |cli, hidden| {
        cli.mut_subcommand(hidden.get_name(), |command| command.hide(true))
    })
}

impl RawCommand {
    fn check(self) -> Result<Plan> {
        match self {
            RawCommand::Bench(raw) => Ok(Plan::Bench(Box::new(raw.check()?))),
            RawCommand::Replay(raw) => Ok(Plan::Replay(raw.check()?)),
            RawCommand::Torture(raw) => Ok(Plan::Torture(raw.check()?)),
            RawCommand::Sweep(raw) => instrument(raw.check()),
            RawCommand::Alias(raw) => instrument(raw.check()),
            RawCommand::Lab(own) | RawCommand::Own(own) => instrument(own.check()),
        }
    }
}

impl RawOwn {
    fn check(self) -> Result<InstrumentPlan> {
        match self {
            RawOwn::Grid(raw) => raw.check(),
            RawOwn::PageMap(raw) => raw.check(),
            RawOwn::Counts(raw) => raw.check(),
            RawOwn::Instructions(raw) => raw.check(),
            RawOwn::Startup(raw) => raw.check(),
            RawOwn::Recording(raw) => raw.check(),
            RawOwn::Stacks(raw) => raw.check(),
        }
    }
}

fn instrument(plan: Result<InstrumentPlan>) -> Result<Plan> {
    plan.map(|plan| Plan::Instrument(Box::new(plan)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> failure::Result<Plan> {
        let words = std::iter::once("larder").chain(words.iter().copied());
        parse(words.map(OsString::from))
    }

    fn help(words: &[&str]) -> String {
        match plan(words) {
            Ok(Plan::Show(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn old_spellings_mean_the_same_and_are_not_shown() {
        for words in [&["lab", "startup", "--rounds", "3"][..], &["startup"]] {
            assert!(matches!(plan(words), Ok(Plan::Instrument(_))), "{words:?}");
        }
        assert!(!help(&["--help"]).contains("startup"));
        assert!(help(&["lab", "--help"]).contains("startup"));
    }

    #[test]
    fn help_names_what_is_typed() {
        for (words, usage) in [
            (&["bench", "--help"][..], "Usage: larder bench "),
            (&["help", "bench"], "Usage: larder bench "),
            (&["lab", "grid", "--help"], "Usage: larder lab grid "),
            (&["grid", "--help"], "Usage: larder grid "),
        ] {
            assert!(help(words).contains(usage), "{}", help(words));
        }
    }

    #[test]
    fn wrong_usage_names_the_help_and_near_misses() {
        for (words, said) in [
            (&["lab"][..], &["`larder lab --help` lists"][..]),
            (&["lab", "grdi"], &["'grid'", "see `larder lab --help`"]),
            (
                &["lab", "grid", "--thread"],
                &["'--threads'", "see `larder lab grid --help`"],
            ),
            (&["grid", "--no-such"], &["see `larder grid --help`"]),
            (
                &["bench", "--quik"],
                &["'--quick'", "see `larder bench --help`"],
            ),
        ] {
            let failure = plan(words).unwrap_err().message;
            for said in said {
                assert!(failure.contains(said), "{failure}");
            }
        }
    }
}
