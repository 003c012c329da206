//! The lines above the sites, on the screen too, and the table for an interval.

use std::io::{self, Write};
use std::time::Duration;

use larder_base::number::{counted, grouped, percent};

use super::args::TopPlan;
use super::columns::{Column, signed};
use super::model::{Model, ThreadRow};
use super::view::View;
use crate::process::Size;
use crate::stats::KIND_LABELS;
use crate::terminal::table::{self, size};

pub fn print(model: &Model, plan: &TopPlan, view: &View, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", title(model))?;
    writeln!(out, "{}", memory(model))?;
    writeln!(out, "{}", profile(model))?;
    for line in notes(model) {
        writeln!(out, "{line}")?;
    }
    for kind in kinds(model) {
        writeln!(out, "  {kind}")?;
    }
    writeln!(out)?;
    if plan.threads {
        writeln!(out, "{}", threads_header())?;
        for line in thread_lines(model) {
            writeln!(out, "{line}")?;
        }
        return writeln!(out);
    }
    let rows = view.rows(model);
    writeln!(out, "{}", header(view))?;
    for row in rows.iter().take(plan.most_sites) {
        writeln!(out, "{}", line(|column| column.cell(row)))?;
    }
    if rows.len() > plan.most_sites {
        let more = (rows.len() - plan.most_sites) as u64;
        writeln!(out, "{} more", counted(more, "site"))?;
    }
    writeln!(out)
}

/// The cells of a row of sites.
pub fn line(cell: impl Fn(Column) -> String) -> String {
    Column::ALL.map(cell).join(table::GAP).trim_end().to_owned()
}

pub fn header(view: &View) -> String {
    line(|column| column.header(column == view.sort, view.reversed))
}

pub fn title(model: &Model) -> String {
    let snapshot = &model.snapshot;
    format!(
        "larder top: process {} ({}) on Larder {}, watched for {}, growth since {} ago",
        snapshot.process,
        snapshot.name,
        snapshot.library,
        clock(model.watched),
        clock(model.since_mark)
    )
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours}:{minutes:02}:{seconds:02}")
}

/// Bytes that the process has in memory: objects in use, the heap's waste, the rest.
pub fn parts(model: &Model) -> [u64; 3] {
    let snapshot = &model.snapshot;
    let in_use = snapshot.heap.kinds.first().map_or(0, |kind| kind.resident);
    let waste = snapshot.heap.resident().saturating_sub(in_use);
    [in_use, waste, snapshot.rest()]
}

pub fn memory(model: &Model) -> String {
    let rss = model.snapshot.memory.rss;
    let [in_use, waste, rest] = parts(model);
    let part = |bytes: u64| format!("{} ({:.0} %)", size(bytes as f64), percent(bytes, rss));
    format!(
        "RSS {}: in use {}, waste of the heap {}, beside the heap {}",
        size(rss as f64),
        part(in_use),
        part(waste),
        part(rest)
    )
}

pub fn profile(model: &Model) -> String {
    let (total, mean) = (&model.total, model.snapshot.sampled.mean);
    if mean == 0 && model.sites.is_empty() {
        return "Profile: off, so no sites: start it without LARDER_PROFILE_BYTES=0".to_owned();
    }
    let (low, high) = (size(total.interval.low), size(total.interval.high));
    let growth = &total.growth;
    let chance = match growth.bytes == 0.0 || growth.is_significant() {
        true => "",
        false => " (not significant)",
    };
    let rate = total.rate.map_or_else(|| "-".to_owned(), size);
    format!(
        "Profile: {} in use (95 %: {low}-{high}), growth {}{chance}, {rate}/s allocated, {} in use",
        size(total.in_use),
        signed(growth.bytes),
        counted(total.samples.round() as u64, "sample"),
    )
}

/// Reasons to doubt figures.
pub fn notes(model: &Model) -> Vec<String> {
    let mut notes = Vec::new();
    let heap = &model.snapshot.heap;
    if model.snapshot.memory.swapped > 0 {
        let swapped = size(model.snapshot.memory.swapped as f64);
        notes.push(format!("swapped out: {swapped}"));
    }
    if !heap.resident_known {
        notes.push(
            "more is mapped than this tool reads: the figures for memory are too low".to_owned(),
        );
    }
    if heap.unsound > 0 || model.left_out > 0 {
        notes.push(format!(
            "changed while they were read, and left out: {}, {}",
            counted(heap.unsound, "descriptor"),
            counted(model.left_out as u64, "site")
        ));
    }
    notes
}

/// The waste by kind: all kinds except objects in use.
pub fn kinds(model: &Model) -> Vec<String> {
    let kinds = KIND_LABELS.iter().zip(&model.snapshot.heap.kinds).skip(1);
    let line = |(label, kind): (&&str, &Size)| {
        let (resident, mapped) = (size(kind.resident as f64), size(kind.bytes as f64));
        format!("{label:18} {resident:>6} of {mapped:>6}")
    };
    kinds.map(line).collect()
}

pub fn threads_header() -> String {
    format!(
        "{:>8} {:>8} {:>8} {:>8} {:>10} {:>12}  HEAP OF",
        "IN USE", "FREE", "CACHED", "SLABS", "REFILLS/s", "REMOTE FREES"
    )
}

/// The threads' heaps, and the objects in use that are in none. They add up to all objects in use.
pub fn thread_lines(model: &Model) -> Vec<String> {
    let mut lines: Vec<String> = model.threads.iter().map(thread_line).collect();
    let heap = &model.snapshot.heap;
    for (bytes, what) in [
        (heap.in_no_heap(), "no thread: in full slabs"),
        (heap.in_large(), "no thread: larger objects"),
    ] {
        lines.push(format!("{:>8} {:53}{what}", size(bytes as f64), ""));
    }
    lines
}

fn thread_line(thread: &ThreadRow) -> String {
    let refills = thread.refills;
    format!(
        "{:>8} {:>8} {:>8} {:>8} {:>10} {:>12}  {}",
        size(thread.in_use as f64),
        size(thread.free as f64),
        size(thread.cached_spans as f64),
        grouped(thread.slabs),
        refills.map_or_else(|| "-".to_owned(), |rate| grouped(rate.round() as u64)),
        grouped(thread.remote_frees),
        thread.name
    )
}
