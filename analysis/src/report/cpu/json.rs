//! The processor time as one JSON object, described in `docs/reference/report.md`.

use larder_base::number::percent;
use serde_json::{Value, json};

use super::{Cpu, Row, Sampled};

pub fn document(found: &Cpu, top: usize) -> Value {
    let rows = found.rows();
    let functions = rows.iter().take(top).map(|row| described(found, row));
    json!({
        "rate_hz": found.sampling.rate_hz,
        "cpu_ns": found.sampling.cpu_ns,
        "samples": found.all.samples,
        "sampled_ns": found.all.ns,
        "missing_ns": found.missing_ns(),
        "lost_ns": found.sampling.lost_ns,
        "recorder": {
            "samples": found.recorder.samples,
            "ns": found.recorder.ns,
        },
        "incomplete": {
            "samples": found.incomplete.samples,
            "ns": found.incomplete.ns,
        },
        "function_count": rows.len(),
        "functions": functions.collect::<Vec<_>>(),
    })
}

fn described(found: &Cpu, row: &Row<'_>) -> Value {
    let sums = |sampled: Sampled| {
        json!({
            "samples": sampled.samples,
            "ns": sampled.ns,
            "share": percent(sampled.ns, found.all.ns),
        })
    };
    json!({
        "function": row.function.name,
        "file": row.function.file.as_deref(),
        "module": row.function.module.as_ref().map(|module| &module.path),
        "self": sums(row.own),
        "total": sums(row.total),
    })
}
