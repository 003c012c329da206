//! What a view of a trace is of: its allocations, or what options of `record` add.

use clap::Args;
use larder_base::failure::Result;

use crate::error::AnalysisError;
use crate::reading::measure::Measure;
use crate::reading::sites::SortKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Allocations,
    SystemCalls,
    Copies,
    ProcessorTime,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct RawOf {
    /// Show the system calls that record --syscalls recorded, not the allocations
    #[arg(long)]
    syscalls: bool,
    /// Show the calls that record --copies recorded: those that copy (memcpy and its like) or format
    #[arg(long)]
    copies: bool,
    /// Show the processor time that record --cpu sampled
    #[arg(long)]
    cpu: bool,
}

impl RawOf {
    pub fn check(&self) -> Of {
        match self {
            RawOf { syscalls: true, .. } => Of::SystemCalls,
            RawOf { copies: true, .. } => Of::Copies,
            RawOf { cpu: true, .. } => Of::ProcessorTime,
            _ => Of::Allocations,
        }
    }
}

impl Of {
    /// The figures of a site, the one to rank by first.
    pub fn keys(self) -> &'static [SortKey] {
        match self {
            Of::Allocations => &SortKey::OF_ALLOCATIONS,
            Of::SystemCalls => &[
                SortKey::Calls,
                SortKey::Errors,
                SortKey::Bytes,
                SortKey::Time,
            ],
            Of::Copies => &[SortKey::Bytes, SortKey::Calls],
            Of::ProcessorTime => &[SortKey::Time, SortKey::Calls],
        }
    }

    /// The requested figure, or the first.
    pub fn key(self, asked: Option<SortKey>) -> Result<SortKey> {
        let key = asked.unwrap_or(self.keys()[0]);
        if self.keys().contains(&key) {
            return Ok(key);
        }
        let known: Vec<String> = self.keys().iter().map(|key| key.value()).collect();
        Err(AnalysisError::usage(format!(
            "--sort {}: {} have no such figure: choose {}",
            key.value(),
            self.noun(),
            known.join(", "),
        ))
        .into())
    }

    pub fn noun(self) -> &'static str {
        match self {
            Of::Allocations => "allocations",
            Of::SystemCalls => "system calls",
            Of::Copies => "copies",
            Of::ProcessorTime => "samples of processor time",
        }
    }

    /// The option of `record` that adds it.
    pub fn option(self) -> &'static str {
        match self {
            Of::Allocations => "",
            Of::SystemCalls => "--syscalls",
            Of::Copies => "--copies",
            Of::ProcessorTime => "--cpu",
        }
    }

    /// The measure of an export or a picture, for a ranking of sites.
    pub fn measure(self, key: SortKey) -> Result<Measure> {
        Ok(match (self, key) {
            (Of::Allocations, SortKey::Calls) => Measure::Calls,
            (Of::Allocations, SortKey::Bytes) => Measure::Bytes,
            (Of::Allocations, SortKey::Peak) => Measure::Peak,
            (Of::Allocations, SortKey::Live) => Measure::LiveBytes,
            (Of::Copies, SortKey::Calls) => Measure::Copies,
            (Of::Copies, _) => Measure::CopiedBytes,
            (Of::SystemCalls, SortKey::Calls) => Measure::SystemCalls,
            (Of::SystemCalls, SortKey::Time) => Measure::SystemTime,
            (Of::ProcessorTime, _) => Measure::ProcessorTime,
            _ => {
                let known = match self {
                    Of::SystemCalls => "calls or time",
                    _ => "calls, bytes, peak or live",
                };
                let fault = format!("--sort: stacks have no such measure: choose {known}");
                return Err(AnalysisError::usage(fault).into());
            }
        })
    }
}
