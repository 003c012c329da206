//! The figures of a site: their names, how they are shown, and which differences are chance.
//!
//! A figure that was counted is exact. An estimate from samples has a variance: of n samples, n; so a difference
//! is one only if it exceeds `CHANCE` standard deviations.

use larder_base::number::grouped;

use crate::of::Of;
use crate::reading::sites::SortKey;
use crate::report::time;

/// Chance alone exceeds it once in 370 differences.
pub const CHANCE: f64 = 3.0;

/// What differs, or grows: a value of a side, and its variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    pub value: u64,
    pub variance: f64,
}

impl Figure {
    /// `None`: exact, or not known.
    pub fn deviation(self) -> Option<f64> {
        let deviation = self.variance.sqrt();
        (deviation > 0.0 && deviation.is_finite()).then_some(deviation)
    }

    /// Whether another one differs by more than chance.
    pub fn differs(self, other: Figure) -> bool {
        let chance = CHANCE * (self.variance + other.variance).sqrt();
        self.value.abs_diff(other.value) as f64 > chance
    }
}

/// As a noun, short, and in JSON.
pub fn names(of: Of, key: SortKey) -> [&'static str; 3] {
    match (of, key) {
        (Of::ProcessorTime, SortKey::Calls) => ["samples", "samples", "samples"],
        (_, SortKey::Calls) => ["calls", "calls", "calls"],
        (Of::Allocations, SortKey::Bytes) => ["bytes requested", "bytes", "bytes"],
        (Of::Copies, SortKey::Bytes) => ["bytes copied", "bytes", "bytes"],
        (_, SortKey::Bytes) => ["bytes moved", "bytes", "bytes"],
        (_, SortKey::Peak) => ["bytes live at the peak", "at peak", "peak_bytes"],
        (_, SortKey::Tiny) => ["blocks under 32 bytes", "tiny", "tiny"],
        (_, SortKey::Live) => ["bytes live at the end", "live", "live_bytes"],
        (_, SortKey::Errors) => ["errors", "errors", "errors"],
        (Of::ProcessorTime, SortKey::Time) => ["processor time", "time", "cpu_ns"],
        (_, SortKey::Time) => ["time within", "time within", "time_ns"],
    }
}

/// A value in its unit.
pub fn shown(key: SortKey, value: u64) -> String {
    match key {
        SortKey::Time => time(value),
        _ => grouped(value),
    }
}

/// With its standard deviation, if it has one.
pub fn estimated(key: SortKey, figure: Figure) -> String {
    let deviation = figure.deviation().map(|d| shown(key, d.round() as u64));
    let deviation = deviation.map_or(String::new(), |d| format!(" ±{d}"));
    shown(key, figure.value) + &deviation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(value: u64) -> Figure {
        let variance = value as f64;
        Figure { value, variance }
    }

    #[test]
    fn counts_differ_by_one_and_samples_by_more_than_chance() {
        let counted = |value| Figure {
            value,
            variance: 0.0,
        };
        assert!(counted(7).differs(counted(8)) && !counted(7).differs(counted(7)));
        // Three times the square root of 9, and of 200.
        assert!(!samples(0).differs(samples(9)) && samples(0).differs(samples(10)));
        assert!(!samples(79).differs(samples(121)) && samples(79).differs(samples(125)));
        let unknown = Figure {
            value: 1,
            variance: f64::INFINITY,
        };
        assert!(!unknown.differs(counted(u64::MAX)) && unknown.deviation().is_none());
    }

    #[test]
    fn an_estimate_is_shown_with_its_deviation_and_a_count_without() {
        assert_eq!(estimated(SortKey::Calls, samples(10_000)), "10,000 ±100");
        let time = Figure {
            value: 0,
            variance: f64::INFINITY,
        };
        assert_eq!(estimated(SortKey::Time, time), "0");
    }
}
