//! The slots of live blocks by address. Neighbours in memory are neighbours here, as programs allocate blocks side by
//! side, and often free them so.
//!
//! A region of memory with a block has a row of cells, one for each multiple of 16, as most blocks are. The others have
//! a table of their own.
//!
//! Time: constant on the mean. Memory: up to 300 bytes for each region with a block, and for as many that had one.
//!
//! Invariants: `used` has the cells of each row that are not 0; `empty` rows with a region have none.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

const REGION_BYTES: u64 = 1024;
/// What most allocators align to.
const CELL_BYTES: u64 = 16;
const CELLS: usize = (REGION_BYTES / CELL_BYTES) as usize;
/// The number of no region.
const NO_REGION: u64 = u64::MAX;

pub struct Addresses {
    /// By region, its row.
    rows: FxHashMap<u64, u32>,
    /// The slots plus one; 0: there is no block.
    cells: Vec<[u32; CELLS]>,
    used: Vec<u8>,
    empty: usize,
    /// Rows without a region.
    free: Vec<u32>,
    /// The region that was looked up last, and its row.
    last: (u64, u32),
    unaligned: FxHashMap<u64, u32>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            rows: FxHashMap::default(),
            cells: Vec::new(),
            used: Vec::new(),
            empty: 0,
            free: Vec::new(),
            last: (NO_REGION, 0),
            unaligned: FxHashMap::default(),
        }
    }
}

/// The region and the cell of an address; `None` if it has no cell.
#[inline]
fn cell_of(address: u64) -> Option<(u64, usize)> {
    let cell = address % REGION_BYTES / CELL_BYTES;
    address
        .is_multiple_of(CELL_BYTES)
        .then_some((address / REGION_BYTES, cell as usize))
}

impl Addresses {
    #[inline]
    fn row(&mut self, region: u64) -> Option<usize> {
        if self.last.0 != region {
            self.last = (region, *self.rows.get(&region)?);
        }
        Some(self.last.1 as usize)
    }

    /// Gives an address the slot that `new` returns, unless it has one already: then the error is that.
    #[inline]
    pub fn insert(&mut self, address: u64, new: impl FnOnce() -> u32) -> Result<u32, u32> {
        let Some((region, cell)) = cell_of(address) else {
            return match self.unaligned.entry(address) {
                Entry::Vacant(place) => Ok(*place.insert(new())),
                Entry::Occupied(place) => Err(*place.get()),
            };
        };
        let row = self.row(region);
        let row = row.unwrap_or_else(|| self.add_row(region));
        let place = &mut self.cells[row][cell];
        if let Some(slot) = place.checked_sub(1) {
            return Err(slot);
        }
        let slot = new();
        *place = slot + 1;
        self.empty -= usize::from(self.used[row] == 0);
        self.used[row] += 1;
        Ok(slot)
    }

    /// Gives a region an empty row.
    #[inline(never)]
    fn add_row(&mut self, region: u64) -> usize {
        if self.empty > self.cells.len() / 2 {
            self.rows.retain(|_, row| {
                let is_used = self.used[*row as usize] > 0;
                if !is_used {
                    self.free.push(*row);
                }
                is_used
            });
            self.empty = 0;
        }
        self.empty += 1;
        let row = self.free.pop().unwrap_or_else(|| {
            self.cells.push([0; CELLS]);
            self.used.push(0);
            self.cells.len() as u32 - 1
        });
        self.rows.insert(region, row);
        self.last = (region, row);
        row as usize
    }

    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<u32> {
        let Some((region, cell)) = cell_of(address) else {
            return self.unaligned.remove(&address);
        };
        let row = self.row(region)?;
        let slot = std::mem::take(&mut self.cells[row][cell]).checked_sub(1)?;
        self.used[row] -= 1;
        self.empty += usize::from(self.used[row] == 0);
        Some(slot)
    }

    /// The slot of an address that is a multiple of 16.
    #[inline]
    pub fn peek(&self, address: u64) -> Option<u32> {
        let (region, cell) = cell_of(address)?;
        let row = *self.rows.get(&region)? as usize;
        self.cells[row][cell].checked_sub(1)
    }

    /// All addresses and their slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let aligned = self.rows.iter().flat_map(|(region, row)| {
            let first = region * REGION_BYTES;
            let cells = (0u64..).zip(&self.cells[*row as usize]);
            cells.filter_map(move |(cell, slot)| {
                Some((first + cell * CELL_BYTES, slot.checked_sub(1)?))
            })
        });
        let others = self.unaligned.iter();
        aligned.chain(others.map(|(address, slot)| (*address, *slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_map_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut map, mut addresses) = (FxHashMap::default(), Addresses::default());
        for slot in 0..200_000 {
            // Dense, sparse and unaligned ones, and the highest.
            let address = match random.u32(..4) {
                0 => random.u64(..400) * CELL_BYTES,
                1 => random.u64(..300) * 1_000_000 / CELL_BYTES * CELL_BYTES,
                2 => random.u64(..500),
                _ => u64::MAX - random.u64(..40),
            };
            let expected = map.get(&address).copied();
            if random.bool() {
                let inserted = addresses.insert(address, || slot);
                assert_eq!(inserted, expected.map_or(Ok(slot), Err));
                map.entry(address).or_insert(slot);
            } else {
                assert_eq!(addresses.remove(address), map.remove(&address));
            }
            let used = addresses.used.iter().filter(|used| **used > 0).count();
            assert_eq!(addresses.rows.len(), used + addresses.empty);
            let other = random.u64(..500) * CELL_BYTES;
            assert_eq!(addresses.peek(other), map.get(&other).copied());
        }
        let mut listed: Vec<(u64, u32)> = addresses.iter().collect();
        let mut expected: Vec<(u64, u32)> = map.into_iter().collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }

    #[test]
    fn rows_without_blocks_serve_other_regions() {
        let mut addresses = Addresses::default();
        for first in (0..1000).map(|region| region * REGION_BYTES) {
            for (address, slot) in [(first, 1), (first + CELL_BYTES, 2)] {
                assert_eq!(addresses.insert(address, || slot), Ok(slot));
            }
            assert_eq!(addresses.remove(first), Some(1));
            assert_eq!(addresses.remove(first + CELL_BYTES), Some(2));
            assert!(addresses.cells.len() <= 3);
        }
        assert_eq!(addresses.iter().count(), 0);
    }
}
