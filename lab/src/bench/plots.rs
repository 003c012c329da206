//! The plots of the HTML page: time against memory of each allocator, the rankings, and each workload's
//! ratios with their confidence intervals.

use larder_base::order;
use larder_base::statistics::Estimate;
use larder_base::svg::{Anchor, LogAxis, Svg, tick_text};

use super::figures::Metric;
use super::markdown::interval;
use super::ranking::{MetricSummary, Row, Summary};
use super::results::Results;

/// A ratio beyond this is an arrow at the edge, and a number in the table.
const BOUNDS: (f64, f64) = (1.0 / 12.0, 12.0);
/// The distance from the best is at least 1.
const DISTANCE_BOUNDS: (f64, f64) = (0.97, 12.0);

/// The number of colours in the style sheet, without the reference's own.
pub const COLOURS: usize = 12;

/// The class that colours an allocator.
pub fn colour(results: &Results, name: &str) -> String {
    if name == results.reference() {
        return "own".to_owned();
    }
    let peers = results
        .allocators
        .iter()
        .filter(|a| a.name != results.reference());
    let place = peers.map(|a| &a.name).position(|peer| peer == name);
    format!("c{}", place.unwrap_or(0) % COLOURS)
}

/// Time against peak memory: one dot an allocator, the best corner lower left.
pub fn scatter(results: &Results, summary: &Summary) -> Option<String> {
    const WIDTH: f64 = 1060.0;
    const HEIGHT: f64 = 440.0;
    let dots: Vec<(&str, f64, f64)> = summary
        .ranking
        .iter()
        .filter_map(|rank| {
            let (time, peak) = (rank.distance(Metric::Time)?, rank.distance(Metric::Peak)?);
            Some((rank.allocator.as_str(), time, peak))
        })
        .collect();
    if dots.len() < 2 {
        return None;
    }
    let (left, right, bottom, top) = (60.0, WIDTH - 150.0, HEIGHT - 48.0, 14.0);
    let x = LogAxis::holding(dots.iter().map(|d| d.1), DISTANCE_BOUNDS, left, right);
    let y = LogAxis::holding(dots.iter().map(|d| d.2), DISTANCE_BOUNDS, bottom, top);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    for tick in x.ticks() {
        let at = x.at(tick);
        svg.line((at, top), (at, bottom), grid(tick));
        svg.text(
            (at, bottom + 16.0),
            Anchor::Middle,
            "tick",
            &tick_text(tick),
        );
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        svg.line((left, at), (right, at), grid(tick));
        svg.text(
            (left - 7.0, at + 4.0),
            Anchor::End,
            "tick",
            &tick_text(tick),
        );
    }
    svg.text(
        ((left + right) / 2.0, HEIGHT - 10.0),
        Anchor::Middle,
        "axis",
        "time: geometric mean of the ratio to the best →",
    );
    svg.text(
        (left, top - 3.0),
        Anchor::Start,
        "axis",
        "↑ peak RSS, likewise",
    );
    label_dots(&mut svg, results, &dots, (&x, &y));
    Some(svg.finish("Time against peak memory of each allocator"))
}

/// Dots with their names from top to bottom, each at least a line below the one before.
fn label_dots(
    svg: &mut Svg,
    results: &Results,
    dots: &[(&str, f64, f64)],
    (x, y): (&LogAxis, &LogAxis),
) {
    const LINE: f64 = 15.0;
    let mut labels: Vec<(f64, &(&str, f64, f64))> = dots.iter().map(|d| (y.at(d.2), d)).collect();
    order::sort_by(&mut labels, |a, b| a.0.total_cmp(&b.0));
    let mut next = f64::NEG_INFINITY;
    for (at, (name, time, peak)) in labels {
        let class = colour(results, name);
        let point = (x.at(*time), at);
        let line = at.max(next);
        next = line + LINE;
        let hint = format!("{name}: time {time:.2}, peak RSS {peak:.2}");
        svg.line((point.0 + 6.0, at), (point.0 + 14.0, line), "leader");
        let emphasis = if class == "own" {
            "name own-name"
        } else {
            "name"
        };
        svg.text((point.0 + 17.0, line + 4.0), Anchor::Start, emphasis, name);
        svg.dot(point, if class == "own" { 7.0 } else { 5.5 }, &class, &hint);
    }
}

