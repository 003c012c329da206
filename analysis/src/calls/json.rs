//! Callers and callees as one JSON object, described in `docs/reference/report.md`.

use std::io::{self, Write};

use larder_base::output;
use larder_base::printable;
use serde_json::{Value, json};

use super::graph::Graph;
use super::tree::{Step, Sums};
use super::{CallsPlan, Direction};

pub fn print(plan: &CallsPlan, graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
    let key = match plan.direction {
        Direction::Callers => "callers",
        Direction::Callees => "callees",
    };
    let named = graph.named().map(|id| described(graph, Step::Function(id)));
    let mut document = json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "trace": printable::name(&plan.subject.trace),
        "pattern": plan.function,
        "functions": named.collect::<Vec<_>>(),
        "depth": plan.depth,
    });
    add_sums(&mut document, graph.tree.root(), graph.tree.root());
    document[key] = below(plan, graph, key, 0);
    output::write_json(&document, out)
}

/// Recursion is bounded by the requested depth.
fn below(plan: &CallsPlan, graph: &Graph, key: &str, node: usize) -> Value {
    let steps = graph.tree.below(node).into_iter().take(plan.top);
    let list = steps.map(|(at, step, sums)| {
        let mut found = described(graph, step);
        add_sums(&mut found, sums, graph.tree.root());
        found[key] = below(plan, graph, key, at);
        found
    });
    json!(list.collect::<Vec<_>>())
}

/// The end of a stack has no function.
fn described(graph: &Graph, step: Step) -> Value {
    let function = match step {
        Step::Function(id) => Some(graph.functions.get(id)),
        Step::End => None,
    };
    let module = function.and_then(|function| function.module.as_ref());
    json!({
        "function": function.map(|function| &function.name),
        "file": function.and_then(|function| function.file.as_deref()),
        "module": module.map(|module| &module.path),
    })
}

fn add_sums(value: &mut Value, sums: &Sums, root: &Sums) {
    let share = |part: f64, whole: f64| match whole > 0.0 {
        true => json!(100.0 * part / whole),
        false => Value::Null,
    };
    value["samples"] = json!(sums.samples);
    value["cpu_ns"] = json!(sums.cpu_ns);
    value["calls"] = json!(sums.calls);
    value["bytes"] = json!(sums.bytes);
    value["share"] = json!({
        "cpu": share(sums.cpu_ns as f64, root.cpu_ns as f64),
        "calls": share(sums.calls, root.calls),
        "bytes": share(sums.bytes, root.bytes),
    });
}
