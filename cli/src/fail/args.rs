//! The options of `larder run` that make allocations fail, and the checked plan made of them.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use larder_base::failure::{Failure, Result};
use larder_base::format::Format;

pub const EXAMPLES: &str = "\
Examples:
  larder run -- git log --oneline
      On Larder's allocator.
  larder run --guard -- ./server
      Find overflows and uses after free, by chance and at no cost.
  larder run --hardened -- ./server
      Stop overflows and writes after free of every object.
  larder run --fail-after 1000 -- git log --oneline
      All allocations after the first thousand fail.
  larder run --fail-nth 17 -- git log --oneline
      The 17th fails, and no other.
  larder run --fail-each --sample 200 --seed 1 -- git log --oneline
      200 runs, in each of which another allocation fails: which of them end badly?

Exit codes: the command's own; with --fail-each 0 all runs ended well, 1 one did not; 125 the tool
failed; 126 the command cannot be executed or reached; 127 it was not found.";

#[derive(Debug, Args)]
pub struct RawFail {
    /// Make all allocations after the first N fail
    #[arg(long, value_name = "N", conflicts_with_all = ["fail_nth", "fail_each"])]
    fail_after: Option<u64>,
    /// Make the Nth allocation fail
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(conflicts_with = "fail_each")]
    fail_nth: Option<u64>,
    /// Count the allocations, then run the command once for each of them and make it fail
    #[arg(long)]
    fail_each: bool,
    /// Make only K of these runs, chosen at random
    #[arg(long, value_name = "K")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// The seed of that choice [default: random]
    #[arg(long, value_name = "S", requires = "sample")]
    seed: Option<u64>,
    /// Report a run that takes longer as a hang [default: 10, or ten times a run without a failure]
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: Option<u64>,
    /// Run on the program's own malloc
    #[arg(long)]
    no_larder: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    After(u64),
    Nth(u64),
    Each,
}

#[derive(Debug)]
pub struct FailPlan {
    pub mode: Mode,
    /// How many runs of `Each` to make, and the seed that chooses them.
    pub sample: Option<(u64, u64)>,
    pub limit: Option<Duration>,
    pub on_larder: bool,
    pub format: Format,
    /// At least one word.
    pub command: Vec<OsString>,
}

impl RawFail {
    /// None: no allocation is to fail.
    pub fn check(self, command: &[OsString]) -> Result<Option<FailPlan>> {
        let only_each = self.json || self.limit.is_some() || self.sample.is_some();
        let mode = match (self.fail_after, self.fail_nth, self.fail_each) {
            (Some(count), ..) => Mode::After(count),
            (_, Some(number), _) => Mode::Nth(number),
            (_, _, true) => Mode::Each,
            _ if self.no_larder || only_each => {
                return Err(Failure::failed(
                    "--no-larder, --json, --limit and --sample need --fail-each, the first also takes \
                     --fail-after or --fail-nth: add one of these",
                ));
            }
            _ => return Ok(None),
        };
        if mode != Mode::Each && only_each {
            return Err(Failure::failed(
                "--json, --limit and --sample need --fail-each: leave them out, or give --fail-each",
            ));
        }
        let seed = || self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
        Ok(Some(FailPlan {
            mode,
            sample: self.sample.map(|runs| (runs, seed())),
            limit: self.limit.map(Duration::from_secs),
            on_larder: !self.no_larder,
            format: Format::printed(self.json),
            command: command.to_owned(),
        }))
    }
}
