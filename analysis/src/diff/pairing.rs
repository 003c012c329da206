//! Pairs the members of two groups, the most similar first; each member is in up to one pair.
//!
//! Memory: `KEPT` candidates for each member of the first group, not all pairs. Time: members whose
//! candidates are all taken are compared again, so up to 1 / `KEPT` of the number of members times as
//! much as once.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Candidates of one member that are stored at a time.
const KEPT: usize = 32;

/// Two members and their similarity. The more similar pair is the greater; of equal ones the first.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub score: f64,
    pub before: usize,
    pub after: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |pair: &Self| (pair.before, pair.after);
        let score = self.score.total_cmp(&other.score);
        score.then_with(|| place(other).cmp(&place(self)))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

/// The groups in which a member of the first group is compared, and its best candidates.
#[derive(Default)]
struct Candidates<'g> {
    groups: Vec<&'g [usize]>,
    best: BTreeSet<Pair>,
    /// Whether there may be further candidates.
    more: bool,
}

impl Candidates<'_> {
    fn fill(&mut self, score: impl Fn(usize) -> Option<Pair>) {
        self.more = false;
        for after in self.groups.iter().flat_map(|group| group.iter()) {
            self.best.extend(score(*after));
            if self.best.len() > KEPT {
                self.best.pop_first();
                self.more = true;
            }
        }
    }
}

/// Returns the new pairs. `taken` has an entry for each member of the second group. `score`: `None` if
/// two are not similar enough.
pub fn best_first<'g>(
    sought: impl Iterator<Item = (usize, &'g [usize])>,
    taken: &mut [bool],
    score: impl Fn(usize, usize) -> Option<f64>,
) -> Vec<Pair> {
    let mut candidates: BTreeMap<usize, Candidates<'g>> = BTreeMap::new();
    for (before, group) in sought {
        let own = candidates.entry(before).or_default();
        own.groups.push(group);
        own.more = true;
    }
    let next = |before: usize, own: &mut Candidates<'g>, taken: &[bool]| loop {
        match own.best.pop_last() {
            Some(pair) if !taken[pair.after] => return Some(pair),
            Some(_) => {}
            None if !own.more => return None,
            None => own.fill(|after| {
                let score = score(before, after).filter(|_| !taken[after])?;
                Some(Pair {
                    score,
                    before,
                    after,
                })
            }),
        }
    };
    let firsts = candidates.iter_mut();
    let firsts = firsts.filter_map(|(before, own)| next(*before, own, taken));
    let mut heap: BinaryHeap<Pair> = firsts.collect();
    let mut found = Vec::new();
    while let Some(pair) = heap.pop() {
        if !taken[pair.after] {
            taken[pair.after] = true;
            found.push(pair);
        } else if let Some(own) = candidates.get_mut(&pair.before) {
            heap.extend(next(pair.before, own, taken));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few distinct values, so that many are equal.
    fn score(before: usize, after: usize) -> Option<f64> {
        let value = (before * 7919 + after * 104_729) % 11;
        (value > 2).then_some(value as f64)
    }

    #[test]
    fn what_is_found_is_what_sorting_all_pairs_finds() {
        let all: Vec<usize> = (0..300).collect();
        let sought =
            || (0..400).flat_map(|before| [(before, &all[..200]), (before, &all[before % 300..])]);
        let pairs =
            sought().flat_map(|(before, group)| group.iter().map(move |after| (before, *after)));
        let pair = |(before, after)| {
            score(before, after).map(|score| Pair {
                score,
                before,
                after,
            })
        };
        let mut pairs: Vec<Pair> = pairs.filter_map(pair).collect();
        pairs.sort();
        let (mut before_done, mut after_done) = ([false; 400], [false; 300]);
        let mut expected = Vec::new();
        for pair in pairs.into_iter().rev() {
            if !before_done[pair.before] && !after_done[pair.after] {
                (before_done[pair.before], after_done[pair.after]) = (true, true);
                expected.push(pair);
            }
        }
        let mut taken = [false; 300];
        assert_eq!(best_first(sought(), &mut taken, score), expected);
        assert_eq!(taken, after_done);
    }

    #[test]
    fn few_candidates_are_kept() {
        let all: Vec<usize> = (0..5000).collect();
        let mut own = Candidates {
            groups: vec![&all, &all],
            ..Candidates::default()
        };
        own.fill(|after| {
            Some(Pair {
                score: (after % 50) as f64,
                before: 0,
                after,
            })
        });
        let kept: Vec<usize> = own.best.iter().rev().map(|pair| pair.after).collect();
        assert_eq!(kept, (0..KEPT).map(|i| 49 + 50 * i).collect::<Vec<_>>());
        assert!(own.more);
    }
}
