//! Which of a site's stacks changed most: where to look for the cause of the change.
//!
//! Stacks of two builds are the same if their callers' functions are, whatever the lines: up to
//! `main` or a thread's function. What has no name is known by its address, if both ran that build.
//!
//! Time: the frames of the sites that are asked for. Memory: a number a distinct frame, and those
//! of one site's stacks at a time.

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
    /// As it is now, if it still is.
    pub stack: &'a SiteStack,
    /// The measure in which it changed.
    pub key: SortKey,
    pub before: u64,
    pub after: u64,
    /// How many the site has, of both sides.
    pub of: usize,
}

/// What a function is known by on both sides.
#[derive(PartialEq, Eq, Hash)]
enum Known {
    Name(Rc<str>),
    /// Build id and address.
    Address(Vec<u8>, u64),
    Module(String),
}

/// Finds the stacks; to be used for the sites of two sides.
pub struct StackChanges {
    /// The builds that both sides ran.
    builds: BTreeSet<Vec<u8>>,
    names: Names,
    numbers: FxHashMap<Known, u32>,
    by_frame: FxHashMap<*const ChainFrame, u32>,
}

/// The stacks of a site that are the same to us.
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

    /// The heaviest, of those that are there now if any is.
    fn heaviest(&self, key: SortKey) -> Option<&'a SiteStack> {
        let stacks = match self.figures(key) {
            (_, 0) => self.before.iter(),
            _ => self.after.iter(),
        };
        // Of equals the first.
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
