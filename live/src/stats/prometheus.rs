//! The statistics in Prometheus's text format (0.0.4), under the names that the library uses for its
//! own. A process's number and name are labels.

use std::io::{self, Write};

use super::Snapshot;
use crate::process::{CALLS, Holder, KINDS, ThreadHeap};

#[derive(Clone, Copy)]
enum Type {
    Gauge,
    Counter,
}

/// A metric: the samples of each process, each with one more label, or an empty one.
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: Type,
    samples: fn(&Snapshot) -> Vec<(String, f64)>,
}

/// Maps an entry of `KINDS` to the label of the kind of free memory.
fn free_label(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "slab_free" => "slab",
        "slab_uncarved" => "uncarved",
        "slab_tail" => "tail",
        "heap_runs" => "heap_run",
        "page_heap_dirty" => "page_heap_dirty",
        "page_heap_clean" => "page_heap_clean",
        "kept_mappings" => "kept_mapping",
        _ => return None,
    })
}

fn one(value: impl Into<u64>) -> Vec<(String, f64)> {
    vec![(String::new(), value.into() as f64)]
}

fn kind(snapshot: &Snapshot, name: &str) -> u64 {
    let mut kinds = KINDS.iter().zip(&snapshot.heap.kinds);
    kinds
        .find(|(kind, _)| **kind == name)
        .map_or(0, |(_, size)| size.bytes)
}

fn over_heaps(snapshot: &Snapshot, value: fn(&ThreadHeap) -> u64) -> Vec<(String, f64)> {
    let values = snapshot.heap.heaps.iter().map(value);
    one(values.fold(0, u64::saturating_add))
}

fn by_class(snapshot: &Snapshot, value: fn(&crate::process::Class) -> u64) -> Vec<(String, f64)> {
    let classes = snapshot.heap.classes.iter();
    classes
        .map(|class| (format!("size=\"{}\"", class.size), value(class) as f64))
        .collect()
}

const METRICS: &[Metric] = &[
    Metric {
        name: "larder_in_use_bytes",
        help: "Bytes in live objects, each rounded up to its size class.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.heap.in_use()),
    },
    Metric {
        name: "larder_in_use_objects",
        help: "Live objects.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.heap.objects),
    },
    Metric {
        name: "larder_mapped_bytes",
        help: "Bytes mapped from the system now, including descriptors.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.heap.mapped),
    },
    Metric {
        name: "larder_held_bytes",
        help: "Mapped bytes that may be resident; the limits bound these.",
        kind: Type::Gauge,
        samples: |snapshot| {
            one(snapshot
                .heap
                .mapped
                .saturating_sub(kind(snapshot, "page_heap_clean")))
        },
    },
    Metric {
        name: "larder_limit_bytes",
        help: "Limits on larder_held_bytes; 0 is none.",
        kind: Type::Gauge,
        samples: |snapshot| {
            let limits = ["soft", "hard"].into_iter().zip(snapshot.heap.limits);
            limits
                .map(|(kind, bytes)| (format!("kind=\"{kind}\""), bytes as f64))
                .collect()
        },
    },
    Metric {
        name: "larder_resident_bytes",
        help: "Resident bytes of the heap, by kind.",
        kind: Type::Gauge,
        samples: |snapshot| {
            let kinds = KINDS.iter().zip(&snapshot.heap.kinds);
            kinds
                .map(|(kind, size)| (format!("kind=\"{kind}\""), size.resident as f64))
                .collect()
        },
    },
    Metric {
        name: "larder_free_bytes",
        help: "Bytes mapped for objects and free, by kind.",
        kind: Type::Gauge,
        samples: |snapshot| {
            let kinds = KINDS.iter().zip(&snapshot.heap.kinds);
            let free = kinds.filter_map(|(kind, size)| Some((free_label(kind)?, size.bytes)));
            free.map(|(kind, bytes)| (format!("kind=\"{kind}\""), bytes as f64))
                .collect()
        },
    },
    Metric {
        name: "larder_metadata_bytes",
        help: "Bytes of descriptors and the page map.",
        kind: Type::Gauge,
        samples: |snapshot| one(kind(snapshot, "metadata")),
    },
    Metric {
        name: "larder_class_objects",
        help: "Live objects, by size class.",
        kind: Type::Gauge,
        samples: |snapshot| by_class(snapshot, |class| class.objects),
    },
    Metric {
        name: "larder_class_slabs",
        help: "Slabs, by size class.",
        kind: Type::Gauge,
        samples: |snapshot| by_class(snapshot, |class| class.slabs),
    },
    Metric {
        name: "larder_class_free_bytes",
        help: "Bytes in free objects of slabs, by size class.",
        kind: Type::Gauge,
        samples: |snapshot| by_class(snapshot, |class| class.free_objects * u64::from(class.size)),
    },
    Metric {
        name: "larder_large_objects",
        help: "Live objects larger than 64 KiB.",
        kind: Type::Gauge,
        samples: |snapshot| {
            vec![
                ("kind=\"run\"".to_owned(), snapshot.heap.spans as f64),
                ("kind=\"mapping\"".to_owned(), snapshot.heap.mappings as f64),
            ]
        },
    },
    Metric {
        name: "larder_thread_heaps",
        help: "Thread heaps, by state.",
        kind: Type::Gauge,
        samples: thread_heaps,
    },
    Metric {
        name: "larder_sampled_mean_bytes",
        help: "Mean allocated bytes between two samples of the heap profile; 0 is off.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.sampled.mean),
    },
    Metric {
        name: "larder_sampled_sites",
        help: "Sites in the heap profile.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.sampled.sites as u64),
    },
    Metric {
        name: "larder_sampled_in_use_bytes",
        help: "Estimated bytes in use, from the heap profile.",
        kind: Type::Gauge,
        samples: |snapshot| vec![(String::new(), snapshot.sampled.in_use)],
    },
    Metric {
        name: "larder_sampled_in_use_samples",
        help: "Live samples of the heap profile.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.sampled.samples),
    },
    Metric {
        name: "larder_sampled_allocated_bytes_total",
        help: "Estimated bytes allocated since the start, from the heap profile.",
        kind: Type::Counter,
        samples: |snapshot| vec![(String::new(), snapshot.sampled.allocated)],
    },
    Metric {
        name: "larder_purged_bytes_total",
        help: "Bytes returned to the system by madvise.",
        kind: Type::Counter,
        samples: |snapshot| one(snapshot.heap.purged_total),
    },
    Metric {
        name: "larder_mapped_bytes_total",
        help: "Bytes mapped from the system since the start.",
        kind: Type::Counter,
        samples: |snapshot| one(snapshot.heap.mapped_total),
    },
    Metric {
        name: "larder_system_calls_total",
        help: "System calls for memory, by call.",
        kind: Type::Counter,
        samples: |snapshot| {
            let calls = CALLS.iter().zip(snapshot.heap.calls);
            calls
                .map(|(call, count)| (format!("call=\"{call}\""), count as f64))
                .collect()
        },
    },
    Metric {
        name: "larder_reused_bytes_total",
        help: "Bytes of free memory that were reused while they may have been resident, which avoids page faults.",
        kind: Type::Counter,
        samples: |snapshot| one(snapshot.heap.reused_total),
    },
    Metric {
        name: "larder_realloc_copied_bytes_total",
        help: "Bytes that realloc copied, of objects larger than 64 KiB.",
        kind: Type::Counter,
        samples: |snapshot| one(snapshot.heap.realloc_copied),
    },
    Metric {
        name: "larder_refills_total",
        help: "Calls of malloc that took its slow path.",
        kind: Type::Counter,
        samples: |snapshot| over_heaps(snapshot, |heap| heap.refills),
    },
    Metric {
        name: "larder_fresh_slabs_total",
        help: "Slabs taken from the page heap.",
        kind: Type::Counter,
        samples: |snapshot| over_heaps(snapshot, |heap| heap.fresh_slabs),
    },
    Metric {
        name: "larder_remote_frees_total",
        help: "Objects freed by a thread that does not own their slab.",
        kind: Type::Counter,
        samples: |snapshot| over_heaps(snapshot, |heap| heap.remote_frees),
    },
    Metric {
        name: "larder_process_resident_bytes",
        help: "Resident bytes of the whole process.",
        kind: Type::Gauge,
        samples: |snapshot| one(snapshot.memory.rss),
    },
    Metric {
        name: "larder_build_info",
        help: "The version of the library, as a label.",
        kind: Type::Gauge,
        samples: |snapshot| vec![(format!("version=\"{}\"", value(&snapshot.library)), 1.0)],
    },
];

