//! The report as Markdown tables.

use std::fmt::Write;

use larder_base::statistics::Estimate;

use super::figures::{Metric, SHOWN};
use super::ranking::{Cell, MetricSummary, Rank, Row, Summary};
use super::results::Results;

/// Texts that the Markdown and the page share.
pub mod intro {
    pub const RANKING: &str = "Each figure is the geometric mean, over the workloads, of the ratio to the best \
                               allocator on each: 1.00 would be the best everywhere.";

    pub fn ratios(reference: &str) -> String {
        format!(
            "A ratio is {reference} / peer, below 1 where {reference} needs less: the median of the rounds' own \
             ratios, with its bootstrap 95 % confidence interval."
        )
    }
}

pub fn render(results: &Results, summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_report(&mut out, results, summary);
    out
}

fn write_report(out: &mut String, results: &Results, summary: &Summary) -> std::fmt::Result {
    write_head(out, results, summary)?;
    write_ranking(out, summary)?;
    if results.allocators.len() > 1 {
        write_means(out, summary)?;
        write_best(out, summary)?;
    }
    for metric in SHOWN {
        if let Some(table) = summary.metric(metric) {
            write_metric(out, results, summary, table)?;
        }
    }
    write_failures(out, summary)?;
    write_workloads(out, results)?;
    write_allocators(out, results)
}

fn write_head(out: &mut String, results: &Results, summary: &Summary) -> std::fmt::Result {
    let rounds = results.rounds_in_words();
    writeln!(
        out,
        "Measured {} with `{}`: {rounds}, seed {}; {}; load {:.2} at the start.\n",
        results.date,
        text(&results.command),
        results.seed,
        text(&results.machine.describe()),
        results.machine.load_at_start
    )?;
    writeln!(
        out,
        "Figures are medians over the rounds, with the smallest in brackets. {}\n",
        intro::ratios(&summary.reference)
    )?;
    for note in &results.notes {
        writeln!(out, "- {}", text(note))?;
    }
    if !results.notes.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}

fn write_ranking(out: &mut String, summary: &Summary) -> std::fmt::Result {
    writeln!(out, "### Ranking\n")?;
    writeln!(
        out,
        "{} Ordered by time and peak RSS together.\n",
        intro::RANKING
    )?;
    let columns = summary.ranked_by();
    let heads: Vec<&str> = columns.iter().map(|metric| metric.short()).collect();
    writeln!(
        out,
        "| | allocator | time and peak RSS | {} |",
        heads.join(" | ")
    )?;
    writeln!(out, "|---:|---|---:|{}", "---:|".repeat(columns.len()))?;
    for (place, rank) in summary.ranking.iter().enumerate() {
        let cells: Vec<String> = columns
            .iter()
            .map(|metric| number(rank.distance(*metric)))
            .collect();
        writeln!(
            out,
            "| {} | {}{} | {} | {} |",
            place + 1,
            emphasised(&rank.allocator, rank.allocator == summary.reference),
            failed_mark(rank),
            number(rank.both),
            cells.join(" | ")
        )?;
    }
    write_failed_footnote(out, summary)?;
    writeln!(out)
}

fn failed_mark(rank: &Rank) -> String {
    match rank.failed {
        0 => String::new(),
        count => format!(" †{count}"),
    }
}

fn write_failed_footnote(out: &mut String, summary: &Summary) -> std::fmt::Result {
    if summary.failures.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n†N: failed on N workloads (see Failures), which are in none of its means."
    )
}

fn write_means(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let reference = &summary.reference;
    writeln!(out, "### {reference} against each peer\n")?;
    writeln!(
        out,
        "The geometric mean over the workloads of {reference} / peer.\n"
    )?;
    let columns: Vec<&MetricSummary> = SHOWN
        .iter()
        .filter_map(|metric| summary.metric(*metric))
        .filter(|table| !table.means.is_empty())
        .collect();
    let heads: Vec<&str> = columns.iter().map(|table| table.metric.short()).collect();
    writeln!(out, "| {reference} / | {} |", heads.join(" | "))?;
    writeln!(out, "|---|{}", "---:|".repeat(columns.len()))?;
    for rank in summary.ranking.iter().filter(|r| r.allocator != *reference) {
        let cells: Vec<String> = columns
            .iter()
            .map(|table| interval(table.mean_against(&rank.allocator).map(|mean| mean.mean)))
            .collect();
        writeln!(
            out,
            "| {}{} | {} |",
            rank.allocator,
            failed_mark(rank),
            cells.join(" | ")
        )?;
    }
    writeln!(out)
}

