//! `larder import`: makes a trace of another tool's recording, which every command reads.
//!
//! Each file reads one format and passes stacks and calls to `target`, the trace that is made. The
//! input is hostile; memory grows with its distinct entries.

mod args;
mod collapsed;
mod heaptrack;
mod memdebug;
mod source;
mod target;

use std::io::{self, Write};

use larder_base::failure::Result;
use larder_base::number::counted;
use larder_base::printable;

pub use args::{EXAMPLES, ImportFormat, ImportPlan, RawImport};
use target::Target;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub calls: u64,
    /// Lines that are malformed in the format; left out.
    pub not_understood: u64,
    warning: Option<String>,
}

/// Writes the trace directory.
pub fn convert(plan: &ImportPlan) -> Result<Outcome> {
    let mut target = Target::create(plan)?;
    let outcome = match plan.format {
        ImportFormat::Memdebug => memdebug::import(plan, &mut target)?,
        ImportFormat::Heaptrack => heaptrack::import(plan, &mut target)?,
        ImportFormat::Collapsed => collapsed::import(plan, &mut target)?,
    };
    target.finish()?;
    Ok(outcome)
}

/// Writes the trace directory, and prints a line on stderr with its contents.
pub fn import(plan: &ImportPlan) -> Result<()> {
    let outcome = convert(plan)?;
    let mut out = io::stderr();
    // A closed stderr is no error.
    if let Some(warning) = &outcome.warning {
        let _ = writeln!(out, "larder: warning: {warning}");
    }
    if outcome.not_understood > 0 {
        let _ = writeln!(
            out,
            "larder: warning: {}: {} not understood and left out",
            printable::name(&plan.input),
            counted(outcome.not_understood, "line"),
        );
    }
    let _ = writeln!(
        out,
        "larder: {}: {}; see it with: larder report {}",
        printable::name(&plan.output),
        counted(outcome.calls, "call"),
        larder_base::path::quoted(&plan.output)
    );
    Ok(())
}
