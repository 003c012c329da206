//! The command line of `larder view`.

use clap::Args;
use larder_analysis::reading::lookup::RawSource;
use larder_analysis::reading::subject::{RawSubject, Subject};
use larder_base::failure::Result;

use super::columns::Column;

pub const EXAMPLES: &str = "\
Examples:
  larder view app.trace
      The sites, their stacks, callers and callees, and the findings. q ends it, ? lists the keys.
  larder view app.trace --sort peak --filter parse
  larder view app.trace --pid 4711 --source-path ~/src

Exit codes: 0; 125 the tool failed, or stdout is no terminal.";

#[derive(Debug, Args)]
pub struct RawView {
    #[command(flatten)]
    subject: RawSubject,
    /// What sites are ranked by at the start
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "calls")]
    sort: Column,
    /// Only sites whose name or place contains this; case does not matter
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    #[command(flatten)]
    source: RawSource,
}

#[derive(Debug)]
pub struct ViewPlan {
    pub subject: Subject,
    pub sort: Column,
    pub filter: String,
}

impl RawView {
    pub fn check(self) -> Result<ViewPlan> {
        let mut subject = self.subject.check()?;
        self.source.check(&mut subject.charging.lookup)?;
        Ok(ViewPlan {
            subject,
            sort: self.sort,
            filter: self.filter,
        })
    }
}
