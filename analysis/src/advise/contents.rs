//! Finds blocks that had equal contents while both were live, from what a trace records of each block
//! at its end; and counts calloc's blocks without a zero left.
//!
//! For each content, lives that overlap form a group that one block could have served: all but the
//! first are copies. Ends come in order, so a new life overlaps a group if it began before the group's
//! last end. A long life can also cover groups that ended since it began: `before` stores them, summed
//! up by origin, like `copies` those of the group. A life that joins as the first has outlived the
//! others: it could have served for each.
//!
//! Memory: 100 bytes for each of the `MOST` contents used last; older ones are forgotten, so copies may
//! be missed, but never invented. 40 bytes a pair of origins, up to `MOST_PAIRS`; 24 bytes a live block
//! with a record.

use larder_trace::Fingerprint;
use rustc_hash::FxHashMap;

/// Contents of one generation; two are stored.
const MOST: usize = 1 << 18;
const MOST_PAIRS: usize = 1 << 16;
/// Groups stored for a content, besides the last; and origins of a group's copies.
const MOST_BEFORE: usize = 8;
/// Smaller blocks are equal by chance.
const SMALLEST: u64 = 16;

/// A block's life, in numbers of allocations.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub origin: u32,
    pub size: u64,
    pub made: u64,
    pub ended: u64,
}

/// Copies of one origin of the blocks of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    pub blocks: u64,
    pub bytes: u64,
    /// The blocks with text or data.
    pub dense: u64,
    /// The blocks that ended no later than the block of which they are copies.
    pub outlived: u64,
    /// The number of equal blocks that were certainly live at once, and their size.
    pub most: u64,
    pub most_size: u64,
}

/// The contents of calloc's blocks of an origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Zeros {
    /// Blocks with a record.
    pub checked: u64,
    pub overwritten: u64,
    pub data: u64,
}

/// Groups of one origin, each ended before the next began.
#[derive(Clone, Copy)]
struct Before {
    origin: u32,
    groups: u64,
    made: u64,
}

/// Keyed by the origins of copy and first block.
pub type Pairs = FxHashMap<(u32, u32), Copies>;

struct Group {
    /// The origin of the first block, its allocation, and its end.
    origin: u32,
    made: u64,
    first_ended: u64,
    ended: u64,
    /// By origin, the copies that the first block has not outlived.
    copies: Vec<(u32, u64)>,
    /// The number of lives that cover this moment.
    moment: u64,
    covering: u64,
    before: Vec<Before>,
}

#[derive(Default)]
pub struct Contents {
    /// By address.
    fingerprints: FxHashMap<u64, Fingerprint>,
    /// By size and hash.
    groups: FxHashMap<(u64, u64), Group>,
    older: FxHashMap<(u64, u64), Group>,
    copies: Pairs,
    any: bool,
}

impl Contents {
    pub fn record(&mut self, address: u64, held: Fingerprint) {
        self.any = true;
        self.fingerprints.insert(address, held);
    }

    /// Takes the contents of the block at this address.
    #[inline]
    pub fn take(&mut self, address: u64) -> Option<Fingerprint> {
        match self.any {
            true => self.fingerprints.remove(&address),
            false => None,
        }
    }

    /// A block ended, not by a realloc.
    pub fn end(&mut self, held: Fingerprint, life: Life) {
        if life.size < SMALLEST || held.has(Fingerprint::UNIFORM) {
            return;
        }
        let key = (life.size, held.hash);
        let known = self.groups.remove(&key).or_else(|| self.older.remove(&key));
        let group = match known {
            None => Group::new(life),
            Some(group) if group.ended < life.made => group.followed_by(life),
            Some(mut group) => {
                let dense = held.has(Fingerprint::DENSE);
                group.join(life, dense, &mut self.copies);
                group
            }
        };
        if self.groups.len() >= MOST {
            self.older = std::mem::take(&mut self.groups);
        }
        self.groups.insert(key, group);
    }

