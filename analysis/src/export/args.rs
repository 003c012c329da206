//! The command line of `larder export`, and its check.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::{self, Format};

use super::ExportPlan;
use crate::error::AnalysisError;
use crate::reading::measure::Measure;
use crate::reading::subject::{RawSubject, Subject};
use crate::view::View;

pub const EXAMPLES: &str = "\
Examples:
  larder export -o app.pb.gz app.trace
      go tool pprof -top app.pb.gz
  larder export --format collapsed --value bytes app.trace | inferno-flamegraph > app.svg
  larder export -o app.speedscope.json app.trace
  larder export -o app.dhat app.trace
      Load it in valgrind's dh_view.html.
  larder export -o app.log app.trace
      larder memdebug app.log
  larder export -o app.parquet app.trace
      duckdb -c \"select count(*) from 'app.parquet/events.parquet'\"";

#[derive(Debug, Args)]
pub struct RawExport {
    #[command(flatten)]
    subject: RawSubject,
    /// The format of the output [default: by the name of the output]
    #[arg(long, value_name = "FORMAT", required_unless_present = "output")]
    #[arg(value_parser = format::among(&MADE))]
    format: Option<Format>,
    /// The measure: for collapsed the one to write [default: calls], for pprof and speedscope the one
    /// to show first
    #[arg(long, value_enum, value_name = "MEASURE")]
    value: Option<Measure>,
    /// Cut each stack at its site: leave out the frames between it and the allocator
    #[arg(long)]
    from_site: bool,
    /// The file to write, or for Parquet the directory; an existing one is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const MADE: [Format; 7] = [
    Format::Collapsed,
    Format::Pprof,
    Format::Speedscope,
    Format::Dhat,
    Format::Json,
    Format::Parquet,
    Format::Memdebug,
];

impl RawExport {
    pub fn check(self) -> Result<View> {
        let format = match (self.format, &self.output) {
            (None, Some(path)) => format::chosen(path, &MADE, ", or give --format")?,
            // clap requires one of the two.
            (said, _) => said.unwrap_or(Format::Collapsed),
        };
        let subject = self.subject.check()?;
        let mut plan = ExportPlan::new(subject, format, self.value, self.output)?;
        plan.from_site = self.from_site;
        Ok(View::Export(plan))
    }
}

impl ExportPlan {
    /// `measure`: `None`, or one that the format can show.
    pub fn new(
        subject: Subject,
        format: Format,
        measure: Option<Measure>,
        output: Option<PathBuf>,
    ) -> Result<Self> {
        let one_of_many = matches!(
            format,
            Format::Dhat | Format::Json | Format::Parquet | Format::Memdebug
        );
        if one_of_many && measure.is_some() {
            let fault = "--value: this format holds every measure: leave it out";
            return Err(AnalysisError::usage(fault).into());
        }
        if format == Format::Parquet && output.is_none() {
            let fault = "--format parquet: writes two files: name a directory for them with -o";
            return Err(AnalysisError::usage(fault).into());
        }
        if format == Format::Memdebug && !subject.wrappers.is_empty() {
            let fault =
                "--wrapper: a log has every call: leave it out, or name the functions with --skip";
            return Err(AnalysisError::usage(fault).into());
        }
        Ok(Self {
            subject,
            format,
            measure: measure.unwrap_or(Measure::Calls),
            from_site: false,
            output,
        })
    }
}
