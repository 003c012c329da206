//! `larder stats`: what the heaps of running processes hold, read from outside (`live`).
//!
//! `look` gathers, `text`, `json` and `prometheus` only print.

mod args;
mod json;
mod look;
mod prometheus;
mod text;

use crate::failure::Result;
use crate::output::{self, Content};
use args::Format;
pub use args::{EXAMPLES, RawStats, StatsPlan};
pub use look::{Look, mib};
#[cfg(test)]
pub use look::{Memory, Sampled};
pub use prometheus::print as print_metrics;
pub use text::{KIND_LABELS, holder};

pub fn stats(plan: &StatsPlan) -> Result<()> {
    let looks = plan.processes.iter().map(|process| look::look(*process));
    let looks = looks.collect::<Result<Vec<_>>>()?;
    output::write(None, Content::Text, |out| match plan.format {
        Format::Text => text::print(&looks, out),
        Format::Json => json::print(&looks, out),
        Format::Prometheus => prometheus::print(&looks, out),
    })
}
