//! The output of `check`: one line within the budget, five lines beyond it, or one object of JSON.

use larder_analysis::reading::wrappers::Passed;
use larder_base::number::{duration, grouped};
use larder_base::printable::escape;
use serde_json::{Map, Value, json};

use super::figures::Figure;
use super::measure::Measured;
use super::verdict::{Breach, Culprit};

/// Broken limits listed after the first.
const OTHERS: usize = 4;

pub fn figures(measured: &Measured) -> String {
    let all: Vec<String> = Figure::ALL
        .iter()
        .map(|figure| figure.describe(measured.figures.get(*figure)))
        .collect();
    let time = measured.times.map_or(String::new(), |times| {
        let ns = |time: std::time::Duration| duration(time.as_nanos() as u64);
        format!("; {} ({} of CPU)", ns(times.wall), ns(times.cpu))
    });
    format!("{}{time}", all.join(", "))
}

/// Five lines: the first broken limit, the others, the site, its callers, what to type; and a sixth if
/// the program's own allocation functions are not charged.
pub fn exceeded(
    name: &str,
    breaches: &[Breach<'_>],
    wrappers: &Passed,
    update: &str,
) -> Vec<String> {
    let Some((first, others)) = breaches.split_first() else {
        return Vec::new();
    };
    let also = match others {
        [] => "within every other limit".to_owned(),
        _ => {
            let shown = others.iter().take(OTHERS).map(breach);
            let more = others.len().saturating_sub(OTHERS);
            let more = (more > 0).then(|| format!("{more} more"));
            let list: Vec<String> = shown.chain(more).collect();
            format!("also: {}", list.join("; "))
        }
    };
    let culprit = breaches.iter().find_map(|breach| breach.culprit);
    let (site, callers) = match culprit {
        Some(culprit) => (where_it_grew(&culprit), called_from(&culprit)),
        None if first.over() < 0 => (
            "site: none grew; the program needs less than its budget".to_owned(),
            "called from: -".to_owned(),
        ),
        None => (
            "site: no single site grew; see `larder report`".to_owned(),
            "called from: -".to_owned(),
        ),
    };
    let mut lines = vec![
        format!("{}: over budget: {}", escape(name), breach(first)),
        format!("  {also}"),
        format!("  {site}"),
        format!("  {callers}"),
    ];
    let passed = wrappers.describe().filter(|_| culprit.is_some());
    lines.extend(passed.map(|passed| format!("  {}", escape(&passed))));
    lines.push(format!("  next: cure it, or accept it: {update}"));
    lines
}

fn breach(breach: &Breach<'_>) -> String {
    let figure = match (breach.cap, breach.figure) {
        (Some(function), Figure::Allocations) => format!("calls of {}", escape(function)),
        (Some(function), figure) => format!("{} of {}", figure.key(), escape(function)),
        (None, figure) => figure.key().to_owned(),
    };
    let over = breach.over();
    let sign = if over < 0 { "-" } else { "+" };
    let by = grouped(u64::try_from(over.unsigned_abs()).unwrap_or(u64::MAX));
    let percent = match breach.limit.value {
        0 => String::new(),
        value => format!(", {:+.1} %", over as f64 / value as f64 * 100.0),
    };
    format!(
        "{figure} {} where {} is allowed ({sign}{by}{percent})",
        grouped(breach.found),
        breach.limit
    )
}

fn unit(figure: Figure) -> &'static str {
    match figure {
        Figure::Allocations => "calls",
        Figure::PeakBytes | Figure::TotalBytes => "bytes",
        Figure::LeakedBlocks => "blocks leaked",
        Figure::LeakedBytes => "bytes leaked",
        Figure::Tiny => "tiny blocks",
    }
}

fn where_it_grew(culprit: &Culprit<'_>) -> String {
    let site = culprit.site;
    let place = match site.line {
        0 => String::new(),
        line => format!(" at {}:{line}", escape(&site.file)),
    };
    let unit = unit(culprit.figure);
    let here = grouped(site.figures.get(culprit.figure));
    let grown = match culprit.recorded {
        Some(before) => format!(
            "its function went from {} {unit} to {}",
            grouped(before),
            grouped(culprit.found)
        ),
        None => "the budget has no recorded sites to compare with".to_owned(),
    };
    format!(
        "site: {}{place}: {here} {unit}; {grown}",
        escape(&site.function)
    )
}

fn called_from(culprit: &Culprit<'_>) -> String {
    match culprit.site.callers.as_str() {
        "" => "called from: -".to_owned(),
        callers => format!("called from: {callers}"),
    }
}

pub fn json(name: &str, measured: &Measured, breaches: &[Breach<'_>]) -> Value {
    let figures: Map<String, Value> = Figure::ALL
        .iter()
        .map(|figure| {
            let found = measured.figures.get(*figure);
            (figure.key().to_owned(), found.into())
        })
        .collect();
    let varied: Map<String, Value> = measured
        .varied
        .iter()
        .map(|(figure, (low, high))| (figure.key().to_owned(), json!([low, high])))
        .collect();
    json!({
        "name": name,
        "within": breaches.is_empty(),
        "figures": figures,
        "runs": measured.runs,
        "varied": varied,
        "wall_ns": measured.times.map(|times| times.wall.as_nanos() as u64),
        "cpu_ns": measured.times.map(|times| times.cpu.as_nanos() as u64),
        "wrappers": measured.wrappers.names(),
        "exceeded": breaches.iter().map(breach_json).collect::<Vec<_>>(),
    })
}

fn breach_json(breach: &Breach<'_>) -> Value {
    let site = breach.culprit.map(|culprit| {
        json!({
            "function": culprit.site.function,
            "file": culprit.site.file,
            "line": culprit.site.line,
            "figure": culprit.figure.key(),
            "here": culprit.site.figures.get(culprit.figure),
            "in_function": culprit.found,
            "recorded": culprit.recorded,
            "callers": culprit.site.callers,
        })
    });
    json!({
        "figure": breach.figure.key(),
        "function": breach.cap,
        "limit": breach.limit.to_string(),
        "found": breach.found,
        "over": breach.over() as i64,
        "site": site,
    })
}
