//! `larder report`: reads a trace, counts its calls and ranks the sites that made them.
//!
//! `analysis` measures, `sites` keeps, `text` and `json` print; the rules of attribution are in
//! `plumbing` and `attribute`. The trace is hostile input: what cannot be read is told and left
//! out, and every name from it is escaped before it is printed.

mod analysis;
mod attribute;
mod family;
mod heap;
mod json;
mod losses;
mod number;
mod pattern;
mod plumbing;
mod resolve;
mod sites;
mod text;
mod wrapper;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use larder_trace::{Trace, TraceError, trace_files};

use crate::failure::{Failure, Result};
use crate::printable;
use analysis::Analysis;

pub use number::counted;
pub use wrapper::WrapperRule;

/// What sites are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    Calls,
    Bytes,
    Peak,
    Tiny,
    Live,
}

impl SortKey {
    pub const ALL: [SortKey; 5] = [
        SortKey::Calls,
        SortKey::Bytes,
        SortKey::Peak,
        SortKey::Tiny,
        SortKey::Live,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

#[derive(Debug)]
pub struct ReportPlan {
    pub trace: PathBuf,
    /// `None`: all rankings.
    pub sort: Option<SortKey>,
    /// `None`: the default of the format; `Some(0)`: all.
    pub top: Option<usize>,
    pub format: Format,
    pub pid: Option<u32>,
    pub wrappers: Vec<WrapperRule>,
    pub skips: Vec<String>,
}

/// Sites in a ranking of the text form, unless said otherwise.
const DEFAULT_TOP: usize = 10;
/// Traces with fewer events are read before a bar would be seen.
const PROGRESS_FROM_EVENTS: u64 = 500_000;
/// A bar redrawn at every event would cost more than the event.
const PROGRESS_STEP: u64 = 1 << 16;

/// The whole of what is printed.
pub struct Report {
    pub analysis: Analysis,
    /// Files of the trace that could not be read at all, and why.
    pub unreadable: Vec<String>,
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
    let (traces, unreadable) = open(&plan)?;
    let mut analysis = Analysis::new(plan.wrappers.clone(), plan.skips.clone());
    let events: u64 = traces.iter().map(Trace::event_count).sum();
    let bar = progress_bar(events);
    for trace in &traces {
        let mut done = 0u64;
        analysis.add(trace, || {
            done += 1;
            if done.is_multiple_of(PROGRESS_STEP) {
                bar.inc(PROGRESS_STEP);
            }
        });
    }
    bar.finish_and_clear();
    let report = Report {
        analysis,
        unreadable,
        plan,
    };
    if let Some(warning) = losses::summary(&report) {
        warn(&warning);
    }
    let unmatched = report.analysis.warnings();
    if !unmatched.is_empty() {
        warn(&unmatched.join("; "));
    }
    match print(&report) {
        // Whoever reads us has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "the report cannot be written: {}",
            crate::target::reason(&error)
        ))),
        Ok(()) => Ok(()),
    }
}

fn warn(warning: &str) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(io::stderr(), "larder: warning: {warning}");
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

/// Opens the files of the trace. Those that cannot be read are told, unless none can.
fn open(plan: &ReportPlan) -> Result<(Vec<Trace>, Vec<String>)> {
    let failed = |error: &TraceError| Failure::failed(describe(error));
    let files = trace_files(&plan.trace).map_err(|error| failed(&error))?;
    let (mut traces, mut unreadable, mut first_error) = (Vec::new(), Vec::new(), None);
    for file in files {
        match Trace::open(&file) {
            Ok(trace) => traces.push(trace),
            Err(error) => {
                unreadable.push(describe(&error));
                first_error.get_or_insert(error);
            }
        }
    }
    if let (true, Some(error)) = (traces.is_empty(), &first_error) {
        return Err(failed(error));
    }
    if let Some(pid) = plan.pid {
        let pids: Vec<u32> = traces.iter().map(|trace| trace.process().pid).collect();
        traces.retain(|trace| trace.process().pid == pid);
        if traces.is_empty() {
            return Err(Failure::failed(no_such_process(plan, pid, pids)));
        }
    }
    Ok((traces, unreadable))
}

fn describe(error: &TraceError) -> String {
    match error {
        TraceError::Open { path, source } => format!(
            "{}: {}: check the path and its permissions",
            printable::name(path),
            crate::target::reason(source)
        ),
        other => printable::escape(&other.to_string()).into_owned(),
    }
}

fn no_such_process(plan: &ReportPlan, pid: u32, mut pids: Vec<u32>) -> String {
    const SHOWN: usize = 10;
    pids.sort_unstable();
    pids.dedup();
    let mut list = pids
        .iter()
        .take(SHOWN)
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if pids.len() > SHOWN {
        list.push_str(", …");
    }
    format!(
        "{}: has no process {pid}: it has {list}",
        printable::name(&plan.trace)
    )
}

/// A bar on stderr for a long trace, if someone is there to see it.
fn progress_bar(events: u64) -> ProgressBar {
    if events < PROGRESS_FROM_EVENTS || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("reading {wide_bar} {percent:>3} %  {eta} left");
    let bar = ProgressBar::new(events);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
