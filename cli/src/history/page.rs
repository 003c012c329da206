//! The trend page: one HTML file, no script, nothing from a network.

use std::fmt::Write;

use larder_base::svg::{Anchor, Svg, escape};

use super::trend::{Series, Trend, commit, describe};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 26.0;

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1d2733; --faint: #8a96a3; --line: #2f6fb3; --move: #c2410c; --ground: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --faint: #7d8894; --line: #6fb0f0; --move: #fb923c; --ground: #14191f; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2em auto; max-width: 900px; padding: 0 1em; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--faint); }
.axis { stroke: var(--faint); stroke-width: .5; } .series { stroke: var(--line); stroke-width: 1.5; }
.run { fill: var(--line); } .over { fill: var(--move); } .move { stroke: var(--move); stroke-dasharray: 3 3; }
h3 { margin: 1.2em 0 0; font-size: 1em; } code { font-size: .93em; }
";

pub fn render(trends: &[Trend]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut out, trends);
    out
}

fn write_page(out: &mut String, trends: &[Trend]) -> std::fmt::Result {
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Allocations over time</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Allocations over time</h1>"
    )?;
    for trend in trends {
        writeln!(out, "<h2>{}</h2>", escape(&trend.name))?;
        write_moves(out, trend)?;
        for series in Series::all() {
            if let Some(plot) = plot(trend, series) {
                writeln!(out, "<h3>{}</h3>\n{plot}", series.key())?;
            }
        }
    }
    writeln!(out, "</body>\n</html>")
}

fn write_moves(out: &mut String, trend: &Trend) -> std::fmt::Result {
    let moves: Vec<String> = trend
        .moved
        .iter()
        .filter_map(|moved| describe(trend, moved))
        .collect();
    if moves.is_empty() {
        return writeln!(out, "<p>{} runs; no figure moved.</p>", trend.runs.len());
    }
    writeln!(out, "<p>{} runs; moved at:</p>\n<ul>", trend.runs.len())?;
    for text in moves {
        writeln!(out, "<li><code>{}</code></li>", escape(&text))?;
    }
    writeln!(out, "</ul>")
}

/// `None` if no run has a value.
fn plot(trend: &Trend, series: Series) -> Option<String> {
    let values: Vec<Option<f64>> = trend.runs.iter().map(|run| series.value(run)).collect();
    let highest = values.iter().flatten().copied().reduce(f64::max)?;
    let top = if highest > 0.0 { highest * 1.05 } else { 1.0 };
    let step = (WIDTH - LEFT - RIGHT) / (values.len().max(2) - 1) as f64;
    let x = |run: usize| LEFT + step * run as f64;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    for value in [0.0, highest] {
        svg.line((LEFT, y(value)), (WIDTH - RIGHT, y(value)), "axis");
        let at = (LEFT - 8.0, y(value) + 4.0);
        svg.text(at, Anchor::End, "", &series.describe(value));
    }
    for moved in trend.moved.iter().filter(|moved| moved.series == series) {
        let at = x(moved.change.at) - step / 2.0;
        svg.line((at, TOP), (at, HEIGHT - BOTTOM), "move");
    }
    let points: Vec<(usize, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(run, value)| Some((run, (*value)?)))
        .collect();
    for (from, to) in points.iter().zip(points.iter().skip(1)) {
        svg.line((x(from.0), y(from.1)), (x(to.0), y(to.1)), "series");
    }
    for (index, value) in points {
        let run = trend.runs.get(index)?;
        let hint = format!("{} {}: {}", commit(run), run.at, series.describe(value));
        let class = if run.within { "run" } else { "over" };
        svg.dot((x(index), y(value)), 3.0, class, &hint);
    }
    if let (Some(first), Some(last)) = (trend.runs.first(), trend.runs.last()) {
        let low = HEIGHT - 8.0;
        svg.text((LEFT, low), Anchor::Start, "", &commit(first));
        svg.text((WIDTH - RIGHT, low), Anchor::End, "", &commit(last));
    }
    Some(svg.finish(&format!("{} over the runs", series.key())))
}
