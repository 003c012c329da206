//! A snapshot as an object in one line.

use std::io::{self, Write};

use larder_base::printable;
use serde_json::{Map, Value, json};

use super::args::TopPlan;
use super::model::{Model, SiteRow};
use super::view::View;
use crate::process::KINDS;

pub fn print(model: &Model, plan: &TopPlan, view: &View, out: &mut dyn Write) -> io::Result<()> {
    let snapshot = &model.snapshot;
    let sites = view.rows(model);
    let kinds = KINDS.iter().zip(&snapshot.heap.kinds);
    let kinds: Map<String, Value> = kinds
        .map(|(name, size)| {
            let size = json!({"bytes": size.bytes, "resident": size.resident});
            ((*name).to_owned(), size)
        })
        .collect();
    let threads = model.threads.iter().map(|thread| {
        json!({
            "name": thread.name,
            "in_use": thread.in_use,
            "free": thread.free,
            "kept_runs": thread.cached_spans,
            "slabs": thread.slabs,
            "refills_per_second": thread.refills,
            "remote_frees": thread.remote_frees,
        })
    });
    let value = json!({
        "process": snapshot.process,
        "name": snapshot.name,
        "library": snapshot.library,
        "seconds": model.watched.as_secs_f64(),
        "seconds_since_mark": model.since_mark.as_secs_f64(),
        "rss": snapshot.memory.rss,
        "swapped": snapshot.memory.swapped,
        "mapped": snapshot.heap.mapped,
        "resident": snapshot.heap.resident(),
        "in_use": snapshot.heap.in_use(),
        "kinds": kinds,
        "sample_mean": snapshot.sampled.mean,
        "total": of(&model.total),
        "sites": sites.into_iter().take(plan.most_sites).map(of).collect::<Value>(),
        "threads": threads.collect::<Value>(),
    });
    writeln!(out, "{}", printable::escape_json(&value.to_string()))
}

fn of(site: &SiteRow) -> Value {
    let growth = &site.growth;
    json!({
        "name": site.name,
        "place": site.place,
        "in_use": site.in_use,
        "in_use_95": [site.interval.low, site.interval.high],
        "growth": growth.bytes,
        "growth_95": [growth.interval.low, growth.interval.high],
        "allocated_per_second": site.rate,
        "objects": site.objects,
        "samples": site.samples,
    })
}
