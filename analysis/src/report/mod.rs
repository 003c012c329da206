//! `larder report`: reads a trace, counts its calls and ranks the sites that made them.
//!
//! `crate::reading` measures, `text` and `json` print; `syscalls` has the report of system calls.

mod args;
mod json;
mod syscalls;
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
use syscalls::SystemCalls;

#[derive(Debug)]
pub struct ReportPlan {
    pub subject: Subject,
    /// `None`: all rankings.
    pub sort: Option<SortKey>,
    /// `None`: the default of the format; `Some(0)`: all.
    pub top: Option<usize>,
    /// The system calls instead of the allocations.
    pub syscalls: bool,
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

    /// That of the longest process image.
    pub fn duration_ns(&self) -> u64 {
        let images = self.analysis.images.iter();
        images.map(|image| image.duration_ns).max().unwrap_or(0)
    }
}

/// Prints the report, and warnings of losses on stderr.
pub fn report(plan: ReportPlan) -> Result<()> {
    let mut found = SystemCalls::default();
    let analysis = match plan.syscalls {
        true => Analysis::read(&plan.subject, &mut found)?,
        false => Analysis::read(&plan.subject, &mut ())?,
    };
    let report = Report { analysis, plan };
    let plan = &report.plan;
    output::write(plan.output.as_deref(), plan.format.content(), |out| match (
        plan.format,
        plan.syscalls,
    ) {
        (Format::Json, false) => json::print(&report, out),
        (Format::Json, true) => json::print_syscalls(&report, &found, out),
        (_, false) => text::print(&report, out),
        (_, true) => text::print_syscalls(&report, &found, out),
    })
}
