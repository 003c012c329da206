//! The result of a recorder that only counts: numbers for each stack and call, and sums of each stream.
//!
//! Memory is bounded by the file's size: a zero counter takes none.

use std::collections::BTreeMap;

use super::StackId;
use crate::call::AllocCall;
use crate::layout::{
    CHUNK_HEADER_BYTES, COUNTER_BYTES, COUNTER_PLACE_BITS, COUNTERS_OFFSET, u64_at,
};

/// Blocks that one call has allocated from one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub calls: u64,
    /// Their requested bytes.
    pub bytes: u64,
    /// Blocks under 32 bytes.
    pub tiny: u64,
    /// Blocks that were freed, or replaced by a realloc.
    pub ended: u64,
    pub ended_bytes: u64,
    /// Maximum of the live bytes, checked at each allocation.
    pub highest_bytes: u64,
}

/// Upper bound of the calls from one place.
const MOST_CALLS: u64 = 1 << 48;
const TINY_BLOCK_BYTES: u64 = 32;

impl Counter {
    /// Whether a recorder can have written this. A killed one leaves out the bytes of up to one call.
    fn is_plausible(&self) -> bool {
        let larger = self.calls.saturating_sub(self.tiny).saturating_sub(1);
        self.calls <= MOST_CALLS
            && self.tiny <= self.calls
            && self.ended <= self.calls
            && self.ended_bytes <= self.bytes
            && self.highest_bytes <= self.bytes
            && larger.saturating_mul(TINY_BLOCK_BYTES) <= self.bytes
    }
}

/// Sums over all threads that belong to no counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub frees: u64,
    /// Frees by operator delete and delete[].
    pub deletes: u64,
    /// Calls that returned no memory.
    pub failed: u64,
    /// Frees and reallocs of blocks whose allocation was not seen.
    pub unknown_frees: u64,
    /// `free(NULL)` and the like, which are not among the frees.
    pub empty: u64,
}

/// The stack and call of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub number: u32,
    pub call: AllocCall,
    pub stack: StackId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters that are not zero, by number.
    pub by_number: BTreeMap<u32, Counter>,
    pub totals: Totals,
    /// Maximum of the live bytes in the process.
    pub peak_bytes: u64,
}

impl Totals {
    fn of(payload: &[u8]) -> Self {
        let word = |at| u64_at(payload, at);
        Self {
            frees: word(0),
            deletes: word(8),
            failed: word(16),
            unknown_frees: word(24),
            empty: word(32),
        }
    }

    fn is_plausible(&self) -> bool {
        let calls = [self.frees, self.failed, self.unknown_frees, self.empty];
        calls.iter().all(|calls| *calls <= MOST_CALLS) && self.deletes <= self.frees
    }

    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.frees, more.frees),
            (&mut self.deletes, more.deletes),
            (&mut self.failed, more.failed),
            (&mut self.unknown_frees, more.unknown_frees),
            (&mut self.empty, more.empty),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

impl Counters {
    /// Adds the payload of a chunk, which may be truncated. No checksum covers it: returns where contents begin
    /// that no recorder can have written, and how many bytes were left out.
    pub(super) fn add_region(&mut self, region: u32, payload: &[u8]) -> Option<(u64, u64)> {
        let mut damaged: Option<(u64, u64)> = None;
        let mut leave_out = |at: usize, bytes: usize| {
            damaged.get_or_insert((at as u64, 0)).1 += bytes as u64;
        };
        let totals = Totals::of(payload);
        if totals.is_plausible() {
            self.totals.add(&totals);
        } else {
            leave_out(0, COUNTERS_OFFSET - CHUNK_HEADER_BYTES);
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
            if !counter.is_plausible() {
                let before = COUNTERS_OFFSET - CHUNK_HEADER_BYTES;
                leave_out(before + place as usize * COUNTER_BYTES, COUNTER_BYTES);
            } else if counter.calls > 0 {
                self.by_number.insert(first | place, counter);
            }
        }
        damaged
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
        let used = [3, 40, 2, 1, 10, 25, 1, 15];
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
        let whole = [7, 70, 7, 3, 30, 40, 4, 40];
        let bytes = payload([1; 6], &[whole, whole]);
        counters.add_region(u32::MAX, &bytes[..bytes.len() - 1]);
        assert_eq!(counters.by_number.len(), 1);
        counters.add_region(0, &bytes[..3]);
        assert_eq!(counters.calls(), 7 + 3);
    }

    #[test]
    fn what_no_recorder_can_have_written_is_left_out_and_reported() {
        let whole = [5, 100, 3, 2, 30, 90, 1, 20];
        let alone = |counter: [u64; 8]| {
            let mut counters = Counters::default();
            let damaged = counters.add_region(0, &payload([0; 6], &[counter]));
            (counters.by_number.len(), damaged)
        };
        assert_eq!(alone(whole), (1, None));
        // Killed between the call and its bytes.
        assert_eq!(alone([3, 32, 1, 0, 0, 0, 0, 0]), (1, None));
        for (field, value) in [
            (0, MOST_CALLS + 1),
            (0, 2),
            (0, 99),
            (1, 49),
            (2, 6),
            (3, 5),
            (4, 90),
            (5, 101),
            (6, u64::MAX),
        ] {
            let mut counter = whole;
            counter[field] = value;
            assert_eq!(alone(counter), (0, Some((48, 64))), "{field}: {value}");
        }
        let mut counters = Counters::default();
        let bytes = payload([u64::MAX; 6], &[whole, [u64::MAX; 8], whole]);
        assert_eq!(counters.add_region(0, &bytes), Some((0, 48 + 64)));
        assert_eq!((counters.by_number.len(), counters.calls()), (2, 10));
        let more_deletes = payload([1, 2, 0, 0, 0, 0], &[]);
        assert_eq!(counters.add_region(1, &more_deletes), Some((0, 48)));
    }
}
