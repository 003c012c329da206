//! The report as one HTML page without scripts and without resources from a network.

use std::fmt::Write;

use larder_base::statistics::Estimate;
use larder_base::svg::escape;

use super::figures::{Metric, SHOWN};
use super::markdown::{interval, intro, number};
use super::plots;
use super::ranking::{MetricSummary, Row, Summary};
use super::results::Results;

const STYLE: &str = include_str!("page.css");

pub fn render(results: &Results, summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut out, results, summary);
    out
}

fn write_page(out: &mut String, results: &Results, summary: &Summary) -> std::fmt::Result {
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Allocators compared</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>"
    )?;
    write_head(out, results, summary)?;
    write_overview(out, results, summary)?;
    for metric in SHOWN {
        if let Some(table) = summary.metric(metric) {
            write_metric(out, results, summary, table)?;
        }
    }
    write_failures(out, summary)?;
    write_setting(out, results)?;
    writeln!(out, "</main>\n</body>\n</html>")
}

fn write_head(out: &mut String, results: &Results, summary: &Summary) -> std::fmt::Result {
    writeln!(out, "<h1>Allocators compared</h1>")?;
    let rounds = results.rounds_in_words();
    writeln!(
        out,
        "<p class=\"about\">{} allocators on {} workloads, {rounds}, {}. {}; load {:.2} at the start.<br>\
         <code>{}</code>, seed {}</p>",
        results.allocators.len(),
        results.workloads.len(),
        escape(&results.date),
        escape(&results.machine.describe()),
        results.machine.load_at_start,
        escape(&results.command),
        results.seed
    )?;
    for note in &results.notes {
        writeln!(out, "<p class=\"warning\">{}</p>", escape(note))?;
    }
    write_cards(out, summary)
}

/// The reference's rank, and its ratio to the best peer.
fn write_cards(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let reference = escape(&summary.reference);
    writeln!(out, "<div class=\"cards\">")?;
    for metric in [Metric::Time, Metric::Peak, Metric::Idle] {
        let Some(table) = summary.metric(metric) else {
            continue;
        };
        let Some(peer) = &table.best_single_peer else {
            continue;
        };
        let Some(mean) = table.mean_against(peer) else {
            continue;
        };
        writeln!(
            out,
            "<div class=\"card\"><span>{}: {reference} / {}, the best single peer</span><b>{:.2}</b>\
             <span>95 % interval {:.2}–{:.2}, {} workloads</span></div>",
            metric.short(),
            escape(peer),
            mean.mean.ratio,
            mean.mean.low,
            mean.mean.high,
            mean.workloads
        )?;
    }
    let place = summary
        .ranking
        .iter()
        .position(|r| r.allocator == summary.reference);
    if let Some(place) = place.filter(|_| summary.ranking.len() > 1) {
        writeln!(
            out,
            "<div class=\"card\"><span>time and peak RSS together</span><b>{} of {}</b><span>{reference}'s place \
             among the allocators</span></div>",
            place + 1,
            summary.ranking.len()
        )?;
    }
    writeln!(out, "</div>")
}

fn write_overview(out: &mut String, results: &Results, summary: &Summary) -> std::fmt::Result {
    writeln!(out, "<h2>Ranking</h2>\n<p>{}</p>", escape(intro::RANKING))?;
    if let Some(plot) = plots::scatter(results, summary) {
        writeln!(
            out,
            "<div class=\"panel\"><h3>Fast and small is lower left</h3>\n{plot}</div>"
        )?;
    }
    writeln!(out, "<div class=\"panels\">")?;
    for metric in [Metric::Time, Metric::Peak, Metric::Cpu, Metric::Idle] {
        if let Some(plot) = plots::bars(results, summary, metric) {
            writeln!(
                out,
                "<div class=\"panel\"><h3>{}</h3>\n{plot}</div>",
                metric.title()
            )?;
        }
    }
    writeln!(out, "</div>")?;
    write_ranking_table(out, summary)
}

