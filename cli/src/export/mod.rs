//! `larder export`: a trace in the formats of other tools. `crate::analysis` measures; of the rest
//! each file writes one format.
//!
//! Memory grows with the distinct stacks of the trace, never with its events.

mod args;
mod collapsed;
mod dhat;
mod json;
mod memdebug;
mod names;
mod parquet;
mod pprof;
mod speedscope;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;

pub use args::{EXAMPLES, RawExport};
pub use collapsed::folded_sums;

use crate::analysis::Analysis;
use crate::analysis::measure::Measure;
use crate::analysis::stacks::{StackRow, Stacks};
use crate::analysis::subject::Subject;
use crate::failure::Result;
use crate::output::{self, Content};
use args::Format;

#[derive(Debug)]
pub struct ExportPlan {
    subject: Subject,
    format: Format,
    measure: Measure,
    /// Leave out the plumbing between each site and the allocator.
    from_site: bool,
    output: Option<PathBuf>,
}

/// What is exported.
struct Export {
    analysis: Analysis,
    stacks: Stacks,
    trace: PathBuf,
    measure: Measure,
}

impl Export {
    fn rows(&self) -> &[StackRow] {
        &self.stacks.rows
    }

    /// Of the first process image, for people.
    fn command(&self) -> String {
        let image = self.analysis.images.first();
        let words = image.map_or(&[][..], |image| &image.process.argv);
        let words: Vec<String> = words
            .iter()
            .map(|word| crate::printable::escape_bytes(word))
            .collect();
        words.join(" ")
    }
}

type Writer = fn(&Export, &mut dyn Write) -> io::Result<()>;

pub fn export(plan: ExportPlan) -> Result<()> {
    let (content, write): (Content, Writer) = match plan.format {
        Format::Collapsed => (Content::Text, collapsed::write),
        Format::Pprof => (Content::Binary, pprof::write),
        Format::Speedscope => (Content::Text, speedscope::write),
        Format::Dhat => (Content::Text, dhat::write),
        Format::Json => (Content::Text, json::write),
        Format::Parquet => return parquet::export(&plan),
        Format::Memdebug => return memdebug::export(&plan),
    };
    let output = plan.output.as_deref();
    output::refuse_terminal(output, content)?;
    let mut stacks = Stacks::default();
    let analysis = Analysis::read(&plan.subject, &mut stacks)?;
    if plan.from_site {
        stacks.rows.iter_mut().for_each(StackRow::begin_at_site);
    }
    let export = Export {
        analysis,
        stacks,
        trace: plan.subject.trace,
        measure: plan.measure,
    };
    output::write(output, content, |out| write(&export, out))
}
