//! `larder import`: what other tools have recorded becomes a trace, which every command reads.
//!
//! Each file reads one format and hands on stacks and calls; `target` is the trace that is made of
//! them. The input is hostile; memory grows with what is distinct in it.

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

use args::ImportFormat;
pub use args::{EXAMPLES, ImportPlan, RawImport};
use target::Target;

/// What became of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    calls: u64,
    /// Lines that mean nothing in the format; left out.
    not_understood: u64,
    warning: Option<String>,
}

/// Writes the trace directory, and a line on stderr that says what is in it.
pub fn import(plan: &ImportPlan) -> Result<()> {
    let mut target = Target::create(plan)?;
    let outcome = match plan.format {
        ImportFormat::Memdebug => memdebug::import(plan, &mut target)?,
        ImportFormat::Heaptrack => heaptrack::import(plan, &mut target)?,
        ImportFormat::Collapsed => collapsed::import(plan, &mut target)?,
    };
    target.finish()?;
    let mut out = io::stderr();
    // A closed stderr leaves nobody to tell.
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
