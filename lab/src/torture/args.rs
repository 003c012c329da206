//! The command line of `larder torture`, and its check.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_base::format::Format;
use larder_base::preload::Allocator;

use crate::error::{LabError, Result};

pub const EXAMPLES: &str = "\
Examples:
  larder torture
      Larder's own allocator, for ten seconds.
  larder torture --lib /usr/lib/x86_64-linux-gnu/libjemalloc.so.2 --seconds 600
  larder torture --seed 0x5eed --round 7
      Repeat the operations of another run, from its seventh round on.
  larder torture --program build/tsan/torture/larder-torture-prefixed
      A build of the torture program that has its malloc linked in.

Exit codes: 0 no fault found; 1 a fault was found; 125 the tool failed.";

#[derive(Debug, Args)]
pub struct RawTorture {
    /// Torture this shared library's malloc [default: Larder's own]
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// Torture the malloc of the C library: preload nothing
    #[arg(long, conflicts_with = "lib")]
    no_larder: bool,
    /// Run this build of the torture program, with the malloc that is linked into it
    #[arg(long, value_name = "PATH", conflicts_with_all = ["lib", "no_larder"])]
    program: Option<PathBuf>,
    /// Concurrent streams of operations
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: u32,
    /// Run for S seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    seconds: u32,
    /// The seed of all operations; decimal, or 0x and hexadecimal [default: random]
    #[arg(long, value_name = "X", value_parser = parse_seed)]
    seed: Option<u64>,
    /// Start with this round of the seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    round: u32,
    /// Approximate limit on the MiB that are allocated at a time
    #[arg(long, value_name = "M", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    live_mib: u32,
    /// Report a hang when a thread makes no progress for S seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    hang_seconds: u32,
    /// Do not fork
    #[arg(long)]
    no_forks: bool,
    /// Send no signals
    #[arg(long)]
    no_signals: bool,
    /// Continue after faults of this kind; may be repeated
    #[arg(long, value_enum, value_name = "KIND")]
    ignore: Vec<Ignored>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Kinds of faults after which a run can continue; the names are the torture program's.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ignored {
    Misaligned,
    ChangedErrno,
    WrongResult,
    Growth,
}

/// What is tortured.
#[derive(Debug, PartialEq, Eq)]
pub enum Victim {
    /// The staged torture program on this malloc.
    Malloc(Allocator),
    /// Another build of the program, with its own malloc.
    Program(PathBuf),
}

#[derive(Debug)]
pub struct TorturePlan {
    pub victim: Victim,
    /// For the torture program.
    pub options: Vec<String>,
    pub seconds: u32,
    pub hang_seconds: u32,
    pub format: Format,
}

fn parse_seed(text: &str) -> std::result::Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "must be a number below 2^64, decimal or 0x and hexadecimal".to_owned())
}

impl RawTorture {
    pub fn check(self) -> Result<TorturePlan> {
        let mut options = Vec::new();
        let mut add = |name: &str, value: u64| options.extend([name.to_owned(), value.to_string()]);
        add("--threads", self.threads.into());
        add("--seconds", self.seconds.into());
        add("--round", self.round.into());
        add("--live-mib", self.live_mib.into());
        add("--hang-seconds", self.hang_seconds.into());
        if let Some(seed) = self.seed {
            add("--seed", seed);
        }
        if self.no_forks {
            options.push("--no-forks".to_owned());
        }
        if self.no_signals {
            options.push("--no-signals".to_owned());
        }
        for kind in &self.ignore {
            let name = kind.to_possible_value().expect("no kind is skipped");
            options.extend(["--ignore".to_owned(), name.get_name().to_owned()]);
        }
        let victim = match (self.program, self.lib, self.no_larder) {
            (Some(program), _, _) => Victim::Program(program),
            (None, Some(library), _) => Victim::Malloc(Allocator::Other(library)),
            (None, None, true) => Victim::Malloc(Allocator::Own),
            (None, None, false) => Victim::Malloc(Allocator::Larder),
        };
        if victim == Victim::Program(PathBuf::new()) {
            return Err(LabError::usage("--program '': name a torture program"));
        }
        Ok(TorturePlan {
            victim,
            options,
            seconds: self.seconds,
            hang_seconds: self.hang_seconds,
            format: Format::printed(self.json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_decimal_or_hexadecimal() {
        assert_eq!(parse_seed("1999"), Ok(1999));
        assert_eq!(parse_seed("0xffffffffffffffff"), Ok(u64::MAX));
        for wrong in ["", "0x", "-1", "seed", "0x1ffffffffffffffff"] {
            assert!(parse_seed(wrong).is_err(), "{wrong}");
        }
    }
}