    /// Copies by the origins of copy and first block; and whether the trace has any contents.
    pub fn finish(self) -> (Pairs, bool) {
        (self.copies, self.any)
    }
}

impl Group {
    fn new(life: Life) -> Self {
        Group {
            origin: life.origin,
            made: life.made,
            first_ended: life.ended,
            ended: life.ended,
            copies: Vec::new(),
            moment: life.ended,
            covering: 1,
            before: Vec::new(),
        }
    }

    /// Closes the group and begins another with this life.
    fn followed_by(mut self, life: Life) -> Self {
        match self.before.last_mut() {
            Some(last) if last.origin == self.origin => last.groups += 1,
            _ => {
                if self.before.len() == MOST_BEFORE {
                    self.before.remove(0);
                }
                self.before.push(Before {
                    origin: self.origin,
                    groups: 1,
                    made: self.made,
                });
            }
        }
        Group {
            before: self.before,
            ..Group::new(life)
        }
    }

    fn join(&mut self, life: Life, dense: bool, pairs: &mut Pairs) {
        if life.made <= self.moment {
            self.covering += 1;
        } else {
            (self.moment, self.covering) = (life.ended, 1);
        }
        self.ended = life.ended;
        let met = Met {
            size: life.size,
            dense: u64::from(dense),
            most: self.covering.max(2),
        };
        if life.made > self.made {
            // Ends come in order, except for blocks live at the end.
            let outlived = self.first_ended == u64::MAX;
            let kept = add(pairs, (life.origin, self.origin), met, 1, outlived);
            if kept && !outlived {
                self.keep(life.origin);
            }
            return;
        }
        for (origin, blocks) in std::mem::take(&mut self.copies) {
            if let Some(was) = pairs.get_mut(&(origin, self.origin)) {
                was.blocks = was.blocks.saturating_sub(blocks);
                was.dense = was.dense.saturating_sub(met.dense * blocks);
                was.bytes = was.bytes.saturating_sub(blocks.saturating_mul(life.size));
            }
            add(pairs, (origin, life.origin), met, blocks, true);
        }
        add(pairs, (self.origin, life.origin), met, 1, true);
        while let Some(before) = self.before.pop_if(|before| life.made <= before.made) {
            let pair = (before.origin, life.origin);
            add(pairs, pair, met, before.groups, true);
        }
        (self.origin, self.made, self.first_ended) = (life.origin, life.made, life.ended);
    }

    fn keep(&mut self, origin: u32) {
        let known = self.copies.iter().position(|(known, _)| *known == origin);
        match known {
            Some(place) => self.copies[place].1 += 1,
            None if self.copies.len() < MOST_BEFORE => self.copies.push((origin, 1)),
            None => {}
        }
    }
}

/// Equal blocks that were live at once.
#[derive(Clone, Copy)]
struct Met {
    size: u64,
    dense: u64,
    most: u64,
}

