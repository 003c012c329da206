//! The command line of `larder history`, and the checked plan made of it.

use std::path::PathBuf;

use clap::Args;
use larder_base::format::Format;

pub const EXAMPLES: &str = "\
Examples:
  larder history
      The runs that `larder check` kept, and the commits where a figure moved.
  larder history curl --last 50
  larder history --html trend.html
  larder history --json | jq '.[0].changes'

Exit codes: 0; 125 the tool failed.";

#[derive(Debug, Args)]
pub struct RawHistory {
    /// Show only the runs of this budget
    name: Option<String>,
    /// The database
    #[arg(long, value_name = "FILE", default_value = super::store::DEFAULT)]
    db: PathBuf,
    /// Show the last N runs of each budget
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    last: u32,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug)]
pub struct HistoryPlan {
    pub name: Option<String>,
    pub database: PathBuf,
    pub last: u32,
    pub html: Option<PathBuf>,
    pub format: Format,
}

impl RawHistory {
    pub fn check(self) -> HistoryPlan {
        HistoryPlan {
            name: self.name,
            database: self.db,
            last: self.last,
            html: self.html,
            format: Format::printed(self.json),
        }
    }
}
