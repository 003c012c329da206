//! The commands that show a trace as a view, and the format that `-o FILE` chooses by the ending of the
//! file's name.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::{self, Format};

use crate::advise::{self, AdvisePlan};
use crate::calls::{self, CallsPlan};
use crate::diff::{self, DiffPlan};
use crate::error::AnalysisError;
use crate::export::{self, ExportPlan};
use crate::flamegraph::{self, FlamegraphPlan};
use crate::html::{self, HtmlPlan, TimelinePlan};
use crate::report::{self, ReportPlan};

#[derive(Debug)]
pub enum View {
    Report(ReportPlan),
    Advise(AdvisePlan),
    Calls(CallsPlan),
    Diff(DiffPlan),
    Html(HtmlPlan),
    Timeline(TimelinePlan),
    Flamegraph(FlamegraphPlan),
    Export(ExportPlan),
}

impl View {
    pub fn show(self) -> Result<()> {
        match self {
            View::Report(plan) => report::report(plan),
            View::Advise(plan) => advise::advise(&plan),
            View::Calls(plan) => calls::calls(&plan),
            View::Diff(plan) => diff::diff(&plan),
            View::Html(plan) => html::html(&plan),
            View::Timeline(plan) => html::timeline(&plan),
            View::Flamegraph(plan) => flamegraph::flamegraph(&plan),
            View::Export(plan) => export::export(plan),
        }
    }
}

/// The output of a view, and its format.
#[derive(Debug, Args)]
pub struct RawOutput {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The file to write, in the format of its ending; an existing one is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl RawOutput {
    pub fn format(&self, made: &[Format]) -> Result<Format> {
        match &self.output {
            Some(path) if !self.json => Ok(format::chosen(path, made, "")?),
            _ => Ok(Format::printed(self.json)),
        }
    }
}

/// Fails if an option has no effect in the chosen format.
pub fn refuse(options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            let fault = format!("{option}: does nothing in this format: leave it out");
            Err(AnalysisError::usage(fault).into())
        }
        None => Ok(()),
    }
}
