//! The blocks of a trace, read to its end: those that are live, and where others were.
//!
//! Invariant: blocks are sorted by address and disjoint. Memory: 16 bytes a live block, and the trace
//! reader's.

use std::collections::BTreeMap;

use larder_trace::{Action, Trace};
use rustc_hash::FxHashMap;

use super::reach::Targets;

/// Blocks that are nearer than this have only the allocator's own words between them.
const NEAR: u64 = 32;
/// A freed block of at least this size may have been unmapped, and its addresses reused.
const LARGE: u64 = 1 << 20;

/// Ranges of addresses; near ones are joined.
#[derive(Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Joins ranges that are nearer than `NEAR`.
    fn add_near(&mut self, begin: u64, end: u64) {
        self.join(begin, end, NEAR);
    }

    pub fn add(&mut self, begin: u64, end: u64) {
        self.join(begin, end, 1);
    }

    fn join(&mut self, mut begin: u64, mut end: u64, near: u64) {
        if let Some((from, to)) = self.0.range(..=begin).next_back() {
            if *to >= end {
                return;
            }
            if to.saturating_add(near) > begin {
                begin = *from;
            }
        }
        loop {
            let reach = end.saturating_add(near);
            let next = self.0.range(begin..reach).next_back();
            let Some((from, to)) = next.map(|(from, to)| (*from, *to)) else {
                break;
            };
            self.0.remove(&from);
            end = end.max(to);
        }
        self.0.insert(begin, end);
    }

    pub fn into_vec(self) -> Vec<(u64, u64)> {
        self.0.into_iter().collect()
    }
}

pub struct Traced {
    /// Address and bytes. Invariant: bytes >= 1.
    blocks: Vec<(u64, u64)>,
    once: Ranges,
}

impl Traced {
    /// A freed large block counts as heap only if it was within `heap`. `None`: calls are missing.
    pub fn read(trace: &Trace, heap: (u64, u64)) -> Option<Self> {
        let mut events = trace.events();
        let mut live: FxHashMap<u64, u64> = FxHashMap::default();
        let mut moving: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        let mut once = Ranges::default();
        let mut make = |live: &mut FxHashMap<u64, u64>, address: u64, size: u64| {
            let bytes = size.max(1);
            let end = address.checked_add(bytes).filter(|_| address != 0)?;
            let in_heap = heap.0 <= address && end <= heap.1;
            if bytes < LARGE || in_heap {
                once.add_near(address, end);
            }
            live.insert(address, bytes)
        };
        while let Some(event) = events.next() {
            match event.action {
                Action::Alloc { address, size, .. } => _ = make(&mut live, address, size),
                Action::Free { address, .. } => _ = live.remove(&address),
                Action::ReallocStart { old, .. } => {
                    if let Some(bytes) = live.remove(&old) {
                        moving.insert(event.thread, (old, bytes));
                    }
                }
                Action::ReallocEnd {
                    old, address, size, ..
                } => {
                    let failed = address == 0 && !(size == 0 && old != 0);
                    match moving.remove(&event.thread) {
                        Some((old, bytes)) if failed => _ = live.entry(old).or_insert(bytes),
                        _ => _ = make(&mut live, address, size),
                    }
                }
                _ => {}
            }
        }
        let missing = trace.losses().calls() > 0 || trace.counters().is_some();
        if missing || !events.damage().is_empty() {
            return None;
        }
        // A thread may be in the middle of the realloc: the old block may still be in use.
        for (old, bytes) in moving.into_values() {
            live.entry(old).or_insert(bytes);
        }
        let mut blocks: Vec<(u64, u64)> = live.into_iter().collect();
        blocks.sort_unstable();
        // A trace that contradicts itself may have overlaps.
        blocks.dedup_by(|next, before| next.0 < before.0 + before.1);
        u32::try_from(blocks.len()).ok()?;
        Some(Self { blocks, once })
    }

    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().map(|(address, _)| *address)
    }

    pub fn each_place(&self, mut visit: impl FnMut(u64, u64)) {
        for (address, bytes) in &self.blocks {
            visit(*address, address + bytes);
        }
    }

    /// Adds the parts of the range where blocks once were. Returns whether there are any.
    pub fn once_within(&self, begin: u64, end: u64, into: &mut Ranges) -> bool {
        let from = self.once.0.range(..begin).next_back();
        let (from, mut any) = (from.map_or(begin, |(from, _)| *from), false);
        for (start, stop) in self.once.0.range(from..end) {
            let (start, stop) = (begin.max(*start), end.min(*stop));
            if start < stop {
                into.add(start, stop);
                any = true;
            }
        }
        any
    }

    /// Whether the word is glibc's pointer to the next chunk: that lies two words before the chunk's
    /// memory, and the first of these is the last word of the previous chunk.
    pub fn is_header(&self, address: u64) -> bool {
        let Some(number) = self.find(address) else {
            return false;
        };
        let (begin, bytes) = self.place(number);
        address.is_multiple_of(16) && address > begin && begin + bytes - address <= 8
    }
}

impl Targets for Traced {
    type Slot = u32;

    fn count(&self) -> u32 {
        self.blocks.len() as u32
    }

    #[inline]
    fn find(&self, address: u64) -> Option<u32> {
        let (low, high) = (self.blocks.first()?.0, self.blocks.last()?);
        if address < low || address >= high.0 + high.1 {
            return None;
        }
        let after = self.blocks.partition_point(|(begin, _)| *begin <= address);
        let number = after.checked_sub(1)?;
        let (begin, bytes) = self.blocks.get(number)?;
        (address - begin < *bytes).then_some(number as u32)
    }

    fn number(&self, slot: u32) -> u32 {
        slot
    }

    fn place(&self, slot: u32) -> (u64, u64) {
        self.blocks.get(slot as usize).copied().unwrap_or((0, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_become_one() {
        let of = |ranges: &[(u64, u64)]| {
            let mut all = Ranges::default();
            ranges.iter().for_each(|(begin, end)| all.add(*begin, *end));
            all.into_vec()
        };
        assert_eq!(of(&[(10, 20), (30, 40)]), [(10, 20), (30, 40)]);
        assert_eq!(of(&[(30, 40), (10, 20), (20, 30)]), [(10, 40)]);
        assert_eq!(of(&[(10, 20), (30, 40), (0, 100)]), [(0, 100)]);
        assert_eq!(of(&[(0, 100), (10, 20)]), [(0, 100)]);
        assert_eq!(of(&[(10, 20), (15, 35), (30, 40)]), [(10, 40)]);
    }

    #[test]
    fn what_is_near_is_joined_with_what_lies_between() {
        let mut once = Ranges::default();
        once.add_near(100, 110);
        once.add_near(141, 150);
        once.add_near(182, 190);
        assert_eq!(once.0.len(), 2);
        let traced = Traced {
            blocks: vec![(100, 10), (144, 24)],
            once,
        };
        let mut parts = Ranges::default();
        assert!(traced.once_within(105, 185, &mut parts));
        assert_eq!(parts.into_vec(), [(105, 150), (182, 185)]);
        let found = |address| traced.find(address);
        assert_eq!(
            [99, 100, 109, 110, 144, 167, 168].map(found),
            [None, Some(0), Some(0), None, Some(1), Some(1), None]
        );
        assert!(traced.is_header(160) && !traced.is_header(144) && !traced.is_header(152));
    }
}
