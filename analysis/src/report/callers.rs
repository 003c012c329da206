//! Calls of several kinds by the site that makes them.
//!
//! Memory: by the distinct stacks of one process image, and the distinct callers of all. Time: a look-up in a
//! map an event, and for each stack an attribution at the end of its image.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::rc::Rc;

use larder_base::order;
use larder_trace::StackId;
use rustc_hash::FxHashMap;

use crate::reading::observe::Finished;
use crate::reading::sites::{By, Site, SiteId, SiteStack, SiteTable, Sums};

/// What is called.
pub trait Kind: Copy + Eq + Hash + Ord {
    fn text(self) -> Rc<str>;
}

/// What calls add up to.
pub trait Sum: Default {
    fn merge(&mut self, other: &Self);
    /// The number of calls, estimated where they were sampled.
    fn calls(&self) -> f64;
    /// The same for a site.
    fn sums(&self) -> Sums;
}

/// The calls of a kind from a site.
#[derive(Debug)]
pub struct Caller<K, S> {
    site: SiteId,
    pub kind: K,
    pub sum: S,
}

/// The calls of all process images.
pub struct Callers<K, S> {
    /// Of the image that is being read.
    stacks: FxHashMap<(StackId, K), S>,
    /// One for each line and kind.
    pub sites: SiteTable,
    /// By the site.
    callers: Vec<Caller<K, S>>,
}

impl<K, S> Default for Callers<K, S> {
    fn default() -> Self {
        Callers {
            stacks: FxHashMap::default(),
            sites: SiteTable::default(),
            callers: Vec::new(),
        }
    }
}

impl<K: Kind, S: Sum> Callers<K, S> {
    /// Keeps all stacks of each site.
    pub fn with_stacks() -> Self {
        Callers {
            sites: SiteTable::with_stacks(),
            ..Self::default()
        }
    }

    /// The sum of the calls of a kind from a stack of the image that is being read.
    pub fn of(&mut self, stack: StackId, kind: K) -> &mut S {
        self.stacks.entry((stack, kind)).or_default()
    }

    pub fn end_image(&mut self, image: &mut Finished<'_, '_>) {
        let mut stacks: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        // So that of equals the same is first in each run.
        order::sort_by_key(&mut stacks, |((stack, kind), _)| (*stack, *kind));
        for ((stack, kind), sum) in stacks {
            let (chain, attribution) = image.attribute(stack);
            let stack = SiteStack {
                chain,
                site: attribution.site,
            };
            self.charge(stack, kind, sum);
        }
    }

    fn charge(&mut self, stack: SiteStack, kind: K, sum: S) {
        let site = self.sites.intern_by(&stack, By::Call(kind.text()));
        let known = || stack.clone();
        self.sites.add(site, "", &sum.sums(), true, known);
        match self.callers.get_mut(site.0) {
            Some(caller) => caller.sum.merge(&sum),
            None => self.callers.push(Caller { site, kind, sum }),
        }
    }

    /// The kinds that were called, those with the most calls first.
    pub fn kinds(&self) -> Vec<(K, S)> {
        let mut sums: BTreeMap<K, S> = BTreeMap::new();
        for caller in &self.callers {
            sums.entry(caller.kind).or_default().merge(&caller.sum);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        order::sort_by(&mut sums, |(_, a), (_, b)| b.calls().total_cmp(&a.calls()));
        sums
    }

    /// The callers that weigh more than 0, the heaviest first.
    pub fn ranked(&self, weight: impl Fn(&S) -> f64) -> Vec<&Caller<K, S>> {
        let callers = self.callers.iter();
        let mut ranked: Vec<_> = callers.filter(|caller| weight(&caller.sum) > 0.0).collect();
        order::sort_by(&mut ranked, |a, b| {
            weight(&b.sum).total_cmp(&weight(&a.sum))
        });
        ranked
    }

    /// Its heaviest stack is the one with the most calls.
    pub fn site(&self, caller: &Caller<K, S>) -> &Site {
        self.sites.get(caller.site)
    }
}
