//! The live blocks: from an address to the block's size and its owner's number.
//!
//! Thread safety: a table is divided into shards with a spin lock each. Only code under the hooks' guard
//! may call, so that no signal handler waits for the thread it interrupted. In a child of fork call
//! `after_fork` first.
//!
//! Invariants: an entry has 16 bytes; used ≤ 7/8 × capacity of a shard, so that a search ends; no place
//! between an entry and the place of its hash is empty.
//!
//! Memory: 18 to 28 bytes × the maximum of live blocks, and a page for each 256 KiB of addresses that had
//! any, up to 4 MiB. It is never unmapped. A shard that grows moves its entries while it is locked.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::memory::Pages;
use crate::{hash, sys};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes, below 2^48.
    pub size: u64,
    pub owner: u32,
}

/// The block cannot be stored: no memory, or an address or a size of 2^48 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Address in the low 48 bits, size in the next 48, owner in the rest; 0 is an empty place.
type Entry = u128;

const FIELD_BITS: u32 = 48;
const FIELD_END: u64 = 1 << FIELD_BITS;
/// Neighbouring blocks are in one shard: allocators give each thread memory of its own, so mostly one
/// thread uses a shard. With few shards, each would serve all threads.
const PART_BITS: u32 = 18;
const SHARDS: usize = 1024;
const FIRST_ENTRIES: usize = 4096 / size_of::<Entry>();

fn address_of(entry: Entry) -> u64 {
    entry as u64 & (FIELD_END - 1)
}

fn block_of(entry: Entry) -> Block {
    Block {
        size: (entry >> FIELD_BITS) as u64 & (FIELD_END - 1),
        owner: (entry >> (2 * FIELD_BITS)) as u32,
    }
}

struct Entries {
    places: Pages<Entry>,
    used: usize,
}

#[repr(align(64))]
struct Shard {
    locked: AtomicBool,
    entries: UnsafeCell<Entries>,
}

