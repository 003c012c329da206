//! Finds the stack of a site that changed most, to show the cause of the change.
//!
//! Stacks of two builds are equal if the functions of their callers are, up to `main` or a thread's
//! function, whatever their lines. A function without a name is identified by its address, if both
//! sides ran that build.
//!
//! Time: the frames of the requested sites. Memory: a number for each distinct frame, and the frames of
//! one site's stacks at a time.

use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::side::{Names, Side};
use crate::reading::attribute::functions;
use crate::reading::naming::without_start;
use crate::reading::resolve::ChainFrame;
use crate::reading::sites::{Site, SiteStack, SortKey, WeighedStack};

/// The stack of a site that changed most.
pub struct StackChange<'a> {
    /// The stack in the second build, or in the first if it is gone.
    pub stack: &'a SiteStack,
    /// The measure in which it changed.
    pub key: SortKey,
    pub before: u64,
    pub after: u64,
    /// The number of the site's stacks, on both sides.
    pub of: usize,
}

/// The identity of a function on both sides.
#[derive(PartialEq, Eq, Hash)]
enum Known {
    Name(Rc<str>),
    /// Build id and address.
    Address(Vec<u8>, u64),
    Module(String),
}

/// Finds the stacks, for the sites of two sides.
pub struct StackChanges {
    /// The builds that both sides ran.
    builds: BTreeSet<Vec<u8>>,
    names: Names,
    numbers: FxHashMap<Known, u32>,
    by_frame: FxHashMap<*const ChainFrame, u32>,
}

/// The equal stacks of a site.
#[derive(Default)]
struct Group<'a> {
    before: Vec<&'a WeighedStack>,
    after: Vec<&'a WeighedStack>,
}

impl<'a> Group<'a> {
    fn figures(&self, key: SortKey) -> (u64, u64) {
        let sum = |stacks: &[&WeighedStack]| {
            let weights = stacks.iter().map(|stack| stack.weight(key));
            weights.fold(0, u64::saturating_add)
        };
        (sum(&self.before), sum(&self.after))
    }

    fn change(&self, key: SortKey) -> u64 {
        let (before, after) = self.figures(key);
        before.abs_diff(after)
    }

    /// The heaviest stack, of the second build if it has any.
    fn heaviest(&self, key: SortKey) -> Option<&'a SiteStack> {
        let stacks = match self.figures(key) {
            (_, 0) => self.before.iter(),
            _ => self.after.iter(),
        };
        // The first of equal ones.
        let heaviest = stacks.rev().max_by_key(|stack| stack.weight(key));
        heaviest.map(|stack| &stack.stack)
    }
}

impl StackChanges {
    pub fn between(before: &Side<'_>, after: &Side<'_>) -> Self {
        let [before, after] = [before, after].map(|side| {
            let modules = side.analysis.traces.iter().flat_map(|t| t.modules());
            let known = modules.filter(|module| !module.build_id.is_empty());
            known.map(|m| m.build_id.clone()).collect::<BTreeSet<_>>()
        });
        Self {
            builds: before.intersection(&after).cloned().collect(),
            names: Names::default(),
            numbers: FxHashMap::default(),
            by_frame: FxHashMap::default(),
        }
    }

    /// The stack with the largest change in the first of these measures in which any has changed;
    /// `None` if none has.
    pub fn largest<'a>(
        &mut self,
        before: Option<&'a Site>,
        after: Option<&'a Site>,
        keys: &[SortKey],
    ) -> Option<StackChange<'a>> {
        let (mut groups, mut places) = (Vec::<Group<'a>>::new(), FxHashMap::default());
        let mut place = |stack: &SiteStack, groups: &mut Vec<Group<'a>>| {
            let next = groups.len();
            let place = *places.entry(self.callers(stack)).or_insert(next);
            if place == next {
                groups.push(Group::default());
            }
            place
        };
        for stack in after.map_or(&[][..], Site::stacks) {
            let place = place(&stack.stack, &mut groups);
            groups[place].after.push(stack);
        }
        for stack in before.map_or(&[][..], Site::stacks) {
            let place = place(&stack.stack, &mut groups);
            groups[place].before.push(stack);
        }
        keys.iter().find_map(|key| {
            let groups = groups.iter().rev();
            let most = groups.clone().max_by_key(|group| group.change(*key))?;
            let (before, after) = most.figures(*key);
            (before != after).then_some(StackChange {
                stack: most.heaviest(*key)?,
                key: *key,
                before,
                after,
                of: groups.len(),
            })
        })
    }

    /// The functions that called the site's, by number.
    fn callers(&mut self, stack: &SiteStack) -> Vec<u32> {
        let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
        let outside = stack.site.map_or(0, |site| site + 1);
        let callers = without_start(&frames).get(outside..).unwrap_or_default();
        callers.iter().map(|frame| self.number(frame)).collect()
    }

    fn number(&mut self, frame: &ChainFrame) -> u32 {
        let at: *const ChainFrame = frame;
        if let Some(number) = self.by_frame.get(&at) {
            return *number;
        }
        let build_id = &frame.module.build_id;
        let known = match self.names.of(frame) {
            Some(name) => Known::Name(name),
            None if self.builds.contains(build_id) => {
                Known::Address(build_id.clone(), frame.address)
            }
            None => Known::Module(frame.module.name.clone()),
        };
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(known).or_insert(next);
        self.by_frame.insert(at, number);
        number
    }
}
