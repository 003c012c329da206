//! The statistics as JSON.

use std::io::{self, Write};

use larder_base::output;
use serde_json::{Map, Value, json};

use super::Snapshot;
use crate::process::{CALLS, Holder, KINDS, ThreadHeap};

pub fn print(snapshots: &[Snapshot], out: &mut dyn Write) -> io::Result<()> {
    let value = match snapshots {
        [one] => of(one),
        several => several.iter().map(of).collect(),
    };
    output::write_json(&value, out)
}

fn of(snapshot: &Snapshot) -> Value {
    let (heap, memory, sampled) = (&snapshot.heap, &snapshot.memory, &snapshot.sampled);
    let kinds: Map<String, Value> = KINDS
        .iter()
        .zip(&heap.kinds)
        .map(|(name, size)| {
            (
                (*name).to_owned(),
                json!({"bytes": size.bytes, "resident": size.resident}),
            )
        })
        .collect();
    let calls: Map<String, Value> = CALLS
        .iter()
        .zip(heap.calls)
        .map(|(name, count)| ((*name).to_owned(), count.into()))
        .collect();
    let classes = heap.classes.iter().map(|class| {
        json!({
            "size": class.size,
            "objects": class.objects,
            "slabs": class.slabs,
            "free_objects": class.free_objects,
        })
    });
    json!({
        "process": snapshot.process,
        "name": snapshot.name,
        "library": snapshot.library,
        "rss": memory.rss,
        "anonymous": memory.anonymous,
        "swapped": memory.swapped,
        "mapped": heap.mapped,
        "resident": heap.resident(),
        "resident_known": heap.resident_known,
        "kinds": kinds,
        "objects": heap.objects,
        "slabs": heap.slabs,
        "runs": heap.spans,
        "mappings": heap.mappings,
        "rounding_most": heap.rounding_most,
        "mapped_total": heap.mapped_total,
        "purged_total": heap.purged_total,
        "reused_total": heap.reused_total,
        "realloc_copied_bytes": heap.realloc_copied,
        "system_calls": calls,
        "sample_mean": sampled.mean,
        "sites": sampled.sites,
        "samples": sampled.samples,
        "sampled_in_use": sampled.in_use,
        "sampled_allocated": sampled.allocated,
        "unsound": heap.unsound,
        "classes": classes.collect::<Value>(),
        "heaps": heap.heaps.iter().map(of_heap).collect::<Value>(),
    })
}

fn of_heap(heap: &ThreadHeap) -> Value {
    let (state, thread) = match heap.holder {
        Holder::Thread(thread) => ("thread", thread),
        Holder::Waiting => ("waiting", None),
        Holder::Shared => ("shared", None),
        Holder::Orphaned => ("dead", None),
    };
    json!({
        "state": state,
        "thread": thread,
        "name": heap.name,
        "in_use": heap.in_use,
        "free": heap.free,
        "kept_runs": heap.cached_spans,
        "slabs": heap.slabs,
        "refills": heap.refills,
        "fresh_slabs": heap.fresh_slabs,
        "remote_frees": heap.remote_frees,
    })
}
