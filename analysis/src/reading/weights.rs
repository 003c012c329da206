//! Stacks with what is no allocation: copies, system calls, processor time.
//!
//! Memory: by the distinct stacks of one image, and the rows of all.

use larder_base::order;
use larder_trace::{Action, Event, Events, StackId, Trace};
use rustc_hash::FxHashMap;

use super::measure::Measure;
use super::observe::{Finished, Live, Observer};
use super::stacks::StackRow;

/// How many copies of so many bytes one that was recorded stands for. `rate`: the mean number of bytes between
/// two samples, 0 if all were recorded.
pub fn copies(bytes: u64, rate: u64) -> f64 {
    match (bytes, rate) {
        (_, 0) | (0, _) => 1.0,
        // The chance is 1 - exp(-x); so this is exact for small x, too.
        _ => -1.0 / (-(bytes as f64) / rate as f64).exp_m1(),
    }
}

/// Collects the rows of a measure that is not of allocations.
pub struct Weights {
    measure: Measure,
    pub rows: Vec<StackRow>,
    /// Of the image that is being read.
    stacks: FxHashMap<(StackId, &'static str), f64>,
    ns_per_tick: f64,
    images: usize,
}

impl Weights {
    pub fn new(measure: Measure) -> Self {
        Weights {
            measure,
            rows: Vec::new(),
            stacks: FxHashMap::default(),
            ns_per_tick: 0.0,
            images: 0,
        }
    }

    /// The stack, what it called, and its weight.
    fn of(&self, action: &Action) -> Option<(StackId, &'static str, f64)> {
        match (self.measure, *action) {
            (
                Measure::Copies | Measure::CopiedBytes,
                Action::Copy {
                    call,
                    bytes,
                    rate,
                    stack,
                    ..
                },
            ) => {
                let each = match self.measure {
                    Measure::Copies => 1.0,
                    _ => bytes as f64,
                };
                Some((stack, call.name(), each * copies(bytes, rate)))
            }
            (Measure::SystemCalls, Action::SystemCall { call, stack, .. }) => {
                Some((stack, call.name(), 1.0))
            }
            (
                Measure::SystemTime,
                Action::SystemCall {
                    call, ticks, stack, ..
                },
            ) => Some((stack, call.name(), ticks as f64 * self.ns_per_tick)),
            (Measure::ProcessorTime, Action::Sample { cpu_ns, stack }) => {
                Some((stack, "", cpu_ns as f64))
            }
            _ => None,
        }
    }
}

impl Observer for Weights {
    type Note = ();

    fn begin_image(&mut self, trace: &Trace) {
        self.ns_per_tick = trace.clock().ns_per_tick;
    }

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Some((stack, call, weight)) = self.of(&event.action) {
            *self.stacks.entry((stack, call)).or_default() += weight;
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let mut stacks: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        order::sort_by_key(&mut stacks, |(key, _)| *key);
        for ((stack, call), weight) in stacks {
            let mut row = StackRow::without_sums(image, self.images, stack, call);
            row.weight = weight.round() as u64;
            self.rows.push(row);
        }
        self.images += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_as_many_as_its_chance_says() {
        assert_eq!(copies(77, 0), 1.0);
        let near = |weight: f64, expected: f64| (weight / expected - 1.0).abs() < 1e-6;
        assert!(near(copies(65_536, 65_536), 1.0 / (1.0 - (-1f64).exp())));
        assert!(near(copies(1 << 30, 65_536), 1.0));
        // e^x - 1 would lose all its digits here.
        let rate = 1 << 40;
        assert!((copies(1, rate) / rate as f64 - 1.0).abs() < 1e-9);
        assert_eq!(copies(0, rate), 1.0);
        assert!(copies(u64::MAX, 1).is_finite() && copies(1, u64::MAX).is_finite());
    }
}
