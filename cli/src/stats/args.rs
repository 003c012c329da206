//! What is typed after `larder stats`, and the checked plan that comes of it.

use clap::{Args, ValueEnum};

pub const EXAMPLES: &str = "\
Examples:
  larder stats $(pgrep -o redis-server)
      What its heap holds, by kind and by size class, and how much of it is in memory.
  larder stats 1234 --json | jq .kinds
  larder stats 1234 5678 --format prometheus
      Metrics of two processes, for a collector of text files.

The processes run on, and are not stopped or asked. Their memory is read: you have to be their user
and, where kernel.yama.ptrace_scope is not 0, root.

Exit codes: 0 fine; 125 the tool failed, or a process cannot be looked into.";

#[derive(Debug, Args)]
pub struct RawStats {
    /// The processes
    #[arg(value_name = "PID", required = true, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    processes: Vec<u32>,
    /// How it is written
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        conflicts_with = "json"
    )]
    format: Format,
    /// Print JSON: the same as --format json
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    Text,
    /// One object, or of several processes a list
    Json,
    /// Prometheus' text
    Prometheus,
}

#[derive(Debug)]
pub struct StatsPlan {
    pub processes: Vec<u32>,
    pub format: Format,
}

impl RawStats {
    pub fn check(self) -> StatsPlan {
        StatsPlan {
            processes: self.processes,
            format: if self.json { Format::Json } else { self.format },
        }
    }
}
