//! Summarises the runs: medians with their 95 % confidence intervals, by allocator.

use fastrand::Rng;
use larder_base::order;
use larder_base::statistics::{Estimate, estimate, median};
use serde::Serialize;

use super::session::{Run, Runs};
use crate::bench::allocators::Allocator;

/// Seed of the intervals: the same runs give the same ones.
const SEED: u64 = 1;

/// A median and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Median {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// One allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub allocator: String,
    pub seconds: Median,
    pub cpu_seconds: Median,
    /// Resident memory, without the replay's own.
    pub peak_kib: Median,
    pub end_kib: Median,
    /// Peak resident memory / peak of live bytes; None if nothing was live.
    pub fragmentation: Option<f64>,
    pub runs: Vec<Run>,
}

/// The measured allocators, the fastest first.
pub fn figures(allocators: &[Allocator], runs: &Runs, peak_live_bytes: u64) -> Vec<Figure> {
    let mut random = Rng::with_seed(SEED);
    let mut figures: Vec<Figure> = runs
        .runs
        .iter()
        .filter_map(|(index, list)| {
            let mut of = |value: &dyn Fn(&Run) -> f64| {
                let values: Vec<f64> = list.iter().map(value).collect();
                estimate(&values, &mut random).map(Median::from)
            };
            let peak_kib = of(&|run| run.peak_kib - runs.own_kib)?;
            Some(Figure {
                allocator: allocators.get(*index)?.name.clone(),
                seconds: of(&|run| run.seconds)?,
                cpu_seconds: of(&|run| run.cpu_seconds)?,
                end_kib: of(&|run| run.end_kib - runs.own_kib)?,
                fragmentation: (peak_live_bytes > 0)
                    .then(|| peak_kib.median * 1024.0 / peak_live_bytes as f64),
                peak_kib,
                runs: list.clone(),
            })
        })
        .collect();
    order::sort_by(&mut figures, |a, b| {
        a.seconds.median.total_cmp(&b.seconds.median)
    });
    figures
}

/// Seconds of the replay without any call.
pub fn dry_seconds(runs: &Runs) -> Option<f64> {
    median(&runs.dry_seconds)
}

impl From<Estimate> for Median {
    fn from(estimate: Estimate) -> Median {
        Median {
            median: estimate.ratio,
            low: estimate.low,
            high: estimate.high,
        }
    }
}
