//! The subject of an analysis: a trace or a part of it, and how its stacks are read. One set of options
//! for all commands that read traces.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::order;
use larder_base::printable;
use larder_trace::{Trace, TraceError, trace_files};

use super::lookup::{RawDebuginfod, RawNames};
use super::resolve::{Charging, Wrappers};
use super::wrapper::WrapperRule;
use crate::error::AnalysisError;

#[derive(Debug, Args)]
pub struct RawSubject {
    /// The trace: the directory that `record` made, or one .ltrace file
    trace: PathBuf,
    #[command(flatten)]
    reading: RawReading,
}

/// The options without the trace, for commands that take more than one.
#[derive(Debug, Args)]
pub struct RawReading {
    /// Read only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Count only calls that pass through this function, as KIND (malloc, calloc, realloc, strdup,
    /// wcsdup, free), and subtract HEADER bytes from each; `*` and `?` match; may be repeated
    #[arg(long, value_name = "FUNCTION=KIND[-HEADER]")]
    wrapper: Vec<String>,
    #[command(flatten)]
    charging: RawCharging,
    #[command(flatten)]
    debuginfod: RawDebuginfod,
}

/// Options about charging, for every command that names sites.
#[derive(Debug, Args)]
pub struct RawCharging {
    /// Charge this function's allocations to its caller; `*` and `?` match; a function without a name
    /// is MODULE+OFFSET; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    skip: Vec<String>,
    /// Charge the program's own allocation functions, not their callers
    #[arg(long)]
    no_wrappers: bool,
    #[command(flatten)]
    names: RawNames,
}

impl RawCharging {
    pub fn check(&self) -> Result<Charging> {
        if self.skip.iter().any(String::is_empty) {
            return Err(AnalysisError::usage("--skip '': name a function").into());
        }
        Ok(Charging {
            skips: self.skip.clone(),
            wrappers: match self.no_wrappers {
                true => Wrappers::Charged,
                false => Wrappers::PassedOver,
            },
            lookup: self.names.check(),
        })
    }
}

impl RawSubject {
    pub fn check(self) -> Result<Subject> {
        self.reading.check(self.trace)
    }
}

impl RawReading {
    pub fn check(&self, trace: PathBuf) -> Result<Subject> {
        let wrappers = self
            .wrapper
            .iter()
            .map(|rule| WrapperRule::parse(rule))
            .collect::<std::result::Result<_, _>>()?;
        let mut charging = self.charging.check()?;
        self.debuginfod.check(&mut charging.lookup)?;
        Ok(Subject {
            trace,
            pid: self.pid,
            wrappers,
            charging,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Subject {
    pub trace: PathBuf,
    /// `None`: all processes.
    pub pid: Option<u32>,
    pub wrappers: Vec<WrapperRule>,
    pub charging: Charging,
}

impl Subject {
    /// Opens the trace's files, ordered by the start of their process images, because process ids wrap
    /// around. Unreadable files are reported, unless all are.
    pub fn open(&self) -> Result<(Vec<Trace>, Vec<String>)> {
        let files = trace_files(&self.trace).map_err(AnalysisError::Unreadable)?;
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
        if let (true, Some(error)) = (traces.is_empty(), first_error) {
            return Err(AnalysisError::Unreadable(error).into());
        }
        if let Some(pid) = self.pid {
            let pids: Vec<u32> = traces.iter().map(|trace| trace.process().pid).collect();
            traces.retain(|trace| trace.process().pid == pid);
            if traces.is_empty() {
                return Err(self.no_such_process(pid, pids).into());
            }
        }
        order::sort_by_key(&mut traces, |trace| {
            let process = trace.process();
            // The wall clock can be set back; an imported trace has no other.
            (trace.clock().start_monotonic_ns, process.start_wall_ns)
        });
        Ok((traces, unreadable))
    }

    fn no_such_process(&self, pid: u32, mut pids: Vec<u32>) -> AnalysisError {
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
        AnalysisError::unfit(&self.trace, format!("has no process {pid}: it has {list}"))
    }
}

/// An error of the trace reader, in one printable line.
pub fn describe(error: &TraceError) -> String {
    match error {
        TraceError::Open { path, source } => format!(
            "{}: {}: check the path and its permissions",
            printable::name(path),
            larder_base::target::reason(source)
        ),
        other => printable::escape(&other.to_string()).into_owned(),
    }
}
