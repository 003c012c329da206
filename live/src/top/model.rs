//! What is shown of a process at one time. Nothing here reads or draws.

use std::time::Duration;

use larder_analysis::reading::naming::{site_name, site_place};
use larder_analysis::reading::sites::SiteId;
use larder_base::order;
use rustc_hash::FxHashMap;

use crate::process::{Holder, ThreadHeap};
use crate::profile::{Growth, Interval, Profiled, ProfiledSite};
use crate::stats::{Snapshot, holder};

pub struct Model {
    pub snapshot: Snapshot,
    /// Since the first snapshot, and since the mark.
    pub watched: Duration,
    pub since_mark: Duration,
    /// All sites together.
    pub total: SiteRow,
    /// In no order.
    pub sites: Vec<SiteRow>,
    /// In descending order of what they hold.
    pub threads: Vec<ThreadRow>,
    /// Sites that were left out because they changed while they were read.
    pub left_out: usize,
}

/// Estimated bytes, except where a name has another unit.
#[derive(Clone, Debug)]
pub struct SiteRow {
    pub id: SiteId,
    /// Printable, both.
    pub name: String,
    pub place: String,
    pub in_use: f64,
    /// Of `in_use`, 95 %.
    pub interval: Interval,
    /// Since the mark.
    pub growth: Growth,
    /// Allocated in a second since the previous snapshot; none at the first.
    pub rate: Option<f64>,
    pub objects: f64,
    pub samples: f64,
}

#[derive(Clone, Debug)]
pub struct ThreadRow {
    /// Printable.
    pub name: String,
    pub in_use: u64,
    pub free: u64,
    pub cached_spans: u64,
    pub slabs: u64,
    /// Entries into malloc's slow path in a second; none for a thread that the previous snapshot lacks.
    pub refills: Option<f64>,
    /// Since the heap was made.
    pub remote_frees: u64,
}

/// The part of a snapshot that the next one needs.
#[derive(Default)]
pub struct Counters {
    /// Bytes allocated since the start by all, and by site.
    allocated: f64,
    by_site: FxHashMap<SiteId, f64>,
    refills: FxHashMap<u32, u64>,
}

impl Counters {
    pub fn of(profiled: &Profiled, snapshot: &Snapshot) -> Self {
        let sites = profiled.sites.iter();
        let by_site: FxHashMap<SiteId, f64> = sites
            .map(|site| (site.id(), profiled.allocated_so_far(site)))
            .collect();
        let heaps = snapshot.heap.heaps.iter();
        Self {
            allocated: by_site.values().sum(),
            by_site,
            refills: heaps
                .filter_map(|heap| Some((thread(heap)?, heap.refills)))
                .collect(),
        }
    }
}

/// The previous counters, and how many seconds ago that was.
pub type Before<'a> = Option<(&'a Counters, f64)>;

pub fn sites(profiled: &Profiled, before: Before<'_>, now: &Counters) -> Vec<SiteRow> {
    let sites = profiled.sites.iter();
    let rows = sites.map(|site| site_row(profiled, site, before, now));
    // Samples that were freed long ago do not count.
    rows.filter(|row| row.in_use > 0.0 || row.growth.bytes != 0.0 || row.rate > Some(0.0))
        .collect()
}

fn site_row(
    profiled: &Profiled,
    site: &ProfiledSite,
    before: Before<'_>,
    now: &Counters,
) -> SiteRow {
    let (figures, named) = (&site.figures, profiled.named(site));
    let allocated = |counters: &Counters| counters.by_site.get(&site.id()).copied().unwrap_or(0.0);
    SiteRow {
        id: site.id(),
        name: site_name(named),
        place: site_place(named),
        in_use: figures.in_use.bytes,
        interval: figures.spread.interval(figures.in_use.bytes),
        growth: site.growth,
        rate: before.map(|(before, seconds)| rate(allocated(before), allocated(now), seconds)),
        objects: figures.in_use.objects,
        samples: figures.spread.samples,
    }
}

pub fn total(profiled: &Profiled, before: Before<'_>, now: &Counters) -> SiteRow {
    let total = &profiled.total;
    SiteRow {
        id: SiteId(usize::MAX),
        name: "all".to_owned(),
        place: String::new(),
        in_use: total.in_use.bytes,
        interval: total.spread.interval(total.in_use.bytes),
        growth: profiled.total_growth,
        rate: before.map(|(before, seconds)| rate(before.allocated, now.allocated, seconds)),
        objects: total.in_use.objects,
        samples: total.spread.samples,
    }
}

