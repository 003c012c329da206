//! The comparison as one JSON object, described in `docs/reference/tool.md`.

use std::io::{self, Write};

use larder_base::output;
use serde_json::{Map, Value, json};

use super::DiffPlan;
use super::compare::{self, Change, Comparison, Status};
use super::figures;
use super::growth::{Growth, SiteGrowth, WorkSource};
use super::obstacles::obstacles;
use super::side::{KnownSite, Side};
use super::stacks::StackChange;
use crate::of::Of;
use crate::reading::attribute::functions;
use crate::reading::losses;
use crate::reading::sites::SortKey;
use crate::report::frame_json;

pub fn print(document: &Value, out: &mut dyn Write) -> io::Result<()> {
    output::write_json(document, out)
}

pub fn comparison(comparison: &Comparison<'_>, plan: &DiffPlan) -> Value {
    let sides = [comparison.before, comparison.after];
    let [before, after] = sides.map(|side| compare::counters(side, plan.of));
    let counters: Vec<Value> = before
        .iter()
        .zip(&after)
        .map(|((name, _, before), (_, _, after))| {
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
    let sites = comparison.shown(plan.all).take(plan.top);
    let sites = sites.map(|found| change(found, plan.of));
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

fn change(change: &Change<'_>, of: Of) -> Value {
    json!({
        "status": change.status.name(),
        "match": change.how.map(super::matching::How::describe),
        "guess": change.how.is_some_and(super::matching::How::is_guess),
        "before": change.before.map(|known| site(known, of)),
        "after": change.after.map(|known| site(known, of)),
        "stack": change.stack.as_ref().map(|change| stack(change, of)),
    })
}

/// The stack that changed most.
fn stack(change: &StackChange<'_>, of: Of) -> Value {
    let frames = functions(&change.stack.chain).map(frame_json);
    json!({
        "figure": figure(of, change.key),
        "before": change.before,
        "after": change.after,
        "of": change.of,
        "frames": frames.collect::<Vec<_>>(),
    })
}

fn figure(of: Of, key: SortKey) -> &'static str {
    let [.., name] = figures::names(of, key);
    name
}

fn site(known: &KnownSite<'_>, of: Of) -> Value {
    let site = known.site;
    let mut found = json!({
        "function": site.function.as_deref(),
        "file": site.file.as_deref(),
        "line": site.line,
        "module": site.module.as_ref().map(|module| &module.path),
        "address": site.address,
        "callers": known.callers.iter().map(|name| &**name).collect::<Vec<_>>(),
    });
    for key in of.keys() {
        found[figure(of, *key)] = site.weight(*key).into();
    }
    if of == Of::Allocations {
        found["peak_bytes"] = known.peak_bytes.into();
        found["live_blocks"] = site.sums.live_blocks.into();
        return found;
    }
    found["call"] = known.call().as_deref().into();
    let deviations = of.keys().iter().filter_map(|key| {
        let deviation = known.figure(*key).deviation()?;
        Some((figure(of, *key).to_owned(), deviation.into()))
    });
    found["deviations"] = Value::Object(deviations.collect());
    found
}

pub fn growth(growth: &Growth<'_>, sides: &[Side<'_>], plan: &DiffPlan) -> Value {
    let source = match &growth.source {
        WorkSource::Given => "given".to_owned(),
        WorkSource::Measured { quantity, .. } => quantity.name(),
        WorkSource::Estimated(_) => "estimated".to_owned(),
    };
    let sites = growth.shown(plan.all).take(plan.top);
    let sites = sites.map(|found| site_growth(found, plan.of));
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "traces": sides.iter().map(side).collect::<Vec<_>>(),
        "warnings": obstacles(sides.iter()),
        "work": growth.work,
        "work_source": source,
        "figure": figure(plan.of, plan.sort),
        "superlinear": growth.superlinear(),
        "sites": sites.collect::<Vec<_>>(),
    })
}

fn site_growth(growth: &SiteGrowth<'_>, of: Of) -> Value {
    let deviations = growth.values.iter().map(|figure| figure.deviation());
    let estimated = deviations.clone().any(|deviation| deviation.is_some());
    let deviations = deviations.map(Option::unwrap_or_default);
    let deviations = estimated.then(|| deviations.collect::<Vec<f64>>());
    json!({
        "site": site(growth.site, of),
        "values": growth.values.iter().map(|y| y.value).collect::<Vec<_>>(),
        "deviations": deviations,
        "exponent": growth.exponent,
        "superlinear": growth.superlinear,
        "stack": growth.stack.as_ref().map(|change| stack(change, of)),
    })
}