impl Shard {
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&mut Entries) -> R) -> R {
        while self.locked.swap(true, Ordering::Acquire) {
            sys::yield_processor();
        }
        // SAFETY: the lock is held.
        let result = act(unsafe { &mut *self.entries.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

pub struct Blocks {
    shards: [Shard; SHARDS],
}

// SAFETY: entries are only accessed under their shard's lock.
unsafe impl Sync for Blocks {}

impl Blocks {
    pub const fn new() -> Self {
        Blocks {
            shards: [const {
                Shard {
                    locked: AtomicBool::new(false),
                    entries: UnsafeCell::new(Entries {
                        places: Pages::empty(),
                        used: 0,
                    }),
                }
            }; SHARDS],
        }
    }

    /// Adds a block. Returns the one that was recorded as live at its address.
    #[inline]
    pub fn insert(&self, address: usize, block: Block) -> Result<Option<Block>, Refused> {
        let address = address as u64;
        if address == 0 || address >= FIELD_END || block.size >= FIELD_END {
            return Err(Refused);
        }
        let entry = Entry::from(address)
            | Entry::from(block.size) << FIELD_BITS
            | Entry::from(block.owner) << (2 * FIELD_BITS);
        self.with(address, |entries| entries.insert(entry))
    }

    /// The block at an address.
    #[inline]
    pub fn find(&self, address: usize) -> Option<Block> {
        self.while_live(address, |block| block)
    }

    /// Acts on the block at an address, which cannot be removed meanwhile: its shard is locked, so `act` must not
    /// call the table.
    #[inline]
    pub fn while_live<R>(&self, address: usize, act: impl FnOnce(Block) -> R) -> Option<R> {
        let address = address as u64;
        if address == 0 || address >= FIELD_END {
            return None;
        }
        self.with(address, |entries| {
            entries.find(address).map(|(_, block)| act(block))
        })
    }

    /// Removes the block at an address and returns it.
    #[inline]
    pub fn take(&self, address: usize) -> Option<Block> {
        let address = address as u64;
        if address == 0 || address >= FIELD_END {
            return None;
        }
        self.with(address, |entries| entries.take(address))
    }

    /// Visits every live block, in no order. Its shard is locked meanwhile, so the visitor must not call the
    /// table.
    pub fn each(&self, mut act: impl FnMut(usize, Block)) {
        for shard in &self.shards {
            shard.with(|entries| {
                let places = entries.places.slice().iter();
                for &entry in places.filter(|entry| **entry != 0) {
                    act(address_of(entry) as usize, block_of(entry));
                }
            });
        }
    }

    #[inline]
    fn with<R>(&self, address: u64, act: impl FnOnce(&mut Entries) -> R) -> R {
        let part = hash::top(address >> PART_BITS, SHARDS.trailing_zeros());
        self.shards[part].with(act)
    }

    /// In a child of fork: starts with no live blocks. A shard that another thread was changing is leaked,
    /// because it may be inconsistent.
    pub fn after_fork(&self) {
        for shard in &self.shards {
            // SAFETY: the child has one thread.
            let entries = unsafe { &mut *shard.entries.get() };
            if !shard.locked.load(Ordering::Acquire) {
                if entries.places.capacity() == 0 {
                    // Its page stays the parent's as well.
                    continue;
                }
                entries.places.release();
            }
            *entries = Entries {
                places: Pages::empty(),
                used: 0,
            };
            shard.locked.store(false, Ordering::Release);
        }
    }
}

impl Entries {
    /// The place of an address's hash in this many places.
    #[inline]
    fn home(address: u64, places: usize) -> usize {
        ((u128::from(hash::spread(address)) * places as u128) >> 64) as usize
    }

    fn insert(&mut self, entry: Entry) -> Result<Option<Block>, Refused> {
        let capacity = self.places.capacity();
        if (self.used + 1) * 8 > capacity * 7 && !self.grow(capacity) {
            return Err(Refused);
        }
        let replaced = put(self.places.slice(), entry);
        self.used += usize::from(replaced.is_none());
        Ok(replaced.map(block_of))
    }

    #[cold]
    fn grow(&mut self, capacity: usize) -> bool {
        let mut bigger = Pages::empty();
        if !bigger.grow((capacity + capacity / 2).max(FIRST_ENTRIES)) {
            return false;
        }
        for &entry in self.places.slice().iter().filter(|entry| **entry != 0) {
            put(bigger.slice(), entry);
        }
        self.places.release();
        self.places = bigger;
        true
    }

    fn find(&mut self, address: u64) -> Option<(usize, Block)> {
        let places = self.places.slice();
        let count = places.len();
        let mut at = Self::home(address, count);
        loop {
            let entry = *places.get(at)?;
            if entry == 0 {
                return None;
            }
            if address_of(entry) == address {
                return Some((at, block_of(entry)));
            }
            at = next(at, count);
        }
    }

    fn take(&mut self, address: u64) -> Option<Block> {
        let (at, found) = self.find(address)?;
        self.used -= 1;
        close_gap(self.places.slice(), at);
        Some(found)
    }
}

fn next(at: usize, count: usize) -> usize {
    if at + 1 == count { 0 } else { at + 1 }
}

/// Returns the entry that had the same address.
fn put(places: &mut [Entry], entry: Entry) -> Option<Entry> {
    let count = places.len();
    let address = address_of(entry);
    let mut at = Entries::home(address, count);
    loop {
        let place = places.get_mut(at)?;
        if *place == 0 {
            *place = entry;
            return None;
        }
        if address_of(*place) == address {
            return Some(std::mem::replace(place, entry));
        }
        at = next(at, count);
    }
}

/// Empties a place, and moves entries from behind it towards the places of their hashes.
fn close_gap(places: &mut [Entry], mut gap: usize) {
    let count = places.len();
    let mut at = gap;
    loop {
        at = next(at, count);
        let Some(&entry) = places.get(at) else { return };
        if entry == 0 {
            break;
        }
        let home = Entries::home(address_of(entry), count);
        // Distances, around the end: of the entry from the place of its hash, and from the gap.
        let from_home = (at + count - home) % count;
        let from_gap = (at + count - gap) % count;
        if from_home >= from_gap {
            places[gap] = entry;
            gap = at;
        }
    }
    places[gap] = 0;
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn block(size: u64, owner: u32) -> Block {
        Block { size, owner }
    }

    #[test]
    fn a_block_is_found_once_and_one_at_its_address_replaces_it() {
        let blocks = Blocks::new();
        let most = block(FIELD_END - 1, u32::MAX);
        assert_eq!(blocks.insert(0x7fff_ffff_fff8, most), Ok(None));
        assert_eq!(blocks.insert(0x7fff_ffff_fff8, block(0, 0)), Ok(Some(most)));
        assert_eq!(blocks.take(0x7fff_ffff_fff8), Some(block(0, 0)));
        assert_eq!(blocks.take(0x7fff_ffff_fff8), None);
        assert_eq!(blocks.take(0), None);
        blocks.after_fork();
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let blocks = Blocks::new();
        assert_eq!(blocks.insert(0, block(1, 1)), Err(Refused));
        assert_eq!(blocks.insert(1 << 48, block(1, 1)), Err(Refused));
        assert_eq!(blocks.insert(16, block(1 << 48, 1)), Err(Refused));
        assert_eq!(blocks.take(1 << 48), None);
        assert_eq!(blocks.take(16), None);
    }

    /// Against a plain map, with few addresses so that they collide, then with many.
    #[test]
    fn it_answers_what_a_map_does() {
        for addresses in [300, 40_000, 1 << 40] {
            let blocks = Blocks::new();
            let mut model = HashMap::new();
            let mut state = 7u64;
            for step in 0..300_000u32 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let address = 16 * (1 + (state >> 20) % addresses);
                if state >> 61 < 5 {
                    let new = block(state >> 32, step);
                    assert_eq!(
                        blocks.insert(address as usize, new),
                        Ok(model.insert(address, new))
                    );
                } else {
                    assert_eq!(blocks.take(address as usize), model.remove(&address));
                }
            }
            let mut reported = HashMap::new();
            blocks.each(|address, block| {
                assert_eq!(reported.insert(address as u64, block), None);
            });
            assert_eq!(reported, model);
            for (address, expected) in model {
                assert_eq!(blocks.take(address as usize), Some(expected));
            }
            blocks.after_fork();
        }
    }

    #[test]
    fn memory_stays_within_the_bound() {
        let blocks = Blocks::new();
        let live = 200_000;
        for number in 0..live {
            assert_eq!(
                blocks.insert(0x5555_0000_0000 + 32 * number, block(24, 1)),
                Ok(None)
            );
        }
        let places: usize = blocks
            .shards
            .iter()
            // SAFETY: no other thread has this table.
            .map(|shard| unsafe { (*shard.entries.get()).places.capacity() })
            .sum();
        let bytes = places * size_of::<Entry>();
        let parts = 1 + ((32 * live) >> PART_BITS);
        assert!(bytes <= 28 * live + 4096 * parts, "{bytes} bytes");
        blocks.after_fork();
    }

    #[test]
    fn threads_share_a_table() {
        static BLOCKS: Blocks = Blocks::new();
        let work = |thread: usize| {
            move || {
                for round in 0..20_000usize {
                    let address = 16 * (1 + thread + 4 * (round % 5_000));
                    assert_eq!(BLOCKS.insert(address, block(1, thread as u32)), Ok(None));
                    assert_eq!(BLOCKS.take(address), Some(block(1, thread as u32)));
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(work(n))).collect();
        for thread in threads {
            thread.join().expect("no assertion failed");
        }
    }

    #[test]
    fn a_child_of_fork_begins_anew_even_with_a_lock_held() {
        let blocks = Blocks::new();
        assert_eq!(blocks.insert(16, block(1, 1)), Ok(None));
        for shard in &blocks.shards {
            shard.locked.store(true, Ordering::Relaxed);
        }
        blocks.after_fork();
        assert_eq!(blocks.take(16), None);
        assert_eq!(blocks.insert(16, block(2, 2)), Ok(None));
        blocks.after_fork();
    }
}