pub fn threads(snapshot: &Snapshot, before: Before<'_>) -> Vec<ThreadRow> {
    let mut heaps: Vec<&ThreadHeap> = snapshot.heap.heaps.iter().collect();
    order::sort_by_key(&mut heaps, |heap| std::cmp::Reverse(heap.held()));
    let row = |heap: &ThreadHeap| ThreadRow {
        name: holder(heap),
        in_use: heap.in_use,
        free: heap.free,
        cached_spans: heap.cached_spans,
        slabs: heap.slabs,
        refills: before.and_then(|(counters, seconds)| {
            let before = counters.refills.get(&thread(heap)?)?;
            Some(rate(*before as f64, heap.refills as f64, seconds))
        }),
        remote_frees: heap.remote_frees,
    };
    heaps.into_iter().map(row).collect()
}

fn thread(heap: &ThreadHeap) -> Option<u32> {
    match heap.holder {
        Holder::Thread(thread) => thread,
        _ => None,
    }
}

fn rate(before: f64, now: f64, seconds: f64) -> f64 {
    (now - before).max(0.0) / seconds.max(1e-3)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::process::{Heap, KINDS, Size};
    use crate::stats::{Memory, Sampled};
    use larder_analysis::reading::resolve::Charging;

    pub fn site(id: usize, name: &str, in_use: f64, growth: f64) -> SiteRow {
        SiteRow {
            id: SiteId(id),
            name: name.to_owned(),
            place: format!("src/{name}.c:{id}"),
            in_use,
            interval: Interval {
                low: in_use * 0.9,
                high: in_use * 1.1,
            },
            growth: Growth {
                bytes: growth,
                interval: Interval {
                    low: growth * 0.5,
                    high: growth * 1.5,
                },
            },
            rate: Some(growth / 2.0),
            objects: in_use / 64.0,
            samples: in_use / 524_288.0,
        }
    }

    pub fn heap(thread: u32, in_use: u64, refills: u64) -> ThreadHeap {
        ThreadHeap {
            holder: Holder::Thread(Some(thread)),
            name: "worker".to_owned(),
            in_use,
            free: 1 << 20,
            cached_spans: 0,
            slabs: 3,
            refills,
            fresh_slabs: 1,
            remote_frees: 5,
        }
    }

    pub fn snapshot(heaps: Vec<ThreadHeap>) -> Snapshot {
        let mut kinds = [Size::default(); KINDS.len()];
        kinds[0] = Size {
            bytes: 64 << 20,
            resident: 60 << 20,
        };
        kinds[1] = Size {
            bytes: 30 << 20,
            resident: 20 << 20,
        };
        Snapshot {
            process: 4711,
            name: "server".to_owned(),
            library: "0.1.0".to_owned(),
            memory: Memory {
                rss: 100 << 20,
                anonymous: 90 << 20,
                swapped: 0,
            },
            heap: Heap {
                kinds,
                heaps,
                mapped: 94 << 20,
                resident_known: true,
                ..Heap::default()
            },
            sampled: Sampled {
                mean: 512 << 10,
                sites: 3,
                samples: 120,
                in_use: 6e7,
                allocated: 9e9,
            },
        }
    }

    pub fn model(sites: Vec<SiteRow>) -> Model {
        let snapshot = snapshot(vec![heap(4711, 40 << 20, 100), heap(4712, 50 << 20, 0)]);
        Model {
            threads: threads(&snapshot, None),
            snapshot,
            watched: Duration::from_secs(83),
            since_mark: Duration::from_secs(40),
            total: site(usize::MAX, "all", 6e7, 1e6),
            sites,
            left_out: 0,
        }
    }

    #[test]
    fn rates_are_of_threads_that_were_there_before() {
        let before = Counters::of(
            &Profiled::charging(Charging::default()),
            &snapshot(vec![heap(1, 5, 100), heap(2, 9, 7)]),
        );
        let now = snapshot(vec![heap(2, 9, 27), heap(3, 10, 5), heap(1, 5, 100)]);
        let rows = threads(&now, Some((&before, 2.0)));
        let seen: Vec<_> = rows.iter().map(|row| (row.in_use, row.refills)).collect();
        assert_eq!(seen, [(10, None), (9, Some(10.0)), (5, Some(0.0))]);
        assert_eq!(threads(&now, None)[1].refills, None);
    }

    #[test]
    fn a_counter_that_went_back_is_no_rate() {
        assert_eq!(rate(5.0, 3.0, 1.0), 0.0);
        assert!(rate(0.0, 3.0, 0.0).is_finite());
    }
}
