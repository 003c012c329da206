//! `larder report`: reads a trace, counts its calls and ranks the sites that made them.
//!
//! `crate::reading` measures, `text` and `json` print; `copies` and `syscalls` have the reports of copies and
//! of system calls, from `callers` and `histogram`, `cpu` that of processor time.

mod args;
pub mod callers;
mod copies;
mod cpu;
mod histogram;
mod json;
mod samples;
pub mod syscalls;
mod text;

pub use args::{EXAMPLES, RawReport};
pub use copies::{Copied, Copies};
pub use cpu::text::time;
pub use cpu::{Cpu, Sampled};
pub use json::frame as frame_json;
pub use samples::Samples;
pub use syscalls::SystemCalls;

use std::io::{self, Write};
use std::path::PathBuf;

use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output;

use crate::of::Of;
use crate::reading::Analysis;
use crate::reading::observe::Observer;
use crate::reading::sites::SortKey;
use crate::reading::subject::Subject;

#[derive(Debug)]
pub struct ReportPlan {
    pub subject: Subject,
    /// `None`: all rankings.
    pub sort: Option<SortKey>,
    /// `None`: the default of the format; `Some(0)`: all.
    pub top: Option<usize>,
    pub of: Of,
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
    match plan.of {
        Of::Allocations => print(
            plan,
            (),
            [
                |report, (), out| text::print(report, out),
                |report, (), out| json::print(report, out),
            ],
        ),
        Of::SystemCalls => print(
            plan,
            SystemCalls::default(),
            [text::print_syscalls, json::print_syscalls],
        ),
        Of::Copies => print(
            plan,
            Copies::default(),
            [text::print_copies, json::print_copies],
        ),
        Of::ProcessorTime => print(plan, Cpu::default(), [text::print_cpu, json::print_cpu]),
    }
}

/// Prints what an observer has found.
type Print<O> = fn(&Report, &O, &mut dyn Write) -> io::Result<()>;

fn print<O: Observer>(plan: ReportPlan, mut found: O, [text, json]: [Print<O>; 2]) -> Result<()> {
    let analysis = Analysis::read(&plan.subject, &mut found)?;
    let report = Report { analysis, plan };
    let plan = &report.plan;
    let printed = output::write(
        plan.output.as_deref(),
        plan.format.content(),
        |out| match plan.format {
            Format::Json => json(&report, &found, out),
            _ => text(&report, &found, out),
        },
    );
    // The process ends: freeing a block for each stack would take time.
    std::mem::forget(report);
    printed
}
