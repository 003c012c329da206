//! The command line of `larder flamegraph`, and its check.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::{self, Format};

use super::FlamegraphPlan;
use crate::reading::measure::Measure;
use crate::reading::subject::{RawReading, Subject};
use crate::view::View;

pub const EXAMPLES: &str = "\
Examples:
  larder flamegraph -o app.svg app.trace
  larder flamegraph --value peak -o peak.svg app.trace
  larder flamegraph --value bytes --diff old.trace -o change.svg new.trace
      Red is more than in old.trace, blue is less.";

#[derive(Debug, Args)]
pub struct RawFlamegraph {
    /// The trace: the directory that `record` made, or one .ltrace file
    trace: PathBuf,
    #[command(flatten)]
    reading: RawReading,
    /// The measure of the widths
    #[arg(long, value_enum, value_name = "MEASURE", default_value = "calls")]
    value: Measure,
    /// Colour by the difference from this trace, stacks matched by their functions' names
    #[arg(long, value_name = "TRACE")]
    diff: Option<PathBuf>,
    /// Read only this process of the other trace; --pid selects one of the first
    #[arg(long, value_name = "PID", requires = "diff")]
    diff_pid: Option<u32>,
    /// The SVG file to write; an existing one is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl RawFlamegraph {
    pub fn check(self) -> Result<View> {
        format::expect(Format::Svg, self.output.as_deref())?;
        let base = self.diff.map(|base| self.reading.check(base));
        let mut base: Option<Subject> = base.transpose()?;
        if let Some(base) = &mut base {
            base.pid = self.diff_pid;
        }
        Ok(View::Flamegraph(FlamegraphPlan {
            subject: self.reading.check(self.trace)?,
            base,
            measure: self.value,
            output: self.output,
        }))
    }
}
