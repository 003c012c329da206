//! How much of the sampled processor time ran within calls: below the innermost frames of their stacks, whoever
//! ran there. What the recorder itself took is left out.
//!
//! Memory and time: by the stacks below which a sample was.

use std::collections::{BTreeMap, BTreeSet};

use larder_base::statistics::share_interval;
use larder_trace::{Event, Events, StackId};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::reading::attribute::functions;
use crate::reading::functions::is_recorder;
use crate::reading::observe::{Finished, Live, Observer};
use crate::report::Sampled;

/// The part of a process's processor time that was within some calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub samples: u64,
    /// 0 to 1.
    pub share: f64,
    /// The 95 % interval.
    pub low: f64,
    pub high: f64,
}

impl Share {
    pub fn json(&self) -> Value {
        json!({ "samples": self.samples, "share": self.share, "low": self.low, "high": self.high })
    }
}

/// Of one process image.
pub struct Times {
    /// What was below a stack's innermost frame.
    below: FxHashMap<StackId, Sampled>,
    pub all: Sampled,
    /// Not in `all`.
    pub recorder: Sampled,
    /// By origin.
    sources: Vec<StackId>,
}

impl Times {
    /// Distinct stacks, of which none calls another.
    pub fn of_stacks(&self, stacks: impl IntoIterator<Item = StackId>) -> Share {
        let mut sum = Sampled::default();
        for below in stacks
            .into_iter()
            .filter_map(|stack| self.below.get(&stack))
        {
            sum.add(*below);
        }
        // Damage may have left stacks that call each other.
        let share = (sum.ns as f64 / self.all.ns.max(1) as f64).min(1.0);
        let (low, high) = share_interval(share, self.all.samples);
        Share {
            samples: sum.samples,
            share,
            low,
            high,
        }
    }

    pub fn of_origins(&self, origins: impl IntoIterator<Item = usize>) -> Share {
        let stacks: BTreeSet<StackId> = origins
            .into_iter()
            .filter_map(|origin| self.sources.get(origin).copied())
            .collect();
        self.of_stacks(stacks)
    }
}

/// Observes the samples of each process image.
#[derive(Default)]
pub struct Within {
    /// `None`: there are no samples.
    pub images: Vec<Option<Times>>,
    sampled: FxHashMap<StackId, Sampled>,
}

impl Observer for Within {
    type Note = ();

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Some((stack, one)) = Sampled::of(event) {
            self.sampled.entry(stack).or_default().add(one);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let mut times = Times {
            below: FxHashMap::default(),
            all: Sampled::default(),
            recorder: Sampled::default(),
            sources: image.sources.iter().map(|source| source.stack).collect(),
        };
        // Of each stack what was there and below; a caller's number is less than those of its calls.
        let mut open: BTreeMap<StackId, Sampled> = BTreeMap::new();
        for (stack, sampled) in std::mem::take(&mut self.sampled) {
            let chain = image.chain(stack);
            if functions(&chain).next().is_some_and(is_recorder) {
                times.recorder.add(sampled);
                continue;
            }
            times.all.add(sampled);
            open.entry(stack).or_default().add(sampled);
        }
        let stacks = image.events.stacks();
        while let Some((stack, sampled)) = open.pop_last() {
            let caller = stacks.parent(stack);
            if caller < stack {
                times.below.entry(caller).or_default().add(sampled);
                open.entry(caller).or_default().add(sampled);
            }
        }
        self.images.push((times.all.samples > 0).then_some(times));
    }
}
