//! The report of a replay: a table, notes, a plot, and the data behind them. Computes nothing.

use larder_base::number::grouped;
use serde_json::json;

use super::Process;
use super::args::{Measurement, Touch};
use super::compile::Totals;
use super::figures::{Figure, Median, dry_seconds};
use super::session::Runs;
use crate::bench::allocators::Allocator;
use crate::instruments::output::{self, Report, Table};
use crate::instruments::plot::{self, Axis, Line, Scale};

const KIB_PER_MIB: f64 = 1024.0;

#[expect(
    clippy::too_many_arguments,
    reason = "what a report is of, and what it says"
)]
pub fn report(
    measurement: &Measurement,
    touch: Touch,
    process: &Process,
    totals: &Totals,
    allocators: Vec<Allocator>,
    notes: Vec<String>,
    runs: &Runs,
    figures: &[Figure],
) -> Report {
    Report {
        name: "replay",
        title: "A recorded program's calls on other allocators",
        method: format!(
            "`{}`, process {}; {}; each page of a block written to once: {}; median of {} \
             interleaved rounds, a fresh process each;",
            process.command,
            process.pid,
            calls(totals),
            match touch {
                Touch::All => "yes",
                Touch::Edges => "its first and last byte only",
                Touch::None => "no",
            },
            measurement.rounds
        ),
        tables: vec![table(figures)],
        notes,
        plots: vec![("replay.svg".to_owned(), draw(figures))],
        data: json!({
            "pid": process.pid,
            "image": process.image,
            "command": process.command,
            "rounds": measurement.rounds,
            "touch": touch.name(),
            "calls": totals,
            "replay_alone_seconds": dry_seconds(runs),
            "replay_alone_kib": runs.own_kib,
            "figures": figures,
            "failures": runs.failures.iter().map(|(index, cause)| json!({
                "allocator": allocators.get(*index).map(|a| &a.name),
                "cause": cause,
            })).collect::<Vec<_>>(),
        }),
        allocators,
    }
}

fn calls(totals: &Totals) -> String {
    let count = grouped;
    format!(
        "{} allocations, {} reallocs, {} frees of {} threads, {} MiB live at the peak",
        count(totals.makes),
        count(totals.reallocs),
        count(totals.frees),
        count(totals.threads),
        mib(totals.peak_live_bytes as f64 / 1024.0)
    )
}

fn mib(kib: f64) -> String {
    output::figure(kib / KIB_PER_MIB)
}

fn table(figures: &[Figure]) -> Table {
    let header = [
        "allocator",
        "time, s",
        "95 %",
        "× fastest",
        "CPU, s",
        "peak RSS, MiB",
        "95 %",
        "fragmentation",
        "RSS at the end, MiB",
    ];
    let mut table = Table::new(
        "Time and memory of the calls alone",
        header.map(str::to_owned),
    );
    let fastest = figures.first().map(|figure| figure.seconds.median);
    let interval =
        |of: &Median, show: &dyn Fn(f64) -> String| format!("{}–{}", show(of.low), show(of.high));
    for figure in figures {
        table.push([
            figure.allocator.clone(),
            seconds(figure.seconds.median),
            interval(&figure.seconds, &seconds),
            output::optional(fastest.map(|f| figure.seconds.median / f), output::figure),
            seconds(figure.cpu_seconds.median),
            mib(figure.peak_kib.median),
            interval(&figure.peak_kib, &mib),
            output::optional(figure.fragmentation, output::figure),
            mib(figure.end_kib.median),
        ]);
    }
    table
}

/// Four digits, because the runs of a small trace take a millisecond.
fn seconds(value: f64) -> String {
    match value {
        value if value >= 10.0 => output::figure(value),
        value if value >= 0.1 => format!("{value:.3}"),
        value => format!("{value:.5}"),
    }
}

/// Notes on the limits of the figures.
pub fn notes(
    process: &Process,
    totals: &Totals,
    allocators: &[Allocator],
    runs: &Runs,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, cause) in &runs.failures {
        let name = allocators.get(*index).map_or("", |a| a.name.as_str());
        notes.push(format!("{name} failed: {cause}."));
    }
    notes.extend(process.unreadable.iter().cloned());
    if process.images > 1 {
        notes.push(format!(
            "The trace has {} process images; this is the one with most calls, unless --pid chose \
             it. Each is a replay of its own.",
            process.images
        ));
    }
    if let Some(alone) = dry_seconds(runs) {
        notes.push(format!(
            "{} s of each time are the replay's own: so long it takes without a call of malloc and \
             without a write.",
            seconds(alone)
        ));
    }
    let left_out = [
        (totals.failed, "calls that failed"),
        (totals.null_frees, "frees of NULL"),
        (
            totals.unknown_frees,
            "frees of blocks whose allocation is not in the trace",
        ),
        (totals.lost, "calls that the trace has lost"),
    ];
    let left_out: Vec<String> = left_out
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    if !left_out.is_empty() {
        notes.push(format!("Left out: {}.", left_out.join(", ")));
    }
    if totals.most_threads > 1 {
        notes.push(format!(
            "Up to {} threads lived at the same time.",
            grouped(totals.most_threads)
        ));
    }
    if !runs.runs.values().flatten().all(|run| run.peak_is_exact) {
        notes.push(
            "/proc/self/clear_refs cannot be written to here: the peak includes the replay's start."
                .to_owned(),
        );
    }
    notes
}

fn draw(figures: &[Figure]) -> String {
    let line = |figure: &Figure| Line {
        name: figure.allocator.clone(),
        points: vec![(
            figure.seconds.median * 1e3,
            figure.peak_kib.median / KIB_PER_MIB,
        )],
    };
    let lines: Vec<Line> = figures.iter().map(line).collect();
    let x = Axis {
        label: "time, ms",
        scale: Scale::Linear,
    };
    let y = Axis {
        label: "peak RSS, MiB",
        scale: Scale::Linear,
    };
    plot::lines(
        "A recorded program's calls: nearer to the corner is better",
        &x,
        &y,
        &lines,
    )
}
