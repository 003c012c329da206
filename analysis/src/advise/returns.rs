//! Determines which functions have certainly returned since an event of a thread.
//!
//! Given two calls of one thread with stacks A and B, every function outside of their common part has
//! returned or was entered in between. So a function on the stack of event i may still be running if it
//! is in the common stack of every neighbouring pair since; otherwise it has returned.
//!
//! Invariant: the depths in `dips` rise from bottom to top, and so do the events; the top is the last
//! event. Up to as many entries as the deepest stack has frames; a step costs the frames by which two
//! neighbouring stacks differ.

use larder_trace::{StackId, StackTable};

/// The common part of two stacks; the complete root if they have none.
pub fn common(stacks: &StackTable, a: StackId, b: StackId) -> StackId {
    let (mut a, mut b) = (a, b);
    // A node's parent has a smaller number, so the larger one is never an ancestor of the other.
    while a != b {
        let larger = if a.0 > b.0 { &mut a } else { &mut b };
        let parent = stacks.parent(*larger);
        if parent == *larger {
            return StackId::COMPLETE_ROOT;
        }
        *larger = parent;
    }
    a
}

/// Depths of stacks, computed once, and those that neighbours share.
#[derive(Default)]
pub struct Depths {
    of: Vec<u32>,
    /// The last pairs of neighbours, each in a place of its own: a loop has the same again and again. `PAIRS`, or
    /// none before the first.
    pairs: Vec<(StackId, StackId, u32)>,
}

/// A power of two; they take 192 KiB.
const PAIRS: usize = 1 << 14;
const NO_STACK: StackId = StackId(u32::MAX);

impl Depths {
    /// The frames that may have stayed between two calls of a thread that follow each other.
    #[inline]
    fn between(&mut self, stacks: &StackTable, last: StackId, next: StackId) -> u32 {
        let mixed = last.0.rotate_left(16) ^ next.0;
        let place = (mixed.wrapping_mul(0x9e37_79b9) >> (u32::BITS - PAIRS.ilog2())) as usize;
        match self.pairs.get(place) {
            Some((a, b, depth)) if (*a, *b) == (last, next) => *depth,
            _ => self.compare(stacks, last, next, place),
        }
    }

    #[inline(never)]
    fn compare(&mut self, stacks: &StackTable, last: StackId, next: StackId, place: usize) -> u32 {
        let shared = common(stacks, last, next);
        // A call whose whole stack is a part of the next one has returned: its own frame is gone.
        let gone = u32::from(shared == last);
        let depth = self.of(stacks, shared).saturating_sub(gone);
        self.pairs.resize(PAIRS, (NO_STACK, NO_STACK, 0));
        self.pairs[place] = (last, next, depth);
        depth
    }

    /// Frames of a stack.
    #[inline]
    pub fn of(&mut self, stacks: &StackTable, stack: StackId) -> u32 {
        match self.of.get(stack.0 as usize) {
            Some(depth) => *depth,
            None => self.count(stacks, stack),
        }
    }

    /// A parent comes before its children.
    #[cold]
    fn count(&mut self, stacks: &StackTable, stack: StackId) -> u32 {
        for number in self.of.len() as u32..=stack.0 {
            let parent = stacks.parent(StackId(number)).0;
            let outer = (parent < number).then(|| self.of[parent as usize]);
            self.of.push(outer.map_or(0, |depth| depth + 1));
        }
        self.of[stack.0 as usize]
    }
}

/// Most blocks are young: the last entries are looked through one by one.
const YOUNG: usize = 8;

/// One thread's history.
#[derive(Default)]
pub struct Returns {
    /// An event, and the depth of the common part of its stack and the one before.
    dips: Vec<(u64, u32)>,
    last: Option<StackId>,
    events: u64,
}

impl Returns {
    /// Adds the thread's next event; returns its number.
    #[inline]
    pub fn step(&mut self, stacks: &StackTable, depths: &mut Depths, stack: StackId) -> u64 {
        self.events += 1;
        if let Some(last) = self.last {
            let depth = depths.between(stacks, last, stack);
            while self.dips.pop_if(|(_, deeper)| *deeper >= depth).is_some() {}
            self.dips.push((self.events, depth));
        }
        self.last = Some(stack);
        self.events
    }

    pub fn now(&self) -> u64 {
        self.events
    }

