//! The command line of `larder advise`.

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::Format;

use super::AdvisePlan;
use super::finding::Confidence;
use crate::reading::subject::RawSubject;

pub const EXAMPLES: &str = "Examples:\n  larder advise app.trace\n  \
    larder advise app.trace --top 3 --stacks\n  larder advise app.trace --all --json > advice.json";

/// Of a trace with more process images the busiest are shown.
const PROCESSES_SHOWN: usize = 3;

#[derive(Debug, Args)]
pub struct RawAdvise {
    #[command(flatten)]
    subject: RawSubject,
    /// Findings to show, 0 for all of all processes [default: 10 of the 3 busiest; with --json all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Findings of low confidence, and those that save next to nothing, too
    #[arg(long)]
    all: bool,
    /// The whole stack under each finding
    #[arg(long)]
    stacks: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RawAdvise {
    pub fn check(self) -> Result<AdvisePlan> {
        let top = match (self.top, self.json) {
            (Some(0), _) | (None, true) => usize::MAX,
            (top, _) => top.unwrap_or(10),
        };
        let every = self.all || self.json || self.top == Some(0);
        Ok(AdvisePlan {
            processes: if every { usize::MAX } else { PROCESSES_SHOWN },
            subject: self.subject.check()?,
            top,
            least: if self.all {
                Confidence::Low
            } else {
                Confidence::Medium
            },
            stacks: self.stacks,
            format: if self.json {
                Format::Json
            } else {
                Format::Text
            },
        })
    }
}
