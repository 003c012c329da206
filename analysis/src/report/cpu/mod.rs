//! The samples of processor time of a trace, by function: what ran itself, and what ran within it.
//!
//! Memory: by the distinct stacks of one process image, and the functions of all. Time: a map look-up an event.

pub mod json;
pub mod text;

use larder_base::order;
use larder_trace::{Action, Event, Events, Sampling, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::reading::functions::{CountedFunction, FunctionId, FunctionTable, Leaf};
use crate::reading::observe::{Finished, Live, Observer};

/// Samples, and the processor time that they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    pub samples: u64,
    pub ns: u64,
}

impl Sampled {
    /// The stack and the time of a sample; `None` of other events.
    pub fn of(event: &Event) -> Option<(StackId, Sampled)> {
        match event.action {
            Action::Sample { cpu_ns: ns, stack } => Some((stack, Sampled { samples: 1, ns })),
            _ => None,
        }
    }

    pub fn add(&mut self, other: Sampled) {
        self.samples += other.samples;
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// Of one function.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Its own code.
    own: Sampled,
    /// And that of what it called; a recursive function counts once a stack.
    total: Sampled,
}

/// A function's row.
pub struct Row<'a> {
    pub function: &'a CountedFunction,
    pub own: Sampled,
    pub total: Sampled,
}

/// Observes the samples of all process images.
#[derive(Default)]
pub struct Cpu {
    /// Of the image that is being read.
    stacks: FxHashMap<StackId, Sampled>,
    functions: FunctionTable,
    sums: Vec<Sums>,
    pub all: Sampled,
    /// What the recorder itself took, which is in no other sum.
    pub recorder: Sampled,
    /// Of all, those whose stack does not reach its first function.
    pub incomplete: Sampled,
    pub sampling: Sampling,
}

impl Observer for Cpu {
    type Note = ();
    const WILL_DO_WITH_COUNTERS: bool = true;

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Some((stack, one)) = Sampled::of(event) {
            self.stacks.entry(stack).or_default().add(one);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let before = self.all.ns + self.recorder.ns;
        let mut seen = FxHashSet::default();
        for (stack, sampled) in std::mem::take(&mut self.stacks) {
            let chain = image.chain(stack);
            let path = self.functions.path(image.resolver, &chain, Leaf::Sample);
            if path.first() == Some(&FunctionId::RECORDER) {
                self.recorder.add(sampled);
                continue;
            }
            self.all.add(sampled);
            if image.events.stacks().root(stack) != StackId::COMPLETE_ROOT {
                self.incomplete.add(sampled);
            }
            self.sums.resize(self.functions.len(), Sums::default());
            if let Some(innermost) = path.first() {
                self.sums[innermost.index()].own.add(sampled);
            }
            seen.clear();
            for function in path {
                if seen.insert(function) {
                    self.sums[function.index()].total.add(sampled);
                }
            }
        }
        let sampling = image.trace.sampling();
        let (all, own) = (&mut self.sampling, self.all.ns + self.recorder.ns - before);
        all.rate_hz = all.rate_hz.max(sampling.rate_hz);
        // The recorder notes the time now and then: a program that was killed has used more.
        all.cpu_ns = all.cpu_ns.saturating_add(sampling.cpu_ns.max(own));
        all.lost_ns = all.lost_ns.saturating_add(sampling.lost_ns);
    }
}

impl Cpu {
    /// Those that ran, the ones with the most time of their own first.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let sums = self.functions.iter().zip(&self.sums);
        let mut rows: Vec<Row<'_>> = sums
            .filter(|(_, sums)| sums.total.samples > 0)
            .map(|((_, function), sums)| Row {
                function,
                own: sums.own,
                total: sums.total,
            })
            .collect();
        order::sort_by(&mut rows, |a, b| {
            let key = |row: &Row<'_>| (row.own.ns, row.total.ns);
            key(b)
                .cmp(&key(a))
                .then(a.function.name.cmp(&b.function.name))
        });
        rows
    }

    /// Processor time that is in no sample.
    pub fn missing_ns(&self) -> u64 {
        self.sampling
            .cpu_ns
            .saturating_sub(self.all.ns)
            .saturating_sub(self.recorder.ns)
    }
}