/// One metric's ranking: bars that begin at 1, the best on every workload.
pub fn bars(results: &Results, summary: &Summary, metric: Metric) -> Option<String> {
    const WIDTH: f64 = 460.0;
    const ROW: f64 = 22.0;
    let mut ranks: Vec<(&str, f64)> = summary
        .ranking
        .iter()
        .filter_map(|rank| Some((rank.allocator.as_str(), rank.distance(metric)?)))
        .collect();
    if ranks.len() < 2 {
        return None;
    }
    order::sort_by(&mut ranks, |a, b| a.1.total_cmp(&b.1));
    let height = ranks.len() as f64 * ROW + 24.0;
    let (left, right) = (130.0, WIDTH - 50.0);
    let axis = LogAxis::holding(ranks.iter().map(|r| r.1), (1.0, 1e6), left, right);
    let mut svg = Svg::new(WIDTH, height);
    for tick in axis.ticks() {
        let at = axis.at(tick);
        svg.line((at, 0.0), (at, height - 20.0), grid(tick));
        svg.text((at, height - 6.0), Anchor::Middle, "tick", &tick_text(tick));
    }
    for (place, (name, distance)) in ranks.into_iter().enumerate() {
        let top = place as f64 * ROW;
        let class = colour(results, name);
        let emphasis = if class == "own" {
            "name own-name"
        } else {
            "name"
        };
        svg.text((left - 8.0, top + 15.0), Anchor::End, emphasis, name);
        let end = axis.at(distance);
        svg.rectangle(
            (left, top + 4.0),
            ((end - left).max(1.5), ROW - 8.0),
            &class,
        );
        let text = format!("{distance:.2}");
        svg.text((end + 6.0, top + 15.0), Anchor::Start, "value", &text);
    }
    Some(svg.finish(&format!("Ranking by {}", metric.short())))
}

/// Geometry of `dots`: a row's height, the space above the first, and the axis's ends.
const ROW: f64 = 30.0;
const HEAD: f64 = 40.0;
const LEFT: f64 = 160.0;
const RIGHT: f64 = 770.0;

/// One workload: dots around the middle of its row, and a hint with the best peer's ratio.
fn ratios_of(svg: &mut Svg, results: &Results, row: &Row, axis: &LogAxis, middle: f64) {
    for (index, allocator) in results.allocators.iter().enumerate() {
        let ratio = row.cells[index].as_ref().and_then(|cell| cell.ratio);
        let is_best = row.best_peer.as_ref() == Some(&allocator.name);
        if let Some(ratio) = ratio.filter(|_| !is_best) {
            let y = middle + lane(results, index, ROW);
            draw(
                svg,
                axis,
                y,
                ratio,
                &colour(results, &allocator.name),
                3.0,
                &allocator.name,
            );
        }
    }
    if let (Some(ratio), Some(best)) = (row.against_best_peer, &row.best_peer) {
        let class = format!("{} best", colour(results, best));
        draw(svg, axis, middle, ratio, &class, 5.0, best);
        let verdict = verdict(ratio);
        let text = format!("{}  {best}", interval(Some(ratio)));
        svg.text((RIGHT + 14.0, middle + 4.0), Anchor::Start, verdict, &text);
    }
}

/// The last row: of all workloads together.
fn means_of(svg: &mut Svg, results: &Results, table: &MetricSummary, axis: &LogAxis, middle: f64) {
    svg.text(
        (LEFT - 10.0, middle + 4.0),
        Anchor::End,
        "name own-name",
        "geometric mean",
    );
    for (index, allocator) in results.allocators.iter().enumerate() {
        let Some(mean) = table.mean_against(&allocator.name) else {
            continue;
        };
        let y = middle + lane(results, index, ROW);
        draw(
            svg,
            axis,
            y,
            mean.mean,
            &colour(results, &allocator.name),
            3.0,
            &allocator.name,
        );
    }
    if let Some(peer) = &table.best_single_peer
        && let Some(mean) = table.mean_against(peer)
    {
        let text = format!("{}  {peer}", interval(Some(mean.mean)));
        svg.text(
            (RIGHT + 14.0, middle + 4.0),
            Anchor::Start,
            verdict(mean.mean),
            &text,
        );
    }
}