fn write_best(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let reference = &summary.reference;
    writeln!(out, "### {reference} against the best peer\n")?;
    writeln!(
        out,
        "The best single peer is the one with the smallest geometric mean in the ranking; the worst workload is the \
         one where {reference} is furthest behind the peer that is best there.\n"
    )?;
    writeln!(
        out,
        "| figure | best single peer | {reference} / it | worst workload | {reference} / best peer there | \
         workloads behind the best peer |"
    )?;
    writeln!(out, "|---|---|---:|---|---:|---:|")?;
    for metric in SHOWN {
        let Some(table) = summary.metric(metric) else {
            continue;
        };
        let (Some(peer), Some((row, worst))) = (&table.best_single_peer, table.worst()) else {
            continue;
        };
        let against = table.rows.iter().filter_map(|row| row.against_best_peer);
        let (behind, all) = against.fold((0, 0), |(behind, all), estimate| {
            (behind + usize::from(estimate.ratio > 1.0), all + 1)
        });
        writeln!(
            out,
            "| {} | {peer} | {} | {} ({}) | {} | {behind} of {all} |",
            metric.short(),
            interval(table.mean_against(peer).map(|mean| mean.mean)),
            row.workload,
            row.best_peer.as_deref().unwrap_or("–"),
            interval(Some(worst)),
        )?;
    }
    writeln!(out)
}

fn write_metric(
    out: &mut String,
    results: &Results,
    summary: &Summary,
    table: &MetricSummary,
) -> std::fmt::Result {
    let metric = table.metric;
    let unit = match metric.unit() {
        "" => String::new(),
        unit => format!(", {unit}"),
    };
    let reference = &summary.reference;
    writeln!(out, "### {}\n", metric.title())?;
    let index_of = |name: &str| results.allocators.iter().position(|a| a.name == name);
    let own = index_of(reference);
    let peers: Vec<usize> = (0..results.allocators.len())
        .filter(|index| Some(*index) != own)
        .collect();
    if !peers.is_empty() {
        let heads = peers
            .iter()
            .map(|index| format!("/ {}", results.allocators[*index].name));
        let heads: Vec<String> = heads.collect();
        writeln!(
            out,
            "| workload | best peer | {reference} / best peer | {} |",
            heads.join(" | ")
        )?;
        writeln!(out, "|---|---|---:|{}", "---:|".repeat(peers.len()))?;
        for row in &table.rows {
            let cells: Vec<String> = peers.iter().map(|index| ratio_cell(row, *index)).collect();
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                row.workload,
                row.best_peer.as_deref().unwrap_or("–"),
                interval(row.against_best_peer),
                cells.join(" | ")
            )?;
        }
        let means = peers.iter().map(|index| {
            let mean = table.mean_against(&results.allocators[*index].name);
            match mean {
                Some(mean) => format!("**{:.2}**", mean.mean.ratio),
                None => "–".to_owned(),
            }
        });
        let means: Vec<String> = means.collect();
        writeln!(out, "| **geometric mean** | | | {} |\n", means.join(" | "))?;
    }
    let heads = results
        .allocators
        .iter()
        .map(|a| format!("{}{unit}", a.name));
    let heads: Vec<String> = heads.collect();
    writeln!(out, "| workload | {} |", heads.join(" | "))?;
    writeln!(out, "|---|{}", "---:|".repeat(heads.len()))?;
    for row in &table.rows {
        let cells = row.cells.iter().map(|cell| figure(metric, cell.as_ref()));
        let cells: Vec<String> = cells.collect();
        writeln!(out, "| {} | {} |", row.workload, cells.join(" | "))?;
    }
    writeln!(out)
}

fn ratio_cell(row: &Row, index: usize) -> String {
    match &row.cells[index] {
        Some(cell) => number(cell.ratio.map(|ratio| ratio.ratio)),
        None => "failed".to_owned(),
    }
}