fn write_ranking_table(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let columns = summary.ranked_by();
    write!(
        out,
        "<div class=\"table\"><table>\n<tr><th>allocator</th><th>time and peak RSS</th>"
    )?;
    for metric in &columns {
        write!(out, "<th>{}</th>", metric.short())?;
    }
    writeln!(out, "<th>failed</th></tr>")?;
    for rank in &summary.ranking {
        let class = if rank.allocator == summary.reference {
            " class=\"own\""
        } else {
            ""
        };
        write!(
            out,
            "<tr{class}><td>{}</td><td>{}</td>",
            escape(&rank.allocator),
            number(rank.both)
        )?;
        for metric in &columns {
            write!(out, "<td>{}</td>", number(rank.distance(*metric)))?;
        }
        let failed = if rank.failed == 0 {
            String::new()
        } else {
            rank.failed.to_string()
        };
        writeln!(out, "<td>{failed}</td></tr>")?;
    }
    writeln!(out, "</table></div>")
}

fn write_metric(
    out: &mut String,
    results: &Results,
    summary: &Summary,
    table: &MetricSummary,
) -> std::fmt::Result {
    writeln!(out, "<h2>{}</h2>", table.metric.title())?;
    if let Some(plot) = plots::dots(results, summary, table) {
        writeln!(out, "<p>{}</p>", escape(&intro::ratios(&summary.reference)))?;
        write_legend(out, results)?;
        writeln!(out, "<div class=\"panel wide\">\n{plot}</div>")?;
        write_ratios(out, results, summary, table)?;
    }
    write_medians(out, results, table)
}

fn write_legend(out: &mut String, results: &Results) -> std::fmt::Result {
    write!(out, "<div class=\"legend\">")?;
    for allocator in &results.allocators {
        if allocator.name != results.reference() {
            let class = plots::colour(results, &allocator.name);
            write!(
                out,
                "<span><i class=\"{class}\"></i>{}</span>",
                escape(&allocator.name)
            )?;
        }
    }
    writeln!(out, "</div>")
}

fn write_ratios(
    out: &mut String,
    results: &Results,
    summary: &Summary,
    table: &MetricSummary,
) -> std::fmt::Result {
    let reference = escape(&summary.reference);
    let peers: Vec<usize> = (0..results.allocators.len())
        .filter(|index| results.allocators[*index].name != summary.reference)
        .collect();
    writeln!(
        out,
        "<details><summary>Ratios, {reference} / each peer</summary><div class=\"table\"><table>"
    )?;
    write!(
        out,
        "<tr><th>workload</th><th class=\"words\">best peer</th><th>{reference} / best peer</th>"
    )?;
    for index in &peers {
        write!(out, "<th>{}</th>", escape(&results.allocators[*index].name))?;
    }
    writeln!(out, "</tr>")?;
    for row in &table.rows {
        let best = row.best_peer.as_deref().unwrap_or("–");
        write!(
            out,
            "<tr><td>{}</td><td class=\"words\">{}</td>{}",
            escape(&row.workload),
            escape(best),
            ratio_cell(row.against_best_peer)
        )?;
        for index in &peers {
            write!(out, "{}", peer_cell(row, *index))?;
        }
        writeln!(out, "</tr>")?;
    }
    write!(
        out,
        "<tr class=\"mean\"><td>geometric mean</td><td></td><td></td>"
    )?;
    for index in &peers {
        let mean = table.mean_against(&results.allocators[*index].name);
        write!(out, "{}", ratio_cell(mean.map(|mean| mean.mean)))?;
    }
    writeln!(out, "</tr>\n</table></div></details>")
}

fn peer_cell(row: &Row, index: usize) -> String {
    match &row.cells[index] {
        Some(cell) => ratio_cell(cell.ratio),
        None => "<td>failed</td>".to_owned(),
    }
}

fn ratio_cell(ratio: Option<Estimate>) -> String {
    let Some(ratio) = ratio else {
        return "<td>–</td>".to_owned();
    };
    let class = match ratio {
        r if r.high < 1.0 => " class=\"less\"",
        r if r.low > 1.0 => " class=\"more\"",
        _ => "",
    };
    format!(
        "<td{class} title=\"{}\">{:.2}</td>",
        interval(Some(ratio)),
        ratio.ratio
    )
}

