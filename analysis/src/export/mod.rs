//! `larder export`: writes a trace in the formats of other tools. `crate::reading` measures; each of
//! the other files writes one format.
//!
//! Memory grows with the distinct stacks of the trace, never with its events.

mod args;
pub mod collapsed;
mod dhat;
mod json;
mod memdebug;
mod names;
mod parquet;
pub mod pprof;
pub mod speedscope;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;

pub use args::{EXAMPLES, RawExport};
pub use collapsed::folded_sums;

use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output;

use crate::reading::Analysis;
use crate::reading::losses;
use crate::reading::measure::Measure;
use crate::reading::stacks::{StackRow, Stacks};
use crate::reading::subject::Subject;
use crate::reading::weights::Weights;

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

    /// The command of the first process image.
    fn command(&self) -> String {
        let image = self.analysis.images.first();
        let words = image.map_or(&[][..], |image| &image.process.argv);
        let words: Vec<String> = words
            .iter()
            .map(|word| larder_base::printable::escape_bytes(word))
            .collect();
        words.join(" ")
    }
}

/// Stacks for the simpler formats, from a trace or from a heap profile.
pub struct Weighed<'a> {
    pub rows: &'a [StackRow],
    /// The measures of the rows.
    pub measures: &'a [Measure],
    /// The measure to show first.
    pub measure: Measure,
    /// Printable.
    pub name: String,
}

impl Export {
    fn weighed(&self) -> Weighed<'_> {
        Weighed {
            rows: self.rows(),
            measures: match self.measure.is_of_allocations() {
                true => &Measure::OF_ALLOCATIONS,
                false => std::slice::from_ref(&self.measure),
            },
            measure: self.measure,
            name: larder_base::printable::name(&self.trace),
        }
    }

    fn about(&self) -> pprof::About {
        let images = &self.analysis.images;
        let program = images.first();
        let mut comments = vec![format!("command: {}", self.command())];
        comments.extend(losses::details(&self.analysis));
        pprof::About {
            program: program
                .map(|image| larder_base::printable::escape_bytes(&image.process.executable)),
            pids: images.iter().map(|image| image.process.pid).collect(),
            start_ns: images
                .iter()
                .map(|i| i.process.start_wall_ns)
                .min()
                .unwrap_or(0),
            duration_ns: images.iter().map(|i| i.duration_ns).max().unwrap_or(0),
            period: 1,
            comments,
        }
    }
}

/// The stacks of a trace with this measure, and with those that come with it.
pub fn read(subject: &Subject, measure: Measure) -> Result<(Analysis, Stacks)> {
    let mut stacks = Stacks::default();
    if measure.is_of_allocations() {
        return Ok((Analysis::read(subject, &mut stacks)?, stacks));
    }
    let mut weights = Weights::new(measure);
    let analysis = Analysis::read(subject, &mut weights)?;
    stacks.rows = weights.rows;
    Ok((analysis, stacks))
}

type Writer = fn(&Export, &mut dyn Write) -> io::Result<()>;

pub fn export(plan: ExportPlan) -> Result<()> {
    let write: Writer = match plan.format {
        Format::Pprof => |export, out| pprof::write(&export.weighed(), &export.about(), out),
        Format::Speedscope => |export, out| speedscope::write(&export.weighed(), out),
        Format::Dhat => dhat::write,
        Format::Json => json::write,
        Format::Parquet => return parquet::export(&plan),
        Format::Memdebug => return memdebug::export(&plan),
        _ => |export, out| collapsed::write(&export.weighed(), out),
    };
    let content = plan.format.content();
    let output = plan.output.as_deref();
    output::refuse_terminal(output, content)?;
    let (analysis, mut stacks) = read(&plan.subject, plan.measure)?;
    if matches!(plan.format, Format::Dhat | Format::Json) {
        losses::warn_without_times(&analysis, "lifetimes are 0");
    }
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
