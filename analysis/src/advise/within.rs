//! How much of the sampled processor time ran within calls: below the innermost frames of their stacks, in any
//! function. What the recorder itself took is left out. A call that frees blocks of several origins counts for each by
//! the number of its frees.
//!
//! Memory and time: by the stacks below which a sample was, and the pairs of stacks that free and origins.

use std::collections::{BTreeMap, BTreeSet};

use larder_base::statistics::share_interval;
use larder_trace::{Event, Events, StackId, Trace};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::reading::attribute::functions;
use crate::reading::functions::is_recorder;
use crate::reading::heap::Block;
use crate::reading::observe::{End, Finished, Live, Moment, Observer};
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
    /// Of that, what ran within a call that the recorder took, as it takes all of malloc and free. The frame of a
    /// function that ends with such a call may be gone, and its caller has called more.
    taken: FxHashMap<StackId, Sampled>,
    pub all: Sampled,
    /// Not in `all`.
    pub recorder: Sampled,
    /// By origin.
    sources: Vec<StackId>,
    /// By origin, what was below the frees of its blocks.
    frees: FxHashMap<usize, Part>,
}

/// What was below some calls.
#[derive(Clone, Copy, Default)]
struct Part {
    samples: f64,
    ns: f64,
}

impl Part {
    /// `weight`: 0 to 1.
    fn add(&mut self, other: Sampled, weight: f64) {
        self.samples += weight * other.samples as f64;
        self.ns += weight * other.ns as f64;
    }
}

impl Times {
    /// Distinct stacks, of which none calls another.
    pub fn of_stacks(&self, stacks: impl IntoIterator<Item = StackId>) -> Share {
        self.share(part_of(&self.below, stacks))
    }

    /// The calls that allocated blocks of these origins, and those that freed them.
    pub fn of_origins(&self, origins: &BTreeSet<usize>) -> Share {
        let sources = origins
            .iter()
            .filter_map(|origin| self.sources.get(*origin));
        let stacks: BTreeSet<StackId> = sources.copied().collect();
        let mut sum = part_of(&self.taken, stacks);
        for frees in origins.iter().filter_map(|origin| self.frees.get(origin)) {
            sum.samples += frees.samples;
            sum.ns += frees.ns;
        }
        self.share(sum)
    }

    fn share(&self, part: Part) -> Share {
        // Damage may have left stacks that call each other.
        let share = (part.ns / self.all.ns.max(1) as f64).min(1.0);
        let (low, high) = share_interval(share, self.all.samples);
        Share {
            samples: part.samples.round() as u64,
            share,
            low,
            high,
        }
    }
}

fn part_of(times: &FxHashMap<StackId, Sampled>, stacks: impl IntoIterator<Item = StackId>) -> Part {
    let mut sum = Part::default();
    for sampled in stacks.into_iter().filter_map(|stack| times.get(&stack)) {
        sum.add(*sampled, 1.0);
    }
    sum
}

/// Observes the samples of each process image.
#[derive(Default)]
pub struct Within {
    /// `None`: there are no samples.
    pub images: Vec<Option<Times>>,
    sampled: FxHashMap<StackId, Sampled>,
    is_sampled: bool,
    /// How often a stack freed a block of an origin.
    frees: FxHashMap<(StackId, usize), u64>,
}

impl Observer for Within {
    type Note = ();

    fn begin_image(&mut self, trace: &Trace) {
        self.is_sampled = trace.sampling().rate_hz > 0;
    }

    fn ended(&mut self, at: Moment<'_>, _: u64, block: &Block<()>, how: End) {
        if self.is_sampled && matches!(how, End::Freed(_) | End::Reallocated(0)) {
            let pair = (at.stack, block.origin.index());
            *self.frees.entry(pair).or_default() += 1;
        }
    }

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Some((stack, one)) = Sampled::of(event) {
            self.sampled.entry(stack).or_default().add(one);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let mut times = Times {
            below: FxHashMap::default(),
            taken: FxHashMap::default(),
            all: Sampled::default(),
            recorder: Sampled::default(),
            sources: image.sources.iter().map(|source| source.stack).collect(),
            frees: FxHashMap::default(),
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
        while let Some((stack, sampled)) = open.pop_last() {
            let caller = image.events.stacks().parent(stack);
            if caller < stack {
                let chain = image.chain(stack);
                if functions(&chain).next().is_some_and(is_recorder) {
                    times.taken.entry(caller).or_default().add(sampled);
                }
                times.below.entry(caller).or_default().add(sampled);
                open.entry(caller).or_default().add(sampled);
            }
        }
        let frees = BTreeMap::from_iter(std::mem::take(&mut self.frees));
        let mut by_stack: FxHashMap<StackId, u64> = FxHashMap::default();
        for ((stack, _), count) in &frees {
            *by_stack.entry(*stack).or_default() += count;
        }
        for ((stack, origin), count) in frees {
            if let (Some(taken), Some(all)) = (times.taken.get(&stack), by_stack.get(&stack)) {
                let frees = times.frees.entry(origin).or_default();
                frees.add(*taken, count as f64 / *all as f64);
            }
        }
        self.images.push((times.all.samples > 0).then_some(times));
    }
}