/// Adds copies of one origin of a block of the other. Returns whether there was space for the pair.
fn add(pairs: &mut Pairs, pair: (u32, u32), met: Met, blocks: u64, outlived: bool) -> bool {
    if pairs.len() >= MOST_PAIRS && !pairs.contains_key(&pair) {
        return false;
    }
    let of = pairs.entry(pair).or_default();
    of.blocks += blocks;
    of.outlived += if outlived { blocks } else { 0 };
    of.dense += met.dense * blocks;
    let bytes = blocks.saturating_mul(met.size);
    of.bytes = of.bytes.saturating_add(bytes);
    if met.most > of.most {
        (of.most, of.most_size) = (met.most, met.size);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Fingerprint = Fingerprint { hash: 7, flags: 0 };

    fn life(origin: u32, made: u64, ended: u64) -> Life {
        Life {
            origin,
            size: 100,
            made,
            ended,
        }
    }

    /// Copies, those outlived, and the most at once, by the origins of copy and first block.
    fn copies(lives: &[Life]) -> Vec<(u32, u32, u64, u64, u64)> {
        let mut contents = Contents::default();
        for life in lives {
            contents.end(HELD, *life);
        }
        let (copies, _) = contents.finish();
        let flat = |((copy, first), copies): ((u32, u32), Copies)| {
            assert_eq!(copies.bytes, 100 * copies.blocks);
            (copy, first, copies.blocks, copies.outlived, copies.most)
        };
        let some = copies.into_iter().filter(|(_, copies)| copies.blocks > 0);
        let mut all: Vec<_> = some.map(flat).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn lives_that_overlap_are_copies_of_the_first() {
        let together: Vec<Life> = (1..=10).map(|n| life(1, n, 10)).collect();
        assert_eq!(copies(&together), [(1, 1, 9, 0, 10)]);
        let reversed: Vec<Life> = together.iter().rev().copied().collect();
        assert_eq!(copies(&reversed), [(1, 1, 9, 9, 10)]);
        let left: Vec<Life> = (1..=10).map(|n| life(1, n, u64::MAX)).collect();
        assert_eq!(copies(&left), [(1, 1, 9, 9, 10)]);
        let window: Vec<Life> = (1..=50).map(|n| life(1, n, n + 4)).collect();
        assert_eq!(copies(&window), [(1, 1, 49, 0, 5)]);
    }

    #[test]
    fn lives_one_after_another_are_none() {
        let apart: Vec<Life> = (1..=50).map(|n| life(1, n, n)).collect();
        assert_eq!(copies(&apart), []);
    }

    #[test]
    fn one_that_lived_all_the_time_is_the_first_of_all() {
        let mut lives: Vec<Life> = (2..=50).map(|n| life(2, n, n)).collect();
        lives.push(life(1, 1, 50));
        assert_eq!(copies(&lives), [(2, 1, 49, 49, 2)]);
        // Only the last groups certainly overlap this life.
        lives.pop();
        lives.push(life(1, 49, 50));
        assert_eq!(copies(&lives), [(2, 1, 1, 1, 2)]);
    }

    #[test]
    fn copies_of_a_block_that_outlives_them_are_its_own_in_any_order_of_ends() {
        let mut lives: Vec<Life> = (2..=9).map(|n| life(2, n, 10 + n)).collect();
        assert_eq!(copies(&lives), [(2, 2, 7, 0, 8)]);
        lives.push(life(1, 1, 30));
        assert_eq!(copies(&lives), [(2, 1, 8, 8, 9)]);
        lives.push(life(3, 25, 40));
        assert_eq!(copies(&lives), [(2, 1, 8, 8, 9), (3, 1, 1, 0, 2)]);
    }

    #[test]
    fn sizes_hashes_fillers_and_small_blocks_are_distinguished() {
        let mut contents = Contents::default();
        let other = Fingerprint { hash: 8, flags: 0 };
        let filler = Fingerprint {
            flags: Fingerprint::UNIFORM,
            ..HELD
        };
        for made in 1..10 {
            contents.end(Fingerprint { hash: made, ..HELD }, life(1, made, 10));
            contents.end(filler, life(1, made, 10));
            let sized = |size| Life {
                size,
                ..life(1, made, 10)
            };
            contents.end(other, sized(15));
            contents.end(other, sized(100 + made));
        }
        assert!(contents.finish().0.is_empty());
    }

    #[test]
    fn contents_of_long_ago_are_forgotten_and_memory_is_bounded() {
        let mut contents = Contents::default();
        for hash in 0..3 * MOST as u64 {
            contents.end(Fingerprint { hash, flags: 0 }, life(1, hash + 1, u64::MAX));
            assert!(contents.groups.len() + contents.older.len() <= 2 * MOST);
        }
        contents.end(Fingerprint { hash: 0, flags: 0 }, life(1, 2, u64::MAX));
        assert!(contents.copies.is_empty());
        let before: Vec<Life> = (1..100).map(|n| life(n as u32, n, n)).collect();
        let mut group = Group::new(before[0]);
        for life in &before {
            group = group.followed_by(*life);
            assert!(group.before.len() <= MOST_BEFORE);
        }
    }
}
