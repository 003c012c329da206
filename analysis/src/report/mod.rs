//! `larder report`: reads a trace, counts its calls and ranks the sites that made them.
//!
//! `crate::reading` measures, `text` and `json` print.

mod args;
mod json;
mod text;

pub use args::{EXAMPLES, RawReport};
pub use json::frame as frame_json;

use std::path::PathBuf;

use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output;

use crate::reading::Analysis;
use crate::reading::sites::SortKey;
use crate::reading::subject::Subject;

#[derive(Debug)]
pub struct ReportPlan {
    pub subject: Subject,
    /// `None`: all rankings.
    pub sort: Option<SortKey>,
    /// `None`: the default of the format; `Some(0)`: all.
    pub top: Option<usize>,
    /// Text or JSON.
    pub format: Format,
    pub output: Option<PathBuf>,
}

/// Sites in a ranking of the text form, by default.
const DEFAULT_TOP: usize = 10;

/// A report, ready to print.
pub struct Report {
    pub analysis: Analysis,
    pub plan: ReportPlan,
}

impl Report {
    /// The number of sites in a ranking.
    pub fn top(&self) -> usize {
        match (self.plan.top, self.plan.format) {
            (Some(0), _) | (None, Format::Json) => usize::MAX,
            (Some(top), _) => top,
            (None, _) => DEFAULT_TOP,
        }
    }
}

/// Prints the report, and warnings of losses on stderr.
pub fn report(plan: ReportPlan) -> Result<()> {
    let analysis = Analysis::read(&plan.subject, &mut ())?;
    let report = Report { analysis, plan };
    let plan = &report.plan;
    output::write(
        plan.output.as_deref(),
        plan.format.content(),
        |out| match plan.format {
            Format::Json => json::print(&report, out),
            _ => text::print(&report, out),
        },
    )
}
