//! The command line of `larder advise`.

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::Format;

use super::AdvisePlan;
use super::finding::Confidence;
use crate::html::HtmlPlan;
use crate::reading::lookup::RawSource;
use crate::reading::subject::RawSubject;
use crate::reading::suppressions::RawBuiltIn;
use crate::view::{self, RawOutput, View};

pub const EXAMPLES: &str = "Examples:\n  larder advise app.trace\n  \
    larder advise app.trace --top 3 --stacks\n  larder advise app.trace --all --json > advice.json\n  \
    larder advise app.trace -o app.html\n      \
    The page of larder html, which has the findings; advice.txt and advice.json are these alone.";

/// Process images shown, the busiest first.
const PROCESSES_SHOWN: usize = 3;

#[derive(Debug, Args)]
pub struct RawAdvise {
    #[command(flatten)]
    subject: RawSubject,
    /// Findings to show of each process, 0 for all of all processes [default: 10 of the 3 busiest; in JSON
    /// all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Also show findings of low confidence, and those that save next to nothing
    #[arg(long)]
    all: bool,
    /// Show the whole stack under each finding
    #[arg(long)]
    stacks: bool,
    #[command(flatten)]
    built_in: RawBuiltIn,
    #[command(flatten)]
    source: RawSource,
    #[command(flatten)]
    output: RawOutput,
}

impl RawAdvise {
    pub fn check(self) -> Result<View> {
        let format = self
            .output
            .format(&[Format::Text, Format::Json, Format::Html])?;
        let mut subject = self.subject.check()?;
        self.source.check(&mut subject.charging.lookup)?;
        if format == Format::Html {
            view::refuse(&[
                ("--top", self.top.is_some()),
                ("--all", self.all),
                ("--stacks", self.stacks),
                (
                    "--no-built-in-suppressions",
                    self.built_in.no_built_in_suppressions,
                ),
            ])?;
            return Ok(View::Html(HtmlPlan::new(subject, self.output.output)));
        }
        let json = format == Format::Json;
        let top = match (self.top, json) {
            (Some(0), _) | (None, true) => usize::MAX,
            (top, _) => top.unwrap_or(10),
        };
        let every = self.all || json || self.top == Some(0);
        Ok(View::Advise(AdvisePlan {
            processes: if every { usize::MAX } else { PROCESSES_SHOWN },
            subject,
            top,
            least: if self.all {
                Confidence::Low
            } else {
                Confidence::Medium
            },
            suppressions: self.built_in.check(),
            stacks: self.stacks,
            format,
            output: self.output.output,
        }))
    }
}
