//! The report as one JSON object, described in `docs/reference/tool.md`.

use std::io::{self, Write};

use larder_base::output;
use serde_json::{Value, json};

use super::Report;
use crate::process::Sum;
use crate::profile::heap::{Figures, HeapProfile};
use crate::profile::program;
use crate::profile::site_json::place;
use crate::profile::sites::ProfiledSite;

pub fn print(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    output::write_json(&document(report), out)
}

fn document(report: &Report<'_>) -> Value {
    let sites = report.ranked();
    let shown = sites.iter().take(report.plan.top);
    let (objects, bytes) = report.reachable();
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "processes": report.profiles.iter().map(process).collect::<Vec<_>>(),
        "lost": lost(&report.total()),
        "reachable": { "objects": objects as u64, "bytes": bytes as u64 },
        "sites": shown.map(|of| site(report, of)).collect::<Vec<_>>(),
        "wrappers": report.profiled.wrappers.names(),
        "site_count": sites.len(),
        "look": report.running.as_ref().map(|running| json!({
            "threads": running.threads,
            "stopped_ms": (running.stopped_ms * 10.0).round() / 10.0,
            "all_have_stacks": running.everything,
            "threads_left_by_fork": running.orphaned_heaps,
            "reachable_by_globals_alone": reached(running.reached.by_globals_alone),
            "reachable_by_cxx_library_alone": reached(running.reached.by_cxx_library_alone),
            "without_stack": running.sizes.iter().map(|(size, figures)| json!({
                "up_to_bytes": size,
                "lost": lost(figures),
            })).collect::<Vec<_>>(),
        })),
    })
}

fn reached(sum: Sum) -> Value {
    json!({ "objects": sum.objects, "bytes": sum.bytes })
}

fn process(profile: &HeapProfile) -> Value {
    json!({
        "process": profile.process,
        "program": program(profile),
        "with_stack": lost(&profile.total()),
        "threads_ran": profile.leaks.is_some_and(|check| check.threads_ran),
    })
}

fn lost(figures: &Figures) -> Value {
    json!({
        "objects": figures.in_use.objects as u64,
        "bytes": figures.in_use.bytes as u64,
        "with_others": {
            "objects": figures.indirect.objects as u64,
            "bytes": figures.indirect.bytes as u64,
        },
    })
}

fn site(report: &Report<'_>, site: &ProfiledSite) -> Value {
    let mut value = place(&report.profiled, site, |figures| figures.in_use.bytes);
    value["lost"] = lost(&site.figures);
    value
}