/// Each workload's ratios: a dot a peer, with its interval; the best peer's larger.
pub fn dots(results: &Results, summary: &Summary, table: &MetricSummary) -> Option<String> {
    const WIDTH: f64 = 1060.0;
    let peers = results.allocators.len().saturating_sub(1);
    let rows: Vec<&Row> = table
        .rows
        .iter()
        .filter(|row| row.against_best_peer.is_some())
        .collect();
    if peers == 0 || rows.is_empty() {
        return None;
    }
    let ratios = rows.iter().flat_map(|row| row.cells.iter().flatten());
    let ends = ratios
        .filter_map(|cell| cell.ratio)
        .flat_map(|r| [r.low, r.high]);
    let axis = LogAxis::holding(ends, BOUNDS, LEFT, RIGHT);
    let height = HEAD + ROW * (rows.len() + 1) as f64 + 8.0;
    let mut svg = Svg::new(WIDTH, height);
    let one = axis.at(1.0);
    let reference = &summary.reference;
    svg.rectangle((LEFT, HEAD - 4.0), (one - LEFT, height - HEAD), "ahead");
    for (x, anchor, text) in [
        (one - 10.0, Anchor::End, format!("← {reference} needs less")),
        (
            one + 10.0,
            Anchor::Start,
            format!("{reference} needs more →"),
        ),
        (
            RIGHT + 14.0,
            Anchor::Start,
            format!("{reference} / best peer"),
        ),
    ] {
        svg.text((x, 12.0), anchor, "axis", &text);
    }
    for tick in axis.ticks() {
        let at = axis.at(tick);
        svg.line((at, HEAD - 4.0), (at, height - 4.0), grid(tick));
        svg.text((at, HEAD - 10.0), Anchor::Middle, "tick", &tick_text(tick));
    }
    for (place, row) in rows.iter().enumerate() {
        let middle = HEAD + ROW * (place as f64 + 0.5);
        svg.line(
            (LEFT, middle + ROW / 2.0),
            (RIGHT, middle + ROW / 2.0),
            "rule",
        );
        svg.text(
            (LEFT - 10.0, middle + 4.0),
            Anchor::End,
            "name",
            &row.workload,
        );
        ratios_of(&mut svg, results, row, &axis, middle);
    }
    let middle = HEAD + ROW * (rows.len() as f64 + 0.5);
    means_of(&mut svg, results, table, &axis, middle);
    Some(svg.finish(&format!(
        "{} of each workload against each peer",
        table.metric.title()
    )))
}

/// An interval that excludes 1 has a colour.
fn verdict(ratio: Estimate) -> &'static str {
    match ratio {
        r if r.high < 1.0 => "value less",
        r if r.low > 1.0 => "value more",
        _ => "value",
    }
}

/// Spreads the allocators over a row's height.
fn lane(results: &Results, index: usize, row: f64) -> f64 {
    let count = results.allocators.len().max(2) as f64;
    (index as f64 / (count - 1.0) - 0.5) * row * 0.7
}

fn draw(
    svg: &mut Svg,
    axis: &LogAxis,
    y: f64,
    ratio: Estimate,
    class: &str,
    radius: f64,
    name: &str,
) {
    let hint = format!("{name}: {}", interval(Some(ratio)));
    let (x, side) = axis.place(ratio.ratio);
    svg.line(
        (axis.at(ratio.low), y),
        (axis.at(ratio.high), y),
        &format!("whisker {class}"),
    );
    if side == 0.0 {
        svg.dot((x, y), radius, class, &hint);
    } else {
        svg.beyond((x, y), side, class, &hint);
    }
}

fn grid(tick: f64) -> &'static str {
    if tick == 1.0 { "one" } else { "grid" }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn each_allocator_is_in_each_plot() {
        let results = example(5);
        let summary = Summary::of(&results);
        let time = summary.metric(Metric::Time).unwrap();
        for plot in [
            scatter(&results, &summary).unwrap(),
            bars(&results, &summary, Metric::Peak).unwrap(),
        ] {
            for allocator in &results.allocators {
                assert!(
                    plot.contains(&format!(">{}</text>", allocator.name)),
                    "{plot}"
                );
            }
        }
        let dots = dots(&results, &summary, time).unwrap();
        assert!(
            dots.contains("<title>peer: 0.25 [0.25–0.25]</title>"),
            "{dots}"
        );
        assert!(dots.contains(">3.00 [3.00–3.00]  glibc</text>"), "{dots}");
        assert!(!dots.contains("NaN") && !dots.contains("inf"), "{dots}");
    }

    #[test]
    fn one_allocator_has_nothing_to_be_drawn_against() {
        let mut results = example(5);
        results.allocators.truncate(1);
        results.runs.retain(|run| run.allocator == "larder");
        let summary = Summary::of(&results);
        assert!(scatter(&results, &summary).is_none());
        assert!(bars(&results, &summary, Metric::Time).is_none());
        let time = summary.metric(Metric::Time).unwrap();
        assert!(dots(&results, &summary, time).is_none());
    }

    #[test]
    fn peers_have_colours_of_their_own() {
        let results = example(1);
        assert_eq!(colour(&results, "larder"), "own");
        assert_eq!(colour(&results, "glibc"), "c0");
        assert_eq!(colour(&results, "peer"), "c1");
    }
}
