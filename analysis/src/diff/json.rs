//! The comparison as one JSON object, described in `docs/reference/tool.md`.

use std::io::{self, Write};

use larder_base::output;
use serde_json::{Map, Value, json};

use super::DiffPlan;
use super::compare::{self, Change, Comparison, Status};
use super::growth::{Growth, SiteGrowth, WorkSource};
use super::obstacles::obstacles;
use super::side::{KnownSite, Side};
use super::stacks::StackChange;
use crate::reading::attribute::functions;
use crate::reading::losses;
use crate::reading::sites::SortKey;
use crate::report::frame_json;

pub fn print(document: &Value, out: &mut dyn Write) -> io::Result<()> {
    output::write_json(document, out)
}

pub fn comparison(comparison: &Comparison<'_>, plan: &DiffPlan) -> Value {
    let sides = [comparison.before, comparison.after];
    let [before, after] = sides.map(|side| compare::counters(&side.analysis.counters));
    let rows = before
        .0
        .iter()
        .zip(&after.0)
        .chain(before.1.iter().zip(&after.1));
    let counters: Vec<Value> = rows
        .map(|((name, before), (_, after))| {
            json!({
                "name": name,
                "before": before,
                "after": after,
                "difference": i128::from(*after) - i128::from(*before),
            })
        })
        .collect();
    let counts =
        Status::ALL.map(|status| (status.name().to_owned(), comparison.count(status).into()));
    let sites = comparison.shown(plan.all).take(plan.top).map(change);
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "before": side(comparison.before),
        "after": side(comparison.after),
        "warnings": obstacles(sides),
        "counters": counters,
        "site_counts": Value::Object(Map::from_iter(counts)),
        "sites": sites.collect::<Vec<_>>(),
    })
}

fn side(side: &Side<'_>) -> Value {
    json!({
        "trace": side.trace,
        "counters": side.analysis.counters,
        "losses": losses::details(side.analysis),
        "wrappers": side.analysis.wrappers.names(),
    })
}

fn change(change: &Change<'_>) -> Value {
    json!({
        "status": change.status.name(),
        "match": change.how.map(super::matching::How::describe),
        "guess": change.how.is_some_and(super::matching::How::is_guess),
        "before": change.before.map(site),
        "after": change.after.map(site),
        "stack": change.stack.as_ref().map(stack),
    })
}

/// The stack that changed most.
fn stack(change: &StackChange<'_>) -> Value {
    let frames = functions(&change.stack.chain).map(frame_json);
    json!({
        "figure": figure(change.key),
        "before": change.before,
        "after": change.after,
        "of": change.of,
        "frames": frames.collect::<Vec<_>>(),
    })
}

fn figure(key: SortKey) -> &'static str {
    match key {
        SortKey::Calls => "calls",
        SortKey::Bytes => "bytes",
        SortKey::Peak => "peak_bytes",
        SortKey::Tiny => "tiny",
        SortKey::Live => "live_bytes",
    }
}

fn site(known: &KnownSite<'_>) -> Value {
    let site = known.site;
    json!({
        "function": site.function.as_deref(),
        "file": site.file.as_deref(),
        "line": site.line,
        "module": site.module.as_ref().map(|module| &module.path),
        "address": site.address,
        "callers": known.callers.iter().map(|name| &**name).collect::<Vec<_>>(),
        "calls": site.calls,
        "bytes": site.bytes,
        "peak_bytes": known.peak_bytes,
        "tiny": site.tiny,
        "live_blocks": site.live_blocks,
        "live_bytes": site.live_bytes,
    })
}

pub fn growth(growth: &Growth<'_>, sides: &[Side<'_>], plan: &DiffPlan) -> Value {
    let source = match &growth.source {
        WorkSource::Given => "given".to_owned(),
        WorkSource::Measured { quantity, .. } => quantity.name(),
        WorkSource::Estimated(_) => "estimated".to_owned(),
    };
    let sites = growth.shown(plan.all).take(plan.top).map(site_growth);
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "traces": sides.iter().map(side).collect::<Vec<_>>(),
        "warnings": obstacles(sides.iter()),
        "work": growth.work,
        "work_source": source,
        "figure": figure(growth.key),
        "superlinear": growth.superlinear(),
        "sites": sites.collect::<Vec<_>>(),
    })
}

fn site_growth(growth: &SiteGrowth<'_>) -> Value {
    json!({
        "site": site(growth.site),
        "values": growth.values,
        "exponent": growth.exponent,
        "superlinear": growth.superlinear,
        "stack": growth.stack.as_ref().map(stack),
    })
}
