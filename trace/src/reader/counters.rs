//! What a recorder that only counts leaves: numbers for each stack and call, and sums of each stream.
//!
//! Memory is bounded by the file's size: a counter that counts nothing takes none.

use std::collections::BTreeMap;

use super::StackId;
use crate::call::AllocCall;
use crate::layout::{
    CHUNK_HEADER_BYTES, COUNTER_BYTES, COUNTER_PLACE_BITS, COUNTERS_OFFSET, u64_at,
};

/// Blocks that one call made from one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub calls: u64,
    /// Asked for by them.
    pub bytes: u64,
    /// Blocks under 32 bytes.
    pub tiny: u64,
    /// Blocks that were freed, or that a realloc made another of.
    pub ended: u64,
    pub ended_bytes: u64,
    /// The most bytes that were live at once, seen when one was made.
    pub highest_bytes: u64,
}

/// What belongs to no counter, of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub frees: u64,
    /// Of the frees: operator delete and delete[].
    pub deletes: u64,
    /// Calls that returned no memory.
    pub failed: u64,
    /// Frees and reallocs of blocks whose making was not seen.
    pub unknown_frees: u64,
    /// `free(NULL)` and its like, which are not among the frees.
    pub empty: u64,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub number: u32,
    pub call: AllocCall,
    pub stack: StackId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By number, those that count anything.
    pub by_number: BTreeMap<u32, Counter>,
    pub totals: Totals,
    /// The most bytes that were live at once in the process.
    pub peak_bytes: u64,
}

impl Counters {
    /// Takes in the payload of a chunk, or as much of it as is there.
    pub(super) fn add_region(&mut self, region: u32, payload: &[u8]) {
        let totals = &mut self.totals;
        let fields = [
            &mut totals.frees,
            &mut totals.deletes,
            &mut totals.failed,
            &mut totals.unknown_frees,
            &mut totals.empty,
        ];
        for (field, at) in fields.into_iter().zip((0..).step_by(8)) {
            *field = field.saturating_add(u64_at(payload, at));
        }
        let places = payload
            .get(COUNTERS_OFFSET - CHUNK_HEADER_BYTES..)
            .unwrap_or(&[])
            .chunks_exact(COUNTER_BYTES);
        let first = region.wrapping_shl(COUNTER_PLACE_BITS);
        for (place, bytes) in (0..1 << COUNTER_PLACE_BITS).zip(places) {
            let counter = Counter {
                calls: u64_at(bytes, 0),
                bytes: u64_at(bytes, 8),
                tiny: u64_at(bytes, 16),
                ended: u64_at(bytes, 24).saturating_add(u64_at(bytes, 48)),
                ended_bytes: u64_at(bytes, 32).saturating_add(u64_at(bytes, 56)),
                highest_bytes: u64_at(bytes, 40),
            };
            if counter.calls > 0 {
                self.by_number.insert(first | place, counter);
            }
        }
    }

    /// Calls of all kinds.
    pub fn calls(&self) -> u64 {
        let totals = &self.totals;
        let made = self.by_number.values().map(|counter| counter.calls);
        made.chain([totals.frees, totals.failed, totals.empty])
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(totals: [u64; 6], counters: &[[u64; 8]]) -> Vec<u8> {
        let words = totals.iter().chain(counters.iter().flatten());
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn regions_add_up_and_what_counts_nothing_is_left_out() {
        let mut counters = Counters::default();
        let used = [3, 30, 2, 1, 10, 25, 1, 15];
        counters.add_region(0, &payload([5, 1, 2, 3, 4, 0], &[used, [0; 8]]));
        counters.add_region(2, &payload([1, 0, 0, 0, 0, 0], &[[0; 8], used]));
        assert_eq!(
            counters.by_number.keys().copied().collect::<Vec<_>>(),
            [0, (2 << COUNTER_PLACE_BITS) | 1]
        );
        let counter = counters.by_number[&0];
        assert_eq!(
            (counter.calls, counter.ended, counter.ended_bytes),
            (3, 2, 25)
        );
        assert_eq!(counters.totals.frees, 6);
        assert_eq!(counters.calls(), 3 + 3 + 6 + 2 + 4);
    }

    #[test]
    fn a_cut_region_gives_what_is_whole() {
        let mut counters = Counters::default();
        let bytes = payload([1; 6], &[[7; 8], [7; 8]]);
        counters.add_region(u32::MAX, &bytes[..bytes.len() - 1]);
        assert_eq!(counters.by_number.len(), 1);
        counters.add_region(0, &bytes[..3]);
        counters.add_region(0, &payload([u64::MAX; 6], &[[u64::MAX; 8]]));
        assert_eq!(counters.calls(), u64::MAX);
    }
}
