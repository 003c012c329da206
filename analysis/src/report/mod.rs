//! `larder report`: reads a trace, counts its calls and ranks the sites that made them.
//!
//! `crate::reading` measures, `text` and `json` print.

mod json;
mod text;

pub use json::frame as frame_json;

use std::io::{self, BufWriter, Write};

use larder_base::failure::{Failure, Result};
use larder_base::format::Format;

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
    pub format: Format,
}

/// Sites in a ranking of the text form, unless said otherwise.
const DEFAULT_TOP: usize = 10;

/// The whole of what is printed.
pub struct Report {
    pub analysis: Analysis,
    pub plan: ReportPlan,
}

impl Report {
    /// How many sites a ranking shows.
    pub fn top(&self) -> usize {
        match (self.plan.top, self.plan.format) {
            (Some(0), _) | (None, Format::Json) => usize::MAX,
            (Some(top), _) => top,
            (None, Format::Text) => DEFAULT_TOP,
        }
    }
}

/// Prints the report on stdout, and warnings of losses on stderr.
pub fn report(plan: ReportPlan) -> Result<()> {
    let analysis = Analysis::read(&plan.subject, &mut ())?;
    let report = Report { analysis, plan };
    match print(&report) {
        // Whoever reads us has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "the report cannot be written: {}",
            larder_base::target::reason(&error)
        ))),
        Ok(()) => Ok(()),
    }
}

fn print(report: &Report) -> io::Result<()> {
    match report.plan.format {
        Format::Json => {
            let mut out = BufWriter::new(io::stdout().lock());
            json::print(report, &mut out)?;
            out.flush()
        }
        Format::Text => {
            let mut out = BufWriter::new(anstream::stdout().lock());
            text::print(report, &mut out)?;
            out.flush()
        }
    }
}