    /// The largest number of frames that may have stayed on the stack from event `since` until now.
    pub fn stayed(&self, since: u64) -> u32 {
        let before = |(event, _): &(u64, u32)| *event <= since;
        let (old, young) = self.dips.split_at(self.dips.len().saturating_sub(YOUNG));
        let after = match young.iter().rposition(before) {
            Some(last) => old.len() + last + 1,
            None => old.partition_point(before),
        };
        self.dips.get(after).map_or(u32::MAX, |(_, depth)| *depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(paths: &[&[u64]]) -> (StackTable, Vec<StackId>) {
        let mut table = StackTable::default();
        let ids = paths.iter().map(|path| table.intern(path)).collect();
        (table, ids)
    }

    const MAIN: &[u64] = &[1];
    const A: &[u64] = &[1, 10, 11];
    const A_OTHER_LINE: &[u64] = &[1, 10, 12];
    const B: &[u64] = &[1, 20];

    #[test]
    fn two_stacks_share_their_outer_frames() {
        let (table, ids) = stacks(&[MAIN, A, A_OTHER_LINE, B, &[1, 10], &[9]]);
        assert_eq!(common(&table, ids[1], ids[2]), ids[4]);
        assert_eq!(common(&table, ids[1], ids[3]), ids[0]);
        assert_eq!(common(&table, ids[1], ids[1]), ids[1]);
        assert_eq!(common(&table, ids[1], ids[4]), ids[4]);
        assert_eq!(common(&table, ids[1], ids[5]), StackId::COMPLETE_ROOT);
        let mut depths = Depths::default();
        let all: Vec<u32> = ids.iter().map(|id| depths.of(&table, *id)).collect();
        assert_eq!(all, [1, 3, 3, 2, 2, 1]);
        assert_eq!(depths.of(&table, StackId::COMPLETE_ROOT), 0);
    }

    #[test]
    fn calls_ever_deeper_stay_in_what_the_first_of_them_leaves() {
        let whole: Vec<u64> = (1..=40).collect();
        let paths: Vec<&[u64]> = (1..=whole.len()).map(|depth| &whole[..depth]).collect();
        let (table, ids) = stacks(&paths);
        let (mut returns, mut depths) = (Returns::default(), Depths::default());
        ids.iter()
            .for_each(|id| _ = returns.step(&table, &mut depths, *id));
        for event in 1..whole.len() as u64 {
            assert_eq!(returns.stayed(event), event as u32 - 1);
        }
        assert_eq!(returns.stayed(whole.len() as u64), u32::MAX);
    }

    #[test]
    fn neighbours_with_one_place_in_the_table_are_told_apart() {
        let mut random = fastrand::Rng::with_seed(5);
        let paths: Vec<Vec<u64>> = (0..500)
            .map(|_| {
                (0..1 + random.usize(..6))
                    .map(|_| random.u64(1..4))
                    .collect()
            })
            .collect();
        let paths: Vec<&[u64]> = paths.iter().map(|path| &path[..]).collect();
        let (table, ids) = stacks(&paths);
        let mut depths = Depths::default();
        for _ in 0..4 * PAIRS {
            let [last, next] = [(); 2].map(|()| random.usize(..ids.len()));
            let shared = paths[last].iter().zip(paths[next]);
            let shared = shared.take_while(|(a, b)| a == b).count();
            let gone = usize::from(shared == paths[last].len());
            let between = depths.between(&table, ids[last], ids[next]);
            assert_eq!(between as usize, shared - gone);
        }
    }

    #[test]
    fn a_call_elsewhere_shows_that_a_function_has_returned() {
        let (table, ids) = stacks(&[A, A_OTHER_LINE, B]);
        let (mut returns, mut depths) = (Returns::default(), Depths::default());
        let mut step =
            |returns: &mut Returns, index: usize| returns.step(&table, &mut depths, ids[index]);
        let made = step(&mut returns, 0);
        assert_eq!(returns.stayed(made), u32::MAX);
        step(&mut returns, 1);
        assert_eq!(
            returns.stayed(made),
            2,
            "still in the function called from line 10"
        );
        let later = step(&mut returns, 0);
        step(&mut returns, 2);
        assert_eq!(returns.stayed(made), 1, "only main is left");
        assert_eq!(returns.stayed(later), 1);
        let last = step(&mut returns, 2);
        assert_eq!(returns.stayed(last), u32::MAX);
        assert_eq!(returns.stayed(last - 1), 1);
    }
}
