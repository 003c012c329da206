//! The command line of `larder check`, and the checked plan made of it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::subject::RawCharging;
use larder_base::failure::{Failure, Result};
use larder_base::format::Format;

use crate::history::store::Kept;

pub const EXAMPLES: &str = "\
Examples:
  larder check --update -- ./app --input data.bin
      Write larder.toml, with the figures of the run as limits.
  larder check -- ./app --input data.bin
      Is the run within its budget? If not, five lines report what grew, and where.
  larder check
      The same with the command that the budget names.
  larder check app.trace --budget app.toml --json

Exit codes: 0 within the budget; 1 over it; 2 the command itself failed, so nothing was judged; 125
the tool failed; 126 the command cannot be executed or reached; 127 the command was not found.";

#[derive(Debug, Args)]
pub struct RawCheck {
    /// Judge this trace instead of running a command
    #[arg(value_name = "TRACE", conflicts_with = "command")]
    trace: Option<PathBuf>,
    /// The budget
    #[arg(long, value_name = "FILE", default_value = "larder.toml")]
    budget: PathBuf,
    /// Write the run's figures into the budget instead of judging the run
    #[arg(long)]
    update: bool,
    /// Run N times and take the lowest of each figure
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    charging: RawCharging,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    history: RawKept,
    /// The command and its arguments [default: the budget's]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Where a run is stored.
#[derive(Debug, Args)]
struct RawKept {
    /// Store the run in this database
    #[arg(long, value_name = "FILE", default_value = crate::history::store::DEFAULT)]
    db: PathBuf,
    /// Do not store the run
    #[arg(long, conflicts_with = "db")]
    no_history: bool,
    /// The run is of this commit [default: git's]
    #[arg(long, value_name = "ID")]
    commit: Option<String>,
}

#[derive(Debug)]
pub struct CheckPlan {
    pub trace: Option<PathBuf>,
    pub budget: PathBuf,
    pub update: bool,
    pub runs: u32,
    pub charging: Charging,
    pub format: Format,
    /// `None`: nowhere.
    pub keep: Option<Kept>,
    /// Empty: the budget's.
    pub command: Vec<OsString>,
}

impl RawCheck {
    pub fn check(self) -> Result<CheckPlan> {
        if self.trace.is_some() && self.runs > 1 {
            return Err(Failure::failed(
                "--runs: a trace is one run: give a command instead",
            ));
        }
        let keep = (!self.history.no_history).then_some(Kept {
            database: self.history.db,
            commit: self.history.commit,
        });
        Ok(CheckPlan {
            trace: self.trace,
            budget: self.budget,
            update: self.update,
            runs: self.runs,
            charging: self.charging.check()?,
            format: Format::printed(self.json),
            keep,
            command: self.command,
        })
    }
}
