//! The statistics as tables.

use std::io::{self, Write};

use larder_base::number::{grouped, percent};
use larder_base::order;

use super::{Snapshot, mib};
use crate::process::{Holder, KINDS, ThreadHeap};

/// Labels of the kinds, in the order of `KINDS`.
pub const KIND_LABELS: [&str; KINDS.len()] = [
    "in use",
    "free in slabs",
    "slabs, never used",
    "ends of slabs",
    "sampled objects",
    "spans cached",
    "page heap, dirty",
    "page heap, clean",
    "mappings cached",
    "descriptors",
];

pub fn print(snapshots: &[Snapshot], out: &mut dyn Write) -> io::Result<()> {
    for (i, snapshot) in snapshots.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        head(snapshot, out)?;
        kinds(snapshot, out)?;
        classes(snapshot, out)?;
        heaps(snapshot, out)?;
        counters(snapshot, out)?;
    }
    Ok(())
}

fn head(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let Snapshot {
        process,
        name,
        library,
        memory,
        ..
    } = snapshot;
    writeln!(out, "process {process} ({name}) on Larder {library}")?;
    writeln!(
        out,
        "{:.1} MiB in memory: {:.1} MiB of the heap, {:.1} MiB of the program, its libraries, stacks \
         and its own mappings",
        mib(memory.rss),
        mib(snapshot.heap.resident()),
        mib(snapshot.rest()),
    )?;
    if memory.swapped > 0 {
        writeln!(
            out,
            "{:.1} MiB of the process are swapped out",
            mib(memory.swapped)
        )?;
    }
    if !snapshot.heap.resident_known {
        writeln!(
            out,
            "the heap maps more than this tool reads: the figures for memory are too low"
        )?;
    }
    if snapshot.heap.unsound > 0 {
        let count = grouped(snapshot.heap.unsound);
        writeln!(
            out,
            "{count} descriptors changed while they were read, and are left out"
        )?;
    }
    Ok(())
}

fn kinds(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let heap = &snapshot.heap;
    writeln!(
        out,
        "\n{:20} {:>12} {:>12} {:>8}",
        "", "MiB mapped", "in memory", "of RSS"
    )?;
    let mut line = |label: &str, bytes: u64, resident: u64| {
        let share = percent(resident, snapshot.memory.rss);
        writeln!(
            out,
            "{label:20} {:>12.1} {:>12.1} {share:>7.1}%",
            mib(bytes),
            mib(resident)
        )
    };
    for (label, size) in KIND_LABELS.iter().zip(&heap.kinds) {
        line(label, size.bytes, size.resident)?;
    }
    line("heap", heap.mapped, heap.resident())?;
    writeln!(
        out,
        "objects have up to {:.1} MiB beyond what was requested; half of that is likely",
        mib(heap.rounding_most)
    )
}

fn classes(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let heap = &snapshot.heap;
    writeln!(
        out,
        "\n{:>9} {:>14} {:>12} {:>14} {:>9}",
        "size", "objects", "MiB", "free objects", "slabs"
    )?;
    for class in &heap.classes {
        writeln!(
            out,
            "{:>9} {:>14} {:>12.1} {:>14} {:>9}",
            grouped(class.size.into()),
            grouped(class.objects),
            mib(class.objects.saturating_mul(class.size.into())),
            grouped(class.free_objects),
            grouped(class.slabs),
        )?;
    }
    let large = heap.spans.saturating_add(heap.mappings);
    let of_large = mib(heap.in_large());
    writeln!(
        out,
        "{:>9} {:>14} {of_large:>12.1}",
        "larger",
        grouped(large)
    )
}

fn heaps(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut heaps: Vec<&ThreadHeap> = snapshot.heap.heaps.iter().collect();
    order::sort_by_key(&mut heaps, |heap| std::cmp::Reverse(heap.held()));
    writeln!(
        out,
        "\n{:24} {:>12} {:>12} {:>12}",
        "slabs of the heap of", "MiB in use", "free", "spans cached"
    )?;
    for heap in heaps {
        writeln!(
            out,
            "{:24} {:>12.1} {:>12.1} {:>12.1}",
            holder(heap),
            mib(heap.in_use),
            mib(heap.free),
            mib(heap.cached_spans)
        )?;
    }
    writeln!(
        out,
        "{:24} {:>12.1}",
        "no thread",
        mib(snapshot.heap.in_no_heap())
    )
}

/// Describes the thread whose heap it is.
pub fn holder(heap: &ThreadHeap) -> String {
    match heap.holder {
        Holder::Thread(Some(thread)) => format!("{thread} {}", heap.name),
        Holder::Thread(None) => "a thread".to_owned(),
        Holder::Waiting => "the next thread".to_owned(),
        Holder::Shared => "all other threads".to_owned(),
        Holder::Orphaned => "a thread that fork left behind".to_owned(),
    }
}

fn counters(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let (heap, sampled) = (&snapshot.heap, &snapshot.sampled);
    let calls: u64 = heap.calls.iter().sum();
    writeln!(
        out,
        "\nsince the start: {:.1} MiB mapped, {:.1} MiB purged, {:.1} MiB reused without \
         page faults, {} system calls",
        mib(heap.mapped_total),
        mib(heap.purged_total),
        mib(heap.reused_total),
        grouped(calls),
    )?;
    if sampled.mean == 0 {
        return writeln!(out, "profile: off");
    }
    writeln!(
        out,
        "profile: a sample in {} KiB; {} samples at {} stacks stand for {:.1} MiB in use",
        grouped(sampled.mean >> 10),
        grouped(sampled.samples),
        grouped(sampled.sites as u64),
        mib(sampled.in_use as u64),
    )
}
