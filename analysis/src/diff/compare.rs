//! Compares two builds: their counters, and their sites.

use super::DiffPlan;
use super::figures::{self, Figure};
use super::matching::{How, match_sites};
use super::side::{KnownSite, Side};
use super::stacks::{StackChange, StackChanges};
use crate::of::Of;
use crate::reading::family::Counter;
use crate::reading::sites::{Site, SortKey};

/// How a site changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    New,
    Gone,
    /// The function is the same, the figures differ.
    Changed,
    /// A guess: the function, file or module differs, and perhaps the figures.
    Moved,
    Same,
}

impl Status {
    pub const ALL: [Status; 5] = [
        Status::New,
        Status::Gone,
        Status::Changed,
        Status::Moved,
        Status::Same,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Status::New => "new",
            Status::Gone => "gone",
            Status::Changed => "changed",
            Status::Moved => "moved",
            Status::Same => "same",
        }
    }
}

/// The change of one site, which is in at least one of the builds.
pub struct Change<'a> {
    pub before: Option<&'a KnownSite<'a>>,
    pub after: Option<&'a KnownSite<'a>>,
    /// Why the two are the same site, if both builds have it.
    pub how: Option<How>,
    pub status: Status,
    /// Computed only for sites that are shown; `None` also if no stack changed.
    pub stack: Option<StackChange<'a>>,
}

impl<'a> Change<'a> {
    fn new(
        before: Option<&'a KnownSite<'a>>,
        after: Option<&'a KnownSite<'a>>,
        how: Option<How>,
        keys: &[SortKey],
    ) -> Self {
        let mut change = Self {
            before,
            after,
            how,
            status: Status::Same,
            stack: None,
        };
        change.status = match (before, after) {
            _ if how.is_some_and(How::is_guess) => Status::Moved,
            _ if !change.has_effect(keys) => Status::Same,
            (None, _) => Status::New,
            (_, None) => Status::Gone,
            _ => Status::Changed,
        };
        change
    }

    /// The site in the second build, or in the first if it is gone.
    pub fn site(&self) -> Option<&'a Site> {
        self.after.or(self.before).map(|known| known.site)
    }

    /// A figure before and after.
    pub fn figures(&self, key: SortKey) -> [Figure; 2] {
        let sides = [self.before, self.after];
        sides.map(|known| known.map_or(Figure::default(), |known| known.figure(key)))
    }

    /// Whether any of these figures changed by more than chance.
    fn has_effect(&self, keys: &[SortKey]) -> bool {
        keys.iter().any(|key| {
            let [before, after] = self.figures(*key);
            before.differs(after)
        })
    }
}

pub struct Comparison<'a> {
    pub before: &'a Side<'a>,
    pub after: &'a Side<'a>,
    /// The figures that both builds have.
    pub keys: Vec<SortKey>,
    /// All sites of both builds, by descending change.
    pub changes: Vec<Change<'a>>,
}

impl<'a> Comparison<'a> {
    pub fn of(before: &'a Side<'a>, after: &'a Side<'a>, plan: &DiffPlan) -> Self {
        let peaks = [before, after].map(|side| side.analysis.sites.knows_peak_shares());
        let known = |key: &SortKey| *key != SortKey::Peak || peaks == [true, true];
        let keys = plan.of.keys().iter().copied();
        let keys: Vec<SortKey> = keys.filter(known).collect();
        let matches = match_sites(&before.sites, &after.sites);
        let mut gone = vec![true; before.sites.len()];
        let mut new = vec![true; after.sites.len()];
        let mut changes = Vec::new();
        for found in matches {
            gone[found.before] = false;
            new[found.after] = false;
            let (a, b) = (&before.sites[found.before], &after.sites[found.after]);
            changes.push(Change::new(Some(a), Some(b), Some(found.how), &keys));
        }
        let gone = before.sites.iter().zip(gone).filter(|(_, gone)| *gone);
        changes.extend(gone.map(|(site, _)| Change::new(Some(site), None, None, &keys)));
        let new = after.sites.iter().zip(new).filter(|(_, new)| *new);
        changes.extend(new.map(|(site, _)| Change::new(None, Some(site), None, &keys)));
        rank(&mut changes, plan.sort);
        let mut comparison = Self {
            before,
            after,
            keys,
            changes,
        };
        comparison.find_stacks(plan);
        comparison
    }

    fn find_stacks(&mut self, plan: &DiffPlan) {
        let mut stacks = StackChanges::between(self.before, self.after);
        let others = self.keys.iter().filter(|key| **key != plan.sort);
        let keys: Vec<SortKey> = [plan.sort].iter().chain(others).copied().collect();
        let changes = self.changes.iter_mut();
        let shown = changes.filter(|change| plan.all || change.has_effect(&self.keys));
        for change in shown.take(plan.top) {
            let [before, after] = [change.before, change.after].map(|k| k.map(|k| k.site));
            change.stack = stacks.largest(before, after, &keys);
        }
    }

    pub fn count(&self, status: Status) -> u64 {
        let changes = self.changes.iter();
        changes.filter(|change| change.status == status).count() as u64
    }

    /// The changes to show: all, or those with different figures.
    pub fn shown(&self, all: bool) -> impl Iterator<Item = &Change<'a>> {
        let changes = self.changes.iter();
        changes.filter(move |change| all || change.has_effect(&self.keys))
    }
}

fn rank(changes: &mut [Change<'_>], key: SortKey) {
    let change = |change: &Change<'_>, key| {
        let [before, after] = change.figures(key);
        before.value.abs_diff(after.value)
    };
    changes.sort_by_cached_key(|c| {
        let by = [key, SortKey::Calls, SortKey::Bytes, SortKey::Peak];
        let by = by.map(|key| std::cmp::Reverse(change(c, key)));
        let name = c.site().map(|site| {
            (
                site.file.clone(),
                site.line,
                site.function.clone(),
                site.address,
            )
        });
        (by, name, c.status)
    });
}

/// A compared counter: its name, the kind of figure that it is, and its value.
pub type Row = (String, SortKey, u64);

/// The compared counters, in the order of the table.
pub fn counters(side: &Side<'_>, of: Of) -> Vec<Row> {
    let counters = &side.analysis.counters;
    if of != Of::Allocations {
        let keys = of.keys().iter();
        let sums = keys.map(|key| {
            let values = side.sites.iter().map(|known| known.site.weight(*key));
            let [name, ..] = figures::names(of, *key);
            let name = name[..1].to_uppercase() + &name[1..];
            (name, *key, values.fold(0, u64::saturating_add))
        });
        return sums.collect();
    }
    let row = |key| move |(name, value): Counter| (name.to_owned(), key, value);
    let calls = counters.of_calls().into_iter().chain([
        ("Under 32 bytes", counters.tiny),
        ("Live at the end", counters.live_blocks),
    ]);
    let bytes = counters.of_bytes().into_iter();
    let bytes = bytes.chain([("Live at the end, bytes", counters.live_bytes)]);
    let calls = calls.map(row(SortKey::Calls));
    calls.chain(bytes.map(row(SortKey::Bytes))).collect()
}