fn figure(metric: Metric, cell: Option<&Cell>) -> String {
    match cell {
        Some(cell) => format!("{} ({})", metric.show(cell.median), metric.show(cell.least)),
        None => "failed".to_owned(),
    }
}

fn write_failures(out: &mut String, summary: &Summary) -> std::fmt::Result {
    if summary.failures.is_empty() {
        return Ok(());
    }
    writeln!(out, "### Failures\n")?;
    writeln!(out, "| workload | allocator | how it ended |")?;
    writeln!(out, "|---|---|---|")?;
    for failure in &summary.failures {
        writeln!(
            out,
            "| {} | {} | {} |",
            failure.workload,
            failure.allocator,
            text(&failure.cause)
        )?;
    }
    writeln!(out)
}

fn write_workloads(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(out, "### Workloads\n")?;
    writeln!(out, "| workload | what | share of its usual work |")?;
    writeln!(out, "|---|---|---:|")?;
    for subject in &results.workloads {
        writeln!(
            out,
            "| {} | {} | {:.0} % |",
            subject.name,
            text(&subject.what),
            subject.scale * 100.0
        )?;
    }
    writeln!(out)
}

fn write_allocators(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(out, "### Allocators\n")?;
    writeln!(out, "| name | version | library | SHA-256 | from |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for allocator in &results.allocators {
        let variables = allocator.environment.iter();
        let variables: String = variables.map(|(k, v)| format!(", {k}={v}")).collect();
        let note = match allocator.note.as_str() {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        writeln!(
            out,
            "| {} | {} | `{}` | `{}` | {} |",
            allocator.name,
            text(&allocator.version),
            text(&allocator.library.to_string_lossy()),
            allocator.sha256.get(..16).unwrap_or(&allocator.sha256),
            text(&format!("{}{note}{variables}", allocator.source)),
        )?;
    }
    Ok(())
}

/// Escapes text from outside, which may not end a cell or a line.
fn text(words: &str) -> String {
    larder_base::printable::escape(words).replace('|', "\\|")
}

fn emphasised(name: &str, emphasis: bool) -> String {
    if emphasis {
        format!("**{name}**")
    } else {
        name.to_owned()
    }
}

pub fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.2}"))
}

pub fn interval(estimate: Option<Estimate>) -> String {
    match estimate {
        Some(e) => format!("{:.2} [{:.2}–{:.2}]", e.ratio, e.low, e.high),
        None => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    fn rendered() -> String {
        let mut results = example(5);
        results.notes.push("Left out: a | b.".to_owned());
        render(&results, &Summary::of(&results))
    }

    #[track_caller]
    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|l| l == line),
            "no line {line:?} in\n{text}"
        );
    }

    #[test]
    fn every_figure_is_in_its_table() {
        let text = rendered();
        has(&text, "- Left out: a \\| b.");
        has(&text, "| 1 | glibc | 1.41 | 1.41 | 1.41 | 1.41 | 1.41 |");
        has(
            &text,
            "| 2 | **larder** | 1.73 | 1.73 | 1.73 | 1.73 | 1.73 |",
        );
        has(&text, "| 3 | peer †1 | 4.00 | 4.00 | 4.00 | 4.00 | 4.00 |");
        has(&text, "| slow | glibc | 0.50 [0.50–0.50] | 0.50 | 0.25 |");
        has(
            &text,
            "| crash | glibc | 3.00 [3.00–3.00] | 3.00 | failed |",
        );
        has(&text, "| **geometric mean** | | | **1.22** | **0.25** |");
        has(
            &text,
            "| slow | 0.100 (0.100) | 0.200 (0.200) | 0.400 (0.400) |",
        );
        has(&text, "| slow | 1.0 (1.0) | 2.0 (2.0) | 4.0 (4.0) |");
        has(&text, "| crash | peer | signal 11 (SIGSEGV) |");
        has(
            &text,
            "| time | glibc | 1.22 [1.22–1.22] | crash (glibc) | 3.00 [3.00–3.00] | 1 of 2 |",
        );
    }

    #[test]
    fn every_row_has_its_heads_columns() {
        let text = rendered();
        let mut columns = None;
        for line in text.lines() {
            if !line.starts_with('|') {
                columns = None;
                continue;
            }
            let count = line.replace("\\|", "").matches('|').count();
            assert_eq!(*columns.get_or_insert(count), count, "{line}");
        }
    }
}
