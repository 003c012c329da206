//! Matches the sites of two builds.
//!
//! Sites are matched by function first, never by line or address. The others are searched where their
//! function may have moved: another file, another module, its caller, a helper of its own, another
//! name. Each stage matches the sites of one function among each other; a site is matched up to once, and one
//! that calls a function only with one that calls the same.
//!
//! Time: n·m comparisons for n and m sites in one group, up to `GROUP`² a group; see also `pairing`.
//! Memory: the sites, and `GROUP`² scores at a time.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::pairing::best_first;
use super::score::{MOST, alike, alike_apart_from_callers};
use super::side::KnownSite;
use larder_base::order;

/// Sites of a group beyond this, fewest calls first, are not matched.
const GROUP: usize = 500;

/// Why two sites are matched, in the order of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The same place in the same file of code.
    SameBuild,
    /// In the same function.
    Function,
    /// In a function of the same name in another source file.
    OtherFile,
    /// In a function of the same name in another module.
    OtherModule,
    /// In its former caller, or in a function that was extracted from it.
    OtherDepth,
    /// In a function of another name with the same callers, callees and sizes.
    Renamed,
}

impl How {
    /// Whether the match may be wrong, because it rests on similarity alone.
    pub fn is_guess(self) -> bool {
        !matches!(self, How::SameBuild | How::Function)
    }

    pub fn describe(self) -> &'static str {
        match self {
            How::SameBuild => "same build",
            How::Function => "same function",
            How::OtherFile => "moved to another file",
            How::OtherModule => "moved to another module",
            How::OtherDepth => "moved between caller and callee",
            How::Renamed => "renamed",
        }
    }

    /// The least similarity for a match.
    fn least(self) -> f64 {
        match self {
            How::SameBuild => 0.0,
            How::Function => 0.3 * MOST,
            How::OtherFile => 0.5 * MOST,
            How::OtherModule => 0.7 * MOST,
            How::OtherDepth => 4.5,
            How::Renamed => 0.8 * MOST,
        }
    }
}

/// A site of the first build and its match in the second, as indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub before: usize,
    pub after: usize,
    pub how: How,
}

/// All matches of two builds' sites; unmatched sites are in no `Match`.
pub fn match_sites(before: &[KnownSite<'_>], after: &[KnownSite<'_>]) -> Vec<Match> {
    let mut matching = Matching {
        before,
        after,
        before_done: vec![false; before.len()],
        after_done: vec![false; after.len()],
        found: Vec::new(),
    };
    matching.by_key(How::SameBuild, |known| {
        let build_id = &known.site.module.as_ref()?.build_id;
        let place = match known.site.line {
            Some(line) => u64::from(line),
            None => known.site.address,
        };
        let name = known.site.function.clone().unwrap_or_default();
        let file = known.site.file.clone().unwrap_or_default();
        (!build_id.is_empty()).then(|| (build_id.clone(), name, file, place))
    });
    matching.by_key(How::Function, |known| {
        Some((
            known.module.clone(),
            known.function.clone()?,
            known.file_name.clone(),
        ))
    });
    matching.by_key(How::OtherFile, |known| {
        Some((known.module.clone(), known.function.clone()?))
    });
    matching.by_key(How::OtherModule, |known| known.function.clone());
    matching.by_likeness(
        How::OtherDepth,
        own_key,
        outward_keys,
        alike_apart_from_callers,
    );
    matching.by_likeness(
        How::OtherDepth,
        outward_keys,
        own_key,
        alike_apart_from_callers,
    );
    matching.by_likeness(How::Renamed, caller_keys, caller_keys, alike);
    matching.found
}

type Key = (Rc<str>, Rc<str>);
type Keys = fn(&KnownSite<'_>) -> Vec<Key>;

/// A site's module and function.
fn own_key(known: &KnownSite<'_>) -> Vec<Key> {
    let function = known.function.iter();
    function
        .map(|name| (known.module.clone(), name.clone()))
        .collect()
}

/// The functions that its code may have moved into.
fn outward_keys(known: &KnownSite<'_>) -> Vec<Key> {
    let mut names = known.callers.clone();
    names.extend(known.inlined_into.clone());
    let names = names
        .into_iter()
        .filter(|name| *name != known.function.clone().unwrap_or_default());
    names.map(|name| (known.module.clone(), name)).collect()
}

fn caller_keys(known: &KnownSite<'_>) -> Vec<Key> {
    // A function without a name cannot be renamed.
    let callers = known.callers.iter().filter(|_| known.function.is_some());
    callers
        .map(|name| (known.module.clone(), name.clone()))
        .collect()
}

struct Matching<'s, 'a> {
    before: &'s [KnownSite<'a>],
    after: &'s [KnownSite<'a>],
    before_done: Vec<bool>,
    after_done: Vec<bool>,
    found: Vec<Match>,
}

