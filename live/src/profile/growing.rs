//! Sites that grow all the time: leaks, as opposed to caches, which fill and then stay.
//!
//! A site is named if it grew significantly in each of the intervals between the snapshots: the 95 %
//! interval of its growth lies above 0. A site that does not grow passes one interval with a probability
//! of up to 1/40, and n with up to 1/40^n. Memory grows with the stacks of all snapshots.

use larder_analysis::reading::sites::SiteId;
use larder_base::order;
use rustc_hash::FxHashMap;

use super::heap::HeapProfile;
use super::interval::{Growth, Level};
use super::sites::{Profiled, level};

pub struct Growing {
    /// Index in `Profiled::sites`.
    pub site: usize,
    /// Over all intervals.
    pub growth: Growth,
    pub each: Vec<Growth>,
}

/// The sites of the last snapshot that grew in every interval, the fastest first. REQUIRES: at least
/// two snapshots of one process.
pub fn growing<'a>(
    profiled: &mut Profiled,
    readings: impl Iterator<Item = &'a HeapProfile>,
) -> Vec<Growing> {
    let levels: Vec<FxHashMap<SiteId, Level>> = readings
        .map(|reading| {
            let sums = profiled.by_site(reading);
            sums.into_iter()
                .map(|(id, figures)| (id, level(&figures)))
                .collect()
        })
        .collect();
    let sites = profiled.sites.iter().enumerate();
    let mut found: Vec<Growing> = sites
        .filter_map(|(index, site)| {
            let at = |levels: &FxHashMap<SiteId, Level>| {
                levels.get(&site.id()).copied().unwrap_or_default()
            };
            let series: Vec<Level> = levels.iter().map(at).collect();
            Growing::of(index, &series)
        })
        .collect();
    order::sort_by(&mut found, |a, b| b.growth.bytes.total_cmp(&a.growth.bytes));
    found
}

impl Growing {
    /// `None`: there is an interval in which it did not grow.
    fn of(site: usize, series: &[Level]) -> Option<Self> {
        let each: Vec<Growth> = series
            .windows(2)
            .map(|pair| Growth::since(&pair[0], &pair[1]))
            .collect();
        let grew = each.iter().all(|growth| growth.interval.low > 0.0);
        (grew && !each.is_empty()).then(|| Self {
            site,
            growth: Growth::since(&series[0], &series[series.len() - 1]),
            each,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::Spread;
    use super::*;

    fn levels(samples: &[f64]) -> Vec<Level> {
        let level = |samples: &f64| Level {
            bytes: samples * 1e6,
            freed: 0.0,
            spread: Spread {
                variance: samples * 1e12,
                heaviest: 1e6,
                sampled_bytes: 0.0,
                samples: *samples,
            },
        };
        samples.iter().map(level).collect()
    }

    #[test]
    fn only_what_grows_in_each_interval_is_named() {
        let leak = Growing::of(7, &levels(&[3.0, 13.0, 24.0, 33.0])).unwrap();
        assert_eq!((leak.site, leak.each.len()), (7, 3));
        assert_eq!(leak.growth.bytes, 30e6);
        for (what, series) in [
            ("fills, then stays", &[0.0, 500.0, 900.0, 900.0][..]),
            ("was filled before", &[900.0, 900.0, 900.0, 900.0]),
            ("a sample at a time", &[0.0, 1.0, 2.0, 3.0]),
            ("goes up and down", &[100.0, 150.0, 90.0, 200.0]),
            ("shrinks", &[100.0, 80.0, 60.0, 40.0]),
            ("one reading", &[5.0]),
        ] {
            assert!(Growing::of(0, &levels(series)).is_none(), "{what}");
        }
    }
}
