//! `larder callers` and `larder callees`: the callers and callees of a function, by samples of processor
//! time and by the calls that the trace records.
//!
//! `graph` gathers a `tree`, `text` and `json` print.

mod args;
mod graph;
mod json;
mod near;
mod text;
mod tree;

pub use args::{CALLEES_EXAMPLES, CALLERS_EXAMPLES, RawCalls};
pub use tree::{Step, Sums, Tree};

use std::path::PathBuf;

use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output;

use crate::error::AnalysisError;
use crate::reading::Analysis;
use crate::reading::subject::Subject;
use graph::Graph;

/// Which way from the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Callers,
    Callees,
}

#[derive(Debug)]
pub struct CallsPlan {
    pub direction: Direction,
    /// With `*` and `?`.
    pub function: String,
    pub subject: Subject,
    pub depth: usize,
    /// Functions under each.
    pub top: usize,
    /// Text or JSON.
    pub format: Format,
    pub output: Option<PathBuf>,
}

/// Prints the callers or the callees.
pub fn calls(plan: &CallsPlan) -> Result<()> {
    let mut graph = Graph::new(plan.direction, &plan.function, plan.depth);
    let analysis = Analysis::read(&plan.subject, &mut graph)?;
    if graph.tree.root().is_empty() {
        return Err(not_found(plan, &graph).into());
    }
    output::write(
        plan.output.as_deref(),
        plan.format.content(),
        |out| match plan.format {
            Format::Json => json::print(plan, &graph, out),
            _ => text::print(plan, &graph, &analysis, out),
        },
    )
}

fn not_found(plan: &CallsPlan, graph: &Graph) -> AnalysisError {
    let trace = &plan.subject.trace;
    if graph.functions.is_empty() {
        let lack = "has no samples and no calls: record with --cpu, --copies or --syscalls";
        return AnalysisError::unfit(trace, lack);
    }
    let near = near::names(&plan.function, &graph.functions);
    let remedy = match near.is_empty() {
        true => "put * for what varies, as in '*name*'".to_owned(),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    AnalysisError::NoFunction {
        function: plan.function.clone(),
        trace: trace.clone(),
        remedy,
    }
}