impl Matching<'_, '_> {
    /// Matches those with a common key, in their order within their function.
    fn by_key<K: Ord>(&mut self, how: How, key: impl Fn(&KnownSite<'_>) -> Option<K>) {
        let keys = |known: &KnownSite<'_>| key(known).into_iter().collect();
        let mut others = groups(self.after, &self.after_done, keys);
        for (key, mine) in groups(self.before, &self.before_done, keys) {
            if let Some(theirs) = others.remove(&key) {
                self.align(how, mine, theirs);
            }
        }
    }

    /// Matches the most similar first, of those with a common key.
    fn by_likeness(
        &mut self,
        how: How,
        before_keys: Keys,
        after_keys: Keys,
        likeness: fn(&KnownSite<'_>, &KnownSite<'_>) -> f64,
    ) {
        let mine = groups(self.before, &self.before_done, before_keys);
        let theirs = groups(self.after, &self.after_done, after_keys);
        let sought = mine.iter().filter_map(|(key, mine)| {
            let theirs = theirs.get(key)?;
            Some(mine.iter().map(|before| (*before, &theirs[..])))
        });
        self.take_best(how, sought.flatten(), how.least(), likeness);
    }

    /// Matches sites within their groups, the most similar first.
    fn take_best<'g>(
        &mut self,
        how: How,
        sought: impl Iterator<Item = (usize, &'g [usize])>,
        least: f64,
        likeness: fn(&KnownSite<'_>, &KnownSite<'_>) -> f64,
    ) {
        let (before, after) = (self.before, self.after);
        let score = |a: usize, b: usize| {
            let score = likeness(&before[a], &after[b]);
            (score >= least).then_some(score)
        };
        for pair in best_first(sought, &mut self.after_done, score) {
            self.take(how, pair.before, pair.after);
        }
    }

    /// Matches the sites of one function: first the assignment with the highest total similarity that
    /// keeps the order, then very similar sites in another order.
    fn align(&mut self, how: How, mut mine: Vec<usize>, mut theirs: Vec<usize>) {
        if let ([a], [b], How::SameBuild | How::Function) = (&mine[..], &theirs[..], how) {
            return self.take(how, *a, *b);
        }
        order::sort_by_key(&mut mine, |a| self.before[*a].order());
        order::sort_by_key(&mut theirs, |b| self.after[*b].order());
        for (a, b) in self.in_order(&mine, &theirs, how.least()) {
            self.take(how, a, b);
        }
        mine.retain(|a| !self.before_done[*a]);
        theirs.retain(|b| !self.after_done[*b]);
        let least = how.least().max(How::OtherModule.least());
        let sought = mine.iter().map(|before| (*before, &theirs[..]));
        self.take_best(how, sought, least, alike);
    }

    /// The pairs, in the order of both sides, with the highest total similarity.
    fn in_order(&self, mine: &[usize], theirs: &[usize], least: f64) -> Vec<(usize, usize)> {
        let width = theirs.len() + 1;
        // best[i][j]: the total for the first i and the first j.
        let mut best = vec![0.0f64; (mine.len() + 1) * width];
        let likeness = |i: usize, j: usize| {
            let score = alike(&self.before[mine[i]], &self.after[theirs[j]]);
            if score >= least { score } else { 0.0 }
        };
        for i in 0..mine.len() {
            for j in 0..theirs.len() {
                let skipped = best[i * width + j + 1].max(best[(i + 1) * width + j]);
                best[(i + 1) * width + j + 1] = skipped.max(best[i * width + j] + likeness(i, j));
            }
        }
        let mut pairs = Vec::new();
        let (mut i, mut j) = (mine.len(), theirs.len());
        while i > 0 && j > 0 {
            let here = best[i * width + j];
            if here == best[(i - 1) * width + j] {
                i -= 1;
            } else if here == best[i * width + j - 1] {
                j -= 1;
            } else {
                (i, j) = (i - 1, j - 1);
                pairs.push((mine[i], theirs[j]));
            }
        }
        pairs
    }

    fn take(&mut self, how: How, before: usize, after: usize) {
        let (a, b) = (&self.before[before], &self.after[after]);
        // Without lines in one build nothing shows another file.
        let how = match how {
            How::OtherFile if a.file_name.is_none() || b.file_name.is_none() => How::Function,
            how => how,
        };
        self.before_done[before] = true;
        self.after_done[after] = true;
        self.found.push(Match { before, after, how });
    }
}

/// The unmatched sites by key, up to `GROUP` of each; in the order of the sites, that is by calls.
fn groups<K: Ord>(
    sites: &[KnownSite<'_>],
    done: &[bool],
    keys: impl Fn(&KnownSite<'_>) -> Vec<K>,
) -> BTreeMap<(K, Option<Rc<str>>), Vec<usize>> {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, known) in sites.iter().enumerate().filter(|(index, _)| !done[*index]) {
        for key in keys(known) {
            let group = groups.entry((key, known.call())).or_default();
            if group.len() < GROUP {
                group.push(index);
            }
        }
    }
    groups
}
