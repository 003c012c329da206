//! What is typed after `larder stats`, and the checked plan that comes of it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub const EXAMPLES: &str = "\
Examples:
  larder stats $(pgrep -o redis-server)
      What its heap holds, by kind and by size class, and how much of it is in memory.
  larder stats 1234 --json | jq .kinds
  larder stats 1234 5678 --format prometheus
      Metrics of two processes, for a collector of text files.
  larder stats -o app.txt -- ./app --input data.bin
      Run it on Larder; report each of its processes at its end.

The processes keep running; they are not stopped. Their memory is read: you have to be their user
and, where kernel.yama.ptrace_scope is not 0, root.

Exit codes: 0, or with -- the command's own; 125 the tool failed, or a process cannot be read;
126 the command cannot be executed or reached; 127 the command was not found.";

#[derive(Debug, Args)]
pub struct RawStats {
    /// The processes
    #[arg(
        value_name = "PID",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    processes: Vec<u32>,
    /// The format of the output
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
    /// The file to write; an existing file is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    Text,
    /// One object; for several processes, a list
    Json,
    /// Prometheus's text format
    Prometheus,
}

#[derive(Debug)]
pub enum Subject {
    Processes(Vec<u32>),
    /// At least one word.
    Command(Vec<OsString>),
}

#[derive(Debug)]
pub struct StatsPlan {
    pub subject: Subject,
    pub format: Format,
    pub output: Option<PathBuf>,
}

impl RawStats {
    pub fn check(self) -> StatsPlan {
        StatsPlan {
            subject: if self.command.is_empty() {
                Subject::Processes(self.processes)
            } else {
                Subject::Command(self.command)
            },
            format: if self.json { Format::Json } else { self.format },
            output: self.output,
        }
    }
}
