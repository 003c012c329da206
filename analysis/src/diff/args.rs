//! The command line of `larder diff`, and the checked plan made of it.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::Format;

use super::work::{self, WorkRequest};
use crate::error::AnalysisError;
use crate::flamegraph::FlamegraphPlan;
use crate::of::{Of, RawOf};
use crate::reading::sites::SortKey;
use crate::reading::subject::{RawReading, Subject};
use crate::view::{self, RawOutput, View};

pub const EXAMPLES: &str = "\
Examples:
  larder diff old.trace new.trace
      The counters of two builds side by side, and the sites that changed.
  larder diff old.trace new.trace --sort bytes --top 30
  larder diff old.trace new.trace --json | jq '.sites[] | select(.status == \"new\")'
  larder diff old.trace new.trace --sort bytes -o change.svg
      A flame graph of the new one: red is more than in the old one, blue is less.
  larder diff --syscalls old.trace new.trace
      The system calls by line and function; so --copies, and --cpu by function.
  larder diff --growth small.trace large.trace --work 1000:10000
      One program on two input sizes: which sites grow faster than the input.
  larder diff --growth small.trace large.trace --work mark:request
      The same by the marks that the program passed (larder_mark).
  larder diff --growth s.trace m.trace l.trace --work 1:2:4 --sort live";

/// Sites shown by default.
const DEFAULT_TOP: usize = 10;

#[derive(Debug, Args)]
pub struct RawDiff {
    /// The trace before and the one after; with --growth two or more, the smallest input first
    #[arg(required = true, num_args = 2.., value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    reading: RawReading,
    #[command(flatten)]
    of: RawOf,
    /// Rank sites by the change of this figure [default: calls; bytes with --copies, time with --cpu]
    #[arg(long, value_enum, value_name = "KEY")]
    sort: Option<SortKey>,
    /// Sites shown, 0 for all [default: 10; in JSON all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Also show sites that did not change
    #[arg(long)]
    all: bool,
    /// Show the sites that grow faster than the work, from traces of one program on inputs of growing
    /// size
    #[arg(long)]
    growth: bool,
    /// The work of each trace: numbers, as in 1000:10000; mark:NAME (passes of that mark); read or
    /// write (bytes) or calls (system calls), with record --syscalls; estimate (the sites' median
    /// growth) [default: the first of marks, read and estimate that grows]
    #[arg(long, value_name = "WORK", requires = "growth")]
    work: Option<String>,
    #[command(flatten)]
    output: RawOutput,
}

/// What to compare and to show.
#[derive(Debug)]
pub struct DiffPlan {
    /// Two or more.
    pub subjects: Vec<Subject>,
    pub of: Of,
    pub sort: SortKey,
    /// The number of sites to show.
    pub top: usize,
    pub all: bool,
    pub growth: bool,
    /// `None`: the best quantity that the traces have.
    pub work: Option<WorkRequest>,
    /// Text or JSON.
    pub format: Format,
    pub output: Option<PathBuf>,
}

impl RawDiff {
    pub fn check(self) -> Result<View> {
        if self.traces.len() > 2 && !self.growth {
            return Err(AnalysisError::usage(
                "diff compares two traces: name two, or add --growth for one program on inputs of \
                 growing size",
            )
            .into());
        }
        let of = self.of.check();
        let sort = of.key(self.sort)?;
        if self.growth && (of, sort) == (Of::SystemCalls, SortKey::Time) {
            return Err(AnalysisError::usage(
                "--sort time: the time within system calls grows by chance, too: choose calls, errors or \
                 bytes",
            )
            .into());
        }
        let work = self.work.as_deref().map(work::parse).transpose()?;
        if let Some(WorkRequest::Given(work)) = &work
            && work.len() != self.traces.len()
        {
            let fault = format!(
                "--work has {} numbers for {} traces: give one for each, as in 1000:10000",
                work.len(),
                self.traces.len()
            );
            return Err(AnalysisError::usage(fault).into());
        }
        let format = self
            .output
            .format(&[Format::Text, Format::Json, Format::Svg])?;
        let subjects = self.traces.into_iter();
        let subjects = subjects.map(|trace| self.reading.check(trace));
        let mut subjects: Vec<Subject> = subjects.collect::<Result<_>>()?;
        if let Some((first, others)) = subjects.split_first_mut() {
            // So that a server that cannot be reached is found once.
            let asked = &first.charging.lookup.debuginfod;
            for subject in others {
                subject.charging.lookup.debuginfod.clone_from(asked);
            }
        }
        let output = self.output.output;
        if let (Format::Svg, [before, after, ..]) = (format, &subjects[..]) {
            view::refuse(&[
                ("--top", self.top.is_some()),
                ("--all", self.all),
                ("--growth", self.growth),
            ])?;
            return Ok(View::Flamegraph(FlamegraphPlan {
                subject: after.clone(),
                base: Some(before.clone()),
                measure: of.measure(sort)?,
                output,
            }));
        }
        Ok(View::Diff(DiffPlan {
            subjects,
            of,
            sort,
            top: match self.top {
                Some(0) => usize::MAX,
                Some(top) => top,
                None if format == Format::Json => usize::MAX,
                None => DEFAULT_TOP,
            },
            all: self.all,
            growth: self.growth,
            work,
            format,
            output,
        }))
    }
}
