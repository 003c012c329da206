//! `larder stats`: what the heaps of running processes hold, read from outside (`process`).
//!
//! `look` gathers, `text`, `json` and `prometheus` only print.

mod args;
mod command;
mod json;
mod look;
mod prometheus;
mod text;

pub use args::{EXAMPLES, RawStats, StatsPlan};
use args::{Format, Subject};
use larder_base::failure::Result;
use larder_base::output::{self, Content};
pub use look::{Look, mib};
#[cfg(test)]
pub use look::{Memory, Sampled};
pub use prometheus::{Labels, print as print_metrics};
pub use text::{KIND_LABELS, holder};

/// The exit code: 0, or the command's own.
pub fn stats(plan: &StatsPlan) -> Result<u8> {
    let (looks, code) = match &plan.subject {
        Subject::Processes(ids) => {
            let looks = ids.iter().map(|process| look::look(*process));
            (looks.collect::<Result<Vec<_>>>()?, 0)
        }
        Subject::Command(words) => command::run(words)?,
    };
    output::write(plan.output.as_deref(), Content::Text, |out| {
        match plan.format {
            Format::Text => text::print(&looks, out),
            Format::Json => json::print(&looks, out),
            Format::Prometheus => prometheus::print(&looks, Labels::Process, out),
        }
    })?;
    Ok(code)
}
