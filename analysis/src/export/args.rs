//! The command line of `larder export`, and its check.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_base::failure::{Failure, Result};

use super::ExportPlan;
use crate::reading::measure::Measure;
use crate::reading::subject::RawSubject;

pub const EXAMPLES: &str = "\
Examples:
  larder export --format pprof -o app.pb.gz app.trace
      go tool pprof -top app.pb.gz
  larder export --format collapsed --value bytes app.trace | inferno-flamegraph > app.svg
  larder export --format speedscope -o app.speedscope.json app.trace
  larder export --format dhat -o dhat.out.app app.trace
      Load it in valgrind's dh_view.html.
  larder export --format memdebug -o app.log app.trace
      larder memdebug app.log
  larder export --format parquet -o app.parquet app.trace
      duckdb -c \"select count(*) from 'app.parquet/events.parquet'\"";

#[derive(Debug, Args)]
pub struct RawExport {
    #[command(flatten)]
    subject: RawSubject,
    /// What to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Format,
    /// The measure: of collapsed the one that is written [default: calls], of pprof and speedscope
    /// the one that is shown first
    #[arg(long, value_enum, value_name = "MEASURE")]
    value: Option<Measure>,
    /// Begin each stack at its site, without the plumbing between it and the allocator
    #[arg(long)]
    from_site: bool,
    /// The file to write, or for Parquet the directory; what is there is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line a stack, outermost function first, with one measure
    Collapsed,
    /// pprof's gzipped protocol buffer
    Pprof,
    /// speedscope's JSON
    Speedscope,
    /// The JSON of valgrind's DHAT
    Dhat,
    /// All that is known of each stack, as JSON
    Json,
    /// A directory of two tables: events.parquet and stacks.parquet
    Parquet,
    /// The memory log of a debug curl, of one process
    Memdebug,
}

impl RawExport {
    pub fn check(self) -> Result<ExportPlan> {
        let one_of_many = matches!(
            self.format,
            Format::Dhat | Format::Json | Format::Parquet | Format::Memdebug
        );
        if one_of_many && self.value.is_some() {
            return Err(Failure::failed(
                "--value: this format holds every measure: leave it out",
            ));
        }
        if self.format == Format::Parquet && self.output.is_none() {
            return Err(Failure::failed(
                "--format parquet: writes two files: name a directory for them with -o",
            ));
        }
        let subject = self.subject.check()?;
        if self.format == Format::Memdebug && !subject.wrappers.is_empty() {
            return Err(Failure::failed(
                "--wrapper: a log has every call: leave it out, or name the functions with --skip",
            ));
        }
        Ok(ExportPlan {
            subject,
            format: self.format,
            measure: self.value.unwrap_or(Measure::Calls),
            from_site: self.from_site,
            output: self.output,
        })
    }
}
