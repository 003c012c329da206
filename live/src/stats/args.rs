//! The command line of `larder stats`, and its check.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::{self, Format};

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
    /// The format of the output [default: by the name of the output; text]
    #[arg(long, value_name = "FORMAT", value_parser = format::among(&MADE))]
    format: Option<Format>,
    /// Print JSON
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The file to write, in the format of its ending; an existing one is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const MADE: [Format; 3] = [Format::Text, Format::Json, Format::Prometheus];

#[derive(Debug)]
pub enum Subject {
    Processes(Vec<u32>),
    /// At least one word.
    Command(Vec<OsString>),
}

#[derive(Debug)]
pub struct StatsPlan {
    pub subject: Subject,
    /// One of `MADE`.
    pub format: Format,
    pub output: Option<PathBuf>,
}

impl RawStats {
    pub fn check(self) -> Result<StatsPlan> {
        let output = self.output.as_deref();
        Ok(StatsPlan {
            format: format::of_output(self.format, self.json, output, &MADE)?,
            subject: if self.command.is_empty() {
                Subject::Processes(self.processes)
            } else {
                Subject::Command(self.command)
            },
            output: self.output,
        })
    }
}
