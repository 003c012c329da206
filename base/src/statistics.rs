//! Medians, paired ratios and their confidence intervals, geometric means.
//!
//! Intervals are percentile bootstraps (Efron, 1979) at 95 %, with the caller's random generator: the same
//! seed and runs give the same intervals.

use fastrand::Rng;
use serde::Serialize;

const RESAMPLES: usize = 2000;
const CONFIDENCE: f64 = 0.95;

/// A ratio with its 95 % confidence interval: low ≤ ratio ≤ high.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// None of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The smallest; None of nothing.
pub fn fastest(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// None of nothing. All values must be positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    Some((sum / values.len() as f64).exp())
}

/// a / b for each round in which both have a figure.
pub fn paired_ratios(a: &[Option<f64>], b: &[Option<f64>]) -> Vec<f64> {
    let ratio = |(a, b): (&Option<f64>, &Option<f64>)| Some((*a)? / (*b)?);
    a.iter().zip(b).filter_map(ratio).collect()
}

/// The median of the ratios.
pub fn estimate(ratios: &[f64], random: &mut Rng) -> Option<Estimate> {
    let ratio = median(ratios)?;
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| median(&resample(ratios, random)))
        .collect();
    let (low, high) = interval(&mut resampled)?;
    Some(Estimate { ratio, low, high })
}

/// The geometric mean over the workloads of each one's median ratio. The rounds of each workload are
/// resampled, not the workloads: these are chosen, not drawn.
pub fn estimate_mean(workloads: &[Vec<f64>], random: &mut Rng) -> Option<Estimate> {
    let medians: Vec<f64> = workloads.iter().filter_map(|r| median(r)).collect();
    let ratio = geometric_mean(&medians)?;
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let medians: Vec<f64> = workloads
                .iter()
                .filter_map(|ratios| median(&resample(ratios, random)))
                .collect();
            geometric_mean(&medians)
        })
        .collect();
    let (low, high) = interval(&mut resampled)?;
    Some(Estimate { ratio, low, high })
}

fn resample(values: &[f64], random: &mut Rng) -> Vec<f64> {
    (0..values.len())
        .map(|_| values[random.usize(..values.len())])
        .collect()
}

/// The percentiles that leave out the same share on both sides.
fn interval(values: &mut [f64]) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)? as f64;
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let low = values[(last * tail).floor() as usize];
    let high = values[(last * (1.0 - tail)).ceil() as usize];
    Some((low, high))
}

/// The 95 % interval (Wilson's) of a share of which `samples` independent samples have shown `share`, 0 to 1.
/// Without samples it is everything.
pub fn share_interval(share: f64, samples: u64) -> (f64, f64) {
    const Z: f64 = 1.96;
    if samples == 0 {
        return (0.0, 1.0);
    }
    let n = samples as f64;
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let spread = share * (1.0 - share) / n + Z * Z / (4.0 * n * n);
    let half = Z * spread.sqrt() / (1.0 + Z * Z / n);
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_share_narrows_with_the_samples() {
        assert_eq!(share_interval(0.5, 0), (0.0, 1.0));
        // Newcombe (1998), table I: 81 of 263, and 0 of 20.
        let (low, high) = share_interval(81.0 / 263.0, 263);
        assert!((low - 0.2553).abs() < 1e-4 && (high - 0.3662).abs() < 1e-4);
        let (low, high) = share_interval(0.0, 20);
        assert!(low == 0.0 && (high - 0.1611).abs() < 1e-4);
        assert!(share_interval(1.0, 20).1 <= 1.0);
    }

    fn rng() -> Rng {
        Rng::with_seed(7)
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_ratio_and_its_inverse_cancel_in_the_geometric_mean() {
        assert!((geometric_mean(&[0.25, 4.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn pairs_are_of_the_same_round() {
        let a = [Some(1.0), None, Some(30.0), Some(8.0)];
        let b = [Some(2.0), Some(9.0), Some(10.0), None];
        assert_eq!(paired_ratios(&a, &b), [0.5, 3.0]);
    }

    #[test]
    fn pairing_takes_out_what_slows_a_whole_round() {
        let slow = [1.0, 7.0, 1.0, 3.0, 1.0];
        let a: Vec<_> = slow.iter().map(|s| Some(2.0 * s)).collect();
        let b: Vec<_> = slow.iter().map(|s| Some(4.0 * s)).collect();
        let found = estimate(&paired_ratios(&a, &b), &mut rng()).unwrap();
        assert_eq!((found.low, found.ratio, found.high), (0.5, 0.5, 0.5));
    }

    /// With n = 5 a resample's median is the least value when three of five draws are it, which
    /// happens more often than once in 40: the interval is the whole range.
    #[test]
    fn five_rounds_give_their_whole_range() {
        let found = estimate(&[1.0, 1.1, 1.2, 1.3, 1.4], &mut rng()).unwrap();
        assert_eq!((found.low, found.ratio, found.high), (1.0, 1.2, 1.4));
    }

    /// Known values: the 95 % interval of the median of 1..=99 by order statistics is 40 to 60.
    #[test]
    fn the_interval_of_a_large_sample_is_that_of_order_statistics() {
        let values: Vec<f64> = (1..=99).map(f64::from).collect();
        let found = estimate(&values, &mut rng()).unwrap();
        assert_eq!(found.ratio, 50.0);
        assert!((found.low - 40.0).abs() <= 2.0, "{found:?}");
        assert!((found.high - 60.0).abs() <= 2.0, "{found:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values: Vec<f64> = (0..9).map(|i| 1.0 + f64::from(i * i % 7)).collect();
        assert_eq!(estimate(&values, &mut rng()), estimate(&values, &mut rng()));
    }

    #[test]
    fn the_interval_of_a_mean_narrows_with_the_workloads() {
        let one: Vec<f64> = (0..9).map(|i| 0.9 + f64::from(i) * 0.025).collect();
        let width = |count: usize| {
            let found = estimate_mean(&vec![one.clone(); count], &mut rng()).unwrap();
            assert!((found.ratio - 1.0).abs() < 1e-9);
            found.high / found.low
        };
        assert!(width(25) < width(1).sqrt(), "{} {}", width(25), width(1));
    }

    #[test]
    fn a_mean_over_nothing_is_none() {
        assert_eq!(estimate_mean(&[], &mut rng()), None);
        assert_eq!(estimate(&[], &mut rng()), None);
    }
}
