//! 95 % intervals: of a weighted sum of Poisson counts, that of Fay and Feuer with the quantiles of
//! Wilson and Hilferty, like the allocator's; of a difference of two, that of Zou and Donner.

/// The two-sided 95 % quantile of the normal distribution.
const QUANTILE: f64 = 1.959964;

/// What the interval of a sum of samples is computed from. Adds up over independent samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub variance: f64,
    /// The largest standard deviation of one sample.
    pub heaviest: f64,
    /// Bytes of the sampled objects themselves, a lower bound of what is in use.
    pub sampled_bytes: f64,
    pub samples: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

impl Spread {
    pub fn add(&mut self, more: &Spread) {
        self.variance += more.variance;
        self.heaviest = self.heaviest.max(more.heaviest);
        self.sampled_bytes += more.sampled_bytes;
        self.samples += more.samples;
    }

    /// The interval of a sum of this many bytes.
    pub fn interval(&self, bytes: f64) -> Interval {
        let (low, high) = (
            quantile(bytes, self.variance, -QUANTILE),
            quantile(
                bytes + self.heaviest,
                self.variance + self.heaviest * self.heaviest,
                QUANTILE,
            ),
        );
        Interval {
            low: low.max(self.sampled_bytes.min(bytes)),
            high: high.max(bytes),
        }
    }
}

/// A quantile of the gamma distribution with this mean and variance.
fn quantile(mean: f64, variance: f64, z: f64) -> f64 {
    if mean <= 0.0 || variance <= 0.0 {
        return mean.max(0.0);
    }
    let ninth = variance / (9.0 * mean * mean);
    let root = 1.0 - ninth + z * ninth.sqrt();
    mean * root.max(0.0).powi(3)
}

/// Bytes in use at one time, and freed up to then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    pub bytes: f64,
    pub freed: f64,
    pub spread: Spread,
}

/// How many more bytes are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    pub bytes: f64,
    pub interval: Interval,
}

impl Growth {
    /// Between two times of the same process. Objects that stayed in use have the same samples in both and
    /// add no error: growth = new - gone, and gone <= freed in between.
    pub fn since(before: &Level, after: &Level) -> Self {
        let (gone, new) = gone_and_new(before, after);
        Self::between(&gone, &new)
    }

    /// Between two runs, whose samples are independent.
    pub fn between(before: &Level, after: &Level) -> Self {
        let old = before.spread.interval(before.bytes);
        let new = after.spread.interval(after.bytes);
        let bytes = after.bytes - before.bytes;
        Self {
            bytes,
            interval: Interval {
                low: bytes - (after.bytes - new.low).hypot(old.high - before.bytes),
                high: bytes + (new.high - after.bytes).hypot(before.bytes - old.low),
            },
        }
    }

    pub fn is_significant(&self) -> bool {
        !self.interval.holds_zero()
    }
}

/// What was in use before and may be gone, and what was allocated since.
fn gone_and_new(before: &Level, after: &Level) -> (Level, Level) {
    let freed = (after.freed - before.freed).max(0.0);
    let part = if before.bytes > 0.0 {
        (freed / before.bytes).min(1.0)
    } else {
        0.0
    };
    let gone = Level {
        bytes: before.bytes * part,
        freed: 0.0,
        spread: Spread {
            variance: before.spread.variance * part,
            sampled_bytes: 0.0,
            ..before.spread
        },
    };
    let new = Level {
        bytes: (after.bytes - before.bytes + gone.bytes).max(0.0),
        freed: 0.0,
        spread: Spread {
            variance: (after.spread.variance - before.spread.variance + gone.spread.variance)
                .max(0.0),
            sampled_bytes: 0.0,
            ..after.spread
        },
    };
    (gone, new)
}

/// The samples of what was allocated since and is in use, in one process.
pub fn spread_since(before: &Level, after: &Level) -> Spread {
    let (gone, new) = gone_and_new(before, after);
    Spread {
        variance: gone.spread.variance + new.spread.variance,
        heaviest: gone.spread.heaviest.max(new.spread.heaviest),
        sampled_bytes: 0.0,
        samples: (after.spread.samples - before.spread.samples).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many samples that stand for a mean of bytes each.
    fn level(samples: f64, mean: f64, freed: f64) -> Level {
        Level {
            bytes: samples * mean,
            freed,
            spread: Spread {
                variance: samples * mean * mean,
                heaviest: mean,
                sampled_bytes: samples * 48.0,
                samples,
            },
        }
    }

    #[test]
    fn of_equal_weights_it_is_the_interval_of_a_poisson_count() {
        // Garwood's exact limits, which Wilson and Hilferty's quantiles come close to.
        for (count, low, high) in [
            (1.0, 0.025, 5.572),
            (10.0, 4.795, 18.390),
            (100.0, 81.364, 121.627),
        ] {
            let Level { bytes, spread, .. } = level(count, 1e6, 0.0);
            let is = spread.interval(bytes);
            assert!((is.low / 1e6 - low).abs() < 0.05, "{count}: {is:?}");
            assert!((is.high / 1e6 - high).abs() < 0.05, "{count}: {is:?}");
        }
    }

    #[test]
    fn the_sum_of_sites_is_surer_than_each() {
        let one = level(10.0, 1e6, 0.0);
        let mut sum = one.spread;
        sum.add(&one.spread);
        let (one, both) = (one.spread.interval(10e6), sum.interval(20e6));
        let width = |interval: Interval| interval.high - interval.low;
        assert!(width(both) < 2.0 * width(one) && width(both) > width(one));
        assert_eq!(sum.samples, 20.0);
    }

    #[test]
    fn no_fewer_bytes_are_in_use_than_were_seen() {
        let spread = Spread {
            variance: 1e12,
            heaviest: 1e6,
            sampled_bytes: 9e5,
            samples: 1.0,
        };
        assert_eq!(spread.interval(1e6).low, 9e5);
        let exact = Spread::default().interval(77.0);
        assert_eq!((exact.low, exact.high), (77.0, 77.0));
    }

    #[test]
    fn what_stayed_adds_no_error_to_the_growth() {
        let (before, after) = (level(1000.0, 1e6, 0.0), level(1010.0, 1e6, 0.0));
        let since = Growth::since(&before, &after);
        assert!(since.is_significant(), "{since:?}");
        // Between two runs, ten more samples are not significant.
        assert!(!Growth::between(&before, &after).is_significant());
        // Nor if everything may have been freed and allocated again.
        let churned = level(1010.0, 1e6, 5e9);
        assert!(!Growth::since(&before, &churned).is_significant());
        // One or two more samples are not significant.
        assert!(!Growth::since(&before, &level(1002.0, 1e6, 0.0)).is_significant());
    }

    #[test]
    fn shrinking_is_growth_with_a_minus() {
        let is = Growth::since(&level(100.0, 1e6, 0.0), &level(20.0, 1e6, 80e6));
        assert!(is.is_significant() && is.interval.high < 0.0, "{is:?}");
        let none = Growth::since(&level(5.0, 1e6, 0.0), &level(5.0, 1e6, 0.0));
        assert_eq!(none.bytes, 0.0);
        assert!(!none.is_significant());
    }
}