fn thread_heaps(snapshot: &Snapshot) -> Vec<(String, f64)> {
    let states = ["assigned", "waiting", "shared", "dead"];
    let state = |holder: Holder| match holder {
        Holder::Thread(_) => 0,
        Holder::Waiting => 1,
        Holder::Shared => 2,
        Holder::Orphaned => 3,
    };
    let mut counts = [0.0; 4];
    for heap in &snapshot.heap.heaps {
        counts[state(heap.holder)] += 1.0;
    }
    states
        .iter()
        .zip(counts)
        .map(|(name, count)| (format!("state=\"{name}\""), count))
        .collect()
}

/// The labels of each figure that identify the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// Its number and name.
    Process,
    /// None: there is one process.
    None,
}

pub fn print(snapshots: &[Snapshot], labels: Labels, out: &mut dyn Write) -> io::Result<()> {
    for metric in METRICS {
        let Metric {
            name, help, kind, ..
        } = metric;
        let kind = match kind {
            Type::Gauge => "gauge",
            Type::Counter => "counter",
        };
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
        for snapshot in snapshots {
            let own = match labels {
                Labels::Process => {
                    format!(
                        "pid=\"{}\",comm=\"{}\"",
                        snapshot.process,
                        value(&snapshot.name)
                    )
                }
                Labels::None => String::new(),
            };
            for (label, value) in (metric.samples)(snapshot) {
                match (own.as_str(), label.as_str()) {
                    ("", "") => writeln!(out, "{name} {value}")?,
                    ("", one) | (one, "") => writeln!(out, "{name}{{{one}}} {value}")?,
                    (own, label) => writeln!(out, "{name}{{{own},{label}}} {value}")?,
                }
            }
        }
    }
    Ok(())
}

/// A label's value. The name comes from outside; its control characters are escaped already.
fn value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_label() {
        assert_eq!(value("a\"} 1\\n"), "a\\\"} 1\\\\n");
    }

    #[test]
    fn counters_are_named_as_such_and_nothing_else_is() {
        for metric in METRICS {
            let is_counter = matches!(metric.kind, Type::Counter);
            assert_eq!(
                metric.name.ends_with("_total"),
                is_counter,
                "{}",
                metric.name
            );
        }
    }
}