fn write_medians(out: &mut String, results: &Results, table: &MetricSummary) -> std::fmt::Result {
    let metric = table.metric;
    let unit = match metric.unit() {
        "" => String::new(),
        unit => format!(" in {unit}"),
    };
    writeln!(
        out,
        "<details><summary>Medians{unit}, and the smallest of the rounds</summary><div class=\"table\"><table>"
    )?;
    write!(out, "<tr><th>workload</th>")?;
    for allocator in &results.allocators {
        write!(out, "<th>{}</th>", escape(&allocator.name))?;
    }
    writeln!(out, "</tr>")?;
    for row in &table.rows {
        write!(out, "<tr><td>{}</td>", escape(&row.workload))?;
        for cell in &row.cells {
            match cell {
                Some(cell) => write!(
                    out,
                    "<td>{} <small>{}</small></td>",
                    metric.show(cell.median),
                    metric.show(cell.least)
                )?,
                None => write!(out, "<td>failed</td>")?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div></details>")
}

fn write_failures(out: &mut String, summary: &Summary) -> std::fmt::Result {
    if summary.failures.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Failures</h2>\n<p>These are in none of the means.</p>\n<div class=\"table\"><table>\n\
         <tr><th>workload</th><th class=\"words\">allocator</th><th class=\"words\">how it ended</th></tr>"
    )?;
    for failure in &summary.failures {
        writeln!(
            out,
            "<tr><td>{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            escape(&failure.workload),
            escape(&failure.allocator),
            escape(&failure.cause)
        )?;
    }
    writeln!(out, "</table></div>")
}

fn write_setting(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>Allocators</h2>\n<div class=\"table\"><table>\n<tr><th>name</th><th class=\"words\">version</th>\
         <th class=\"words\">from</th><th class=\"words\">library</th><th class=\"words\">SHA-256</th></tr>"
    )?;
    for allocator in &results.allocators {
        let mut from = allocator.source.clone();
        if !allocator.note.is_empty() {
            let _ = write!(from, " ({})", allocator.note);
        }
        for (name, value) in &allocator.environment {
            let _ = write!(from, ", {name}={value}");
        }
        writeln!(
            out,
            "<tr><td>{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td>\
             <td class=\"words\"><code>{}</code></td><td class=\"words\"><code>{}</code></td></tr>",
            escape(&allocator.name),
            escape(&allocator.version),
            escape(&from),
            escape(&allocator.library.to_string_lossy()),
            escape(allocator.sha256.get(..16).unwrap_or(&allocator.sha256)),
        )?;
    }
    writeln!(
        out,
        "</table></div>\n<h2>Workloads</h2>\n<div class=\"table\"><table>\n<tr><th>name</th>\
         <th class=\"words\">what</th><th>share of its usual work</th></tr>"
    )?;
    for subject in &results.workloads {
        writeln!(
            out,
            "<tr><td>{}</td><td class=\"words\">{}</td><td>{:.0} %</td></tr>",
            escape(&subject.name),
            escape(&subject.what),
            subject.scale * 100.0
        )?;
    }
    writeln!(out, "</table></div>")
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn names_from_outside_cannot_leave_their_place() {
        let mut results = example(3);
        results.notes.push("<script>".to_owned());
        results.command = "</code><script>".to_owned();
        results.allocators[2].note = "\"><script>".to_owned();
        results.workloads[0].what = "<script>".to_owned();
        let page = render(&results, &Summary::of(&results));
        assert!(!page.contains("<script"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;").count(), 4);
    }

    #[test]
    fn the_page_needs_no_network() {
        let results = example(3);
        let page = render(&results, &Summary::of(&results));
        for word in ["http:", "https:", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn the_figures_are_there() {
        let results = example(3);
        let page = render(&results, &Summary::of(&results));
        for words in [
            "<b>1.22</b>",
            "<b>2 of 3</b>",
            "title=\"0.50 [0.50–0.50]\">0.50</td>",
            "<td>failed</td>",
            "signal 11 (SIGSEGV)",
            "<td>0.200 <small>0.200</small></td>",
        ] {
            assert!(page.contains(words), "{words} is not in {page}");
        }
        for tag in ["table", "div", "svg", "details", "tr", "td", "p"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
