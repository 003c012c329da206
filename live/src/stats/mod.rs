//! `larder stats`: what the heaps of running processes hold, read from outside (`process`).
//!
//! `snapshot` gathers; `text`, `json` and `prometheus` only print.

mod args;
mod command;
mod json;
mod prometheus;
mod snapshot;
mod text;

use args::Subject;
pub use args::{EXAMPLES, RawStats, StatsPlan};
use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output::{self, Content};
pub use prometheus::{Labels, print as print_metrics};
#[cfg(test)]
pub use snapshot::{Memory, Sampled};
pub use snapshot::{Snapshot, mib};
pub use text::{KIND_LABELS, holder};

/// Returns the exit code: 0, or the command's own.
pub fn stats(plan: &StatsPlan) -> Result<u8> {
    let (snapshots, code) = match &plan.subject {
        Subject::Processes(ids) => {
            let snapshots = ids.iter().map(|process| snapshot::take(*process));
            (snapshots.collect::<Result<Vec<_>>>()?, 0)
        }
        Subject::Command(words) => {
            let stdout = plan.format.stdout_of_command(plan.output.as_deref());
            command::run(words, stdout)?
        }
    };
    output::write(plan.output.as_deref(), Content::Text, |out| {
        match plan.format {
            Format::Json => json::print(&snapshots, out),
            Format::Prometheus => prometheus::print(&snapshots, Labels::Process, out),
            _ => text::print(&snapshots, out),
        }
    })?;
    Ok(code)
}
