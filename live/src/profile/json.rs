//! The report as one JSON object, described in `docs/reference/heap-profile.md`.

use std::io::{self, Write};

use larder_base::output;
use serde_json::{Value, json};

use super::Report;
use super::growing::Growing;
use super::heap::{Estimate, Figures, HeapProfile, Origin};
use super::interval::{Growth, Interval};
use super::site_json::place;
use super::sites::{Base, ProfiledSite};
use super::text::{ranked, weight};

pub fn print(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    output::write_json(&document(report), out)
}

/// The sites that grew in every interval.
pub fn print_growing(
    report: &Report<'_>,
    found: &[Growing],
    out: &mut dyn Write,
) -> io::Result<()> {
    let sites = found.iter().take(report.top()).filter_map(|growing| {
        let of = report.profiled.sites.get(growing.site)?;
        let each = growing
            .each
            .iter()
            .map(|growth| self::growth(report, growth));
        let mut value = site(report, of);
        value["each"] = each.collect();
        Some(value)
    });
    let sites: Vec<Value> = sites.collect();
    let document = json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "profiles": report.profiles.iter().map(about).collect::<Vec<_>>(),
        "seconds": report.seconds,
        "sites": sites,
        "wrappers": report.profiled.wrappers.names(),
        "site_count": found.len(),
    });
    output::write_json(&document, out)
}

fn document(report: &Report<'_>) -> Value {
    let profiled = &report.profiled;
    let key = report.key();
    let sites = ranked(report, key);
    let shown = sites.iter().take(report.top());
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "profiles": report.profiles.iter().map(about).collect::<Vec<_>>(),
        "total": figures(&profiled.total),
        "seconds": report.seconds,
        "growth": growth(report, &profiled.total_growth),
        "base": match profiled.base {
            Base::None => Value::Null,
            Base::Earlier => json!("same process"),
            Base::OtherRun => json!("other run"),
        },
        "sites": shown.map(|site| self::site(report, site)).collect::<Vec<_>>(),
        "wrappers": report.profiled.wrappers.names(),
        "site_count": sites.len(),
    })
}

fn about(profile: &HeapProfile) -> Value {
    json!({
        "process": profile.process,
        "kind": match profile.origin {
            Origin::Larder => "estimated",
            Origin::Sampled => "scaled",
            Origin::Exact => "exact",
            Origin::Unstated => "unstated",
        },
        "mean_bytes": profile.mean,
        "stacks": profile.stacks.len(),
        "damaged_lines": profile.damaged,
        "cut_off": profile.cut_off,
    })
}

fn site(report: &Report<'_>, site: &ProfiledSite) -> Value {
    let key = report.key();
    let mut value = place(&report.profiled, site, |figures| weight(key, figures));
    value["figures"] = figures(&site.figures);
    value["growth"] = growth(report, &site.growth);
    value
}

fn figures(figures: &Figures) -> Value {
    let lifetimes = figures.lifetimes.iter().enumerate();
    let lifetimes = lifetimes.filter(|(_, freed)| **freed > 0.0);
    json!({
        "in_use": estimate(figures.in_use),
        "in_use_bytes_95": interval(figures.spread.interval(figures.in_use.bytes)),
        "samples": whole(figures.spread.samples),
        "allocated": estimate(figures.allocated),
        "peak": estimate(figures.at_peak),
        "at_mark": estimate(figures.at_mark),
        "freed_by_lifetime": lifetimes
            .map(|(class, freed)| json!({
                "from_us": 1u64 << class,
                "objects": whole(*freed),
            }))
            .collect::<Vec<_>>(),
    })
}

fn growth(report: &Report<'_>, growth: &Growth) -> Value {
    let sure = report.profiled.growth_is_sure();
    json!({
        "bytes": whole(growth.bytes),
        "bytes_95": sure.then(|| interval(growth.interval)),
        "significant": sure.then(|| growth.is_significant()),
    })
}

fn estimate(estimate: Estimate) -> Value {
    json!({ "objects": whole(estimate.objects), "bytes": whole(estimate.bytes) })
}

fn interval(interval: Interval) -> Value {
    json!([whole(interval.low), whole(interval.high)])
}

fn whole(value: f64) -> i64 {
    value.round() as i64
}
