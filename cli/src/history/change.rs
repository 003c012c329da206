//! Where a figure moved.
//!
//! Counts are exact, so every run whose count differs from that of the run before is a change. Times are
//! noisy: at each run, up to `WINDOW` runs before it are compared with as many from it on, by the
//! Mann–Whitney test, which needs only their order. Every such place is a chance for a false alarm, so
//! the level is divided by their number: fewer than `LEVEL` of all series without a change give one. Of
//! places close together the clearest counts. The change is placed where the runs around it lie closest
//! to the medians of their sides.
//!
//! Time: runs × WINDOW². Memory: the series.

use larder_base::statistics;

/// Runs on each side.
const WINDOW: usize = 20;
/// With fewer on a side no change of times is reported: no order of so few is rare enough.
const LEAST: usize = 8;
const LEVEL: f64 = 0.01;
/// Smaller changes are not reported, however certain they are.
const LEAST_MOVE: f64 = 0.02;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The first run after it.
    pub at: usize,
    /// Of times, medians.
    pub before: f64,
    pub after: f64,
}

/// Of counts.
pub fn of_counts(values: &[u64]) -> Vec<Change> {
    let pairs = values.iter().zip(values.iter().skip(1));
    pairs
        .enumerate()
        .filter(|(_, (before, after))| before != after)
        .map(|(index, (before, after))| Change {
            at: index + 1,
            before: *before as f64,
            after: *after as f64,
        })
        .collect()
}

/// Of times.
pub fn of_times(values: &[f64]) -> Vec<Change> {
    let places = (values.len() + 1).saturating_sub(2 * LEAST);
    if places == 0 {
        return Vec::new();
    }
    let level = LEVEL / places as f64;
    let mut found: Vec<(f64, Change)> = Vec::new();
    for at in LEAST..=values.len() - LEAST {
        let before = &values[at.saturating_sub(WINDOW)..at];
        let after = &values[at..values.len().min(at + WINDOW)];
        let change = Change {
            at,
            before: median(before),
            after: median(after),
        };
        let moved = (change.after - change.before).abs() >= LEAST_MOVE * change.before.abs();
        if !moved {
            continue;
        }
        let probability = mann_whitney(before, after);
        if probability >= level {
            continue;
        }
        // Several places around a step pass the level: the least probable one is the step.
        match found.last_mut() {
            Some((best, last)) if at - last.at < WINDOW => {
                if probability < *best {
                    (*best, *last) = (probability, change);
                }
            }
            _ => found.push((probability, change)),
        }
    }
    let found = found.into_iter();
    found.map(|(_, change)| located(values, change)).collect()
}

/// The change at the place where it fits best.
fn located(values: &[f64], change: Change) -> Change {
    let start = change.at.saturating_sub(WINDOW);
    let around = &values[start..values.len().min(change.at + WINDOW)];
    let distance = |side: &[f64]| {
        let middle = median(side);
        side.iter().map(|value| (value - middle).abs()).sum::<f64>()
    };
    let cost = |at: &usize| distance(&around[..*at]) + distance(&around[*at..]);
    let best = (1..around.len()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
    best.map_or(change, |at| Change {
        at: start + at,
        before: median(&around[..at]),
        after: median(&around[at..]),
    })
}

fn median(values: &[f64]) -> f64 {
    statistics::median(values).unwrap_or(0.0)
}

/// The two-sided probability that two samples of one distribution are in this order or a rarer one.
/// Exact, by counting orders; ties count as halves and are rounded towards no change.
fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let twice: u32 = pairs
        .map(|(x, y)| match x.total_cmp(y) {
            std::cmp::Ordering::Less => 2,
            std::cmp::Ordering::Equal => 1,
            std::cmp::Ordering::Greater => 0,
        })
        .sum();
    let most = a.len() * b.len();
    let twice = twice as usize;
    let extreme = twice.min(2 * most - twice).div_ceil(2);
    let counts = orders(a.len(), b.len());
    let all: f64 = counts.iter().sum();
    let rarer: f64 = counts.iter().take(extreme + 1).sum();
    (2.0 * rarer / all).min(1.0)
}

/// The number of orders of two samples for each value of the statistic U: the coefficients of the
/// Gaussian binomial, multiplied up one factor at a time.
fn orders(a: usize, b: usize) -> Vec<f64> {
    let mut counts = vec![0.0; a * b + 1];
    counts[0] = 1.0;
    for i in 1..=a {
        // Times 1 - q^(b + i), then divided by 1 - q^i.
        for at in (b + i..counts.len()).rev() {
            counts[at] -= counts[at - b - i];
        }
        for at in i..counts.len() {
            counts[at] += counts[at - i];
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal, with a rare slow run, as on a real machine.
    fn noise(random: &mut fastrand::Rng) -> f64 {
        let sum: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let hiccup = if random.u8(..20) == 0 { 0.5 } else { 0.0 };
        1.0 + 0.03 * sum + hiccup
    }

    fn places(changes: &[Change]) -> Vec<usize> {
        changes.iter().map(|change| change.at).collect()
    }

    #[test]
    fn any_change_of_a_count_is_one() {
        assert_eq!(places(&of_counts(&[5, 5, 6, 6, 5])), [2, 4]);
        assert_eq!(of_counts(&[]), []);
        assert_eq!(of_counts(&[5]), []);
    }

    #[test]
    fn orders_are_counted_right() {
        assert_eq!(orders(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(orders(3, 4).iter().sum::<f64>(), 35.0);
        assert_eq!(orders(12, 12).iter().sum::<f64>(), 2_704_156.0);
        assert_eq!(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        assert_eq!(mann_whitney(&[1.0; 9], &[1.0; 9]), 1.0);
    }

    #[test]
    fn noise_alone_is_seldom_taken_for_a_change() {
        let mut random = fastrand::Rng::with_seed(7);
        let series = 2000;
        let alarms = (0..series)
            .filter(|_| {
                let values: Vec<f64> = (0..60).map(|_| noise(&mut random)).collect();
                !of_times(&values).is_empty()
            })
            .count();
        assert!(alarms as f64 <= LEVEL * f64::from(series), "{alarms}");
    }

    #[test]
    fn a_step_beyond_the_noise_is_found_where_it_is() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut exact, mut near, series) = (0, 0, 200);
        for _ in 0..series {
            let step = |run| if run >= 31 { 1.1 } else { 1.0 };
            let values: Vec<f64> = (0..60).map(|run| step(run) * noise(&mut random)).collect();
            let at = places(&of_times(&values));
            let is_within = |runs| at.len() == 1 && at[0].abs_diff(31) <= runs;
            exact += usize::from(is_within(1));
            near += usize::from(is_within(3));
        }
        assert!(exact * 100 >= series * 80, "{exact} of {series}");
        assert!(near * 100 >= series * 95, "{near} of {series}");
    }

    #[test]
    fn too_few_runs_and_small_moves_say_nothing() {
        let few: Vec<f64> = (0..15).map(|run| if run < 7 { 1.0 } else { 9.0 }).collect();
        assert_eq!(of_times(&few), []);
        let small: Vec<f64> = (0..40)
            .map(|run| if run < 20 { 1.0 } else { 1.01 })
            .collect();
        assert_eq!(of_times(&small), []);
        let large: Vec<f64> = (0..40)
            .map(|run| if run < 20 { 1.0 } else { 1.1 })
            .collect();
        assert_eq!(places(&of_times(&large)), [20]);
    }
}
