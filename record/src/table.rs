//! A hash table from one number to another.
//!
//! Thread safety: belongs to its owner. Invariants: key 0 is an empty place; used ≤ 3/4 × places, so that a search
//! ends.

use crate::hash;
use crate::memory::Pages;

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    value: u64,
}

pub struct Table {
    places: Pages<Entry>,
    mask: usize,
    used: usize,
}

const FIRST_PLACES: usize = 256;

impl Table {
    pub const fn new() -> Self {
        Table {
            places: Pages::empty(),
            mask: 0,
            used: 0,
        }
    }

    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        Some(self.places.get(self.find(key)?)?.value)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut place = place_of(key) & self.mask;
        loop {
            let entry = self.places.get(place)?;
            if entry.key == key {
                return Some(place);
            }
            if entry.key == 0 {
                return None;
            }
            place = (place + 1) & self.mask;
        }
    }

    /// Sets the value of a key that has none. False: no memory, nothing changed.
    pub fn insert(&mut self, key: u64, value: u64) -> bool {
        if self.used * 4 >= self.places.capacity() * 3 && !self.grow() {
            return false;
        }
        put(self.places.slice(), self.mask, Entry { key, value });
        self.used += 1;
        true
    }

    /// Sets a key's value, whether it has one or none, if there is memory.
    pub fn set(&mut self, key: u64, value: u64) {
        let found = self.find(key);
        match found.and_then(|place| self.places.slice().get_mut(place)) {
            Some(entry) => entry.value = value,
            None => _ = self.insert(key, value),
        }
    }

    fn grow(&mut self) -> bool {
        let places = (2 * (self.mask + 1)).max(FIRST_PLACES);
        let mut bigger = Pages::empty();
        if !bigger.grow(places) {
            return false;
        }
        for entry in self.places.slice().iter().filter(|entry| entry.key != 0) {
            put(bigger.slice(), places - 1, *entry);
        }
        self.places.release();
        (self.places, self.mask) = (bigger, places - 1);
        true
    }

    /// Empties it.
    pub fn forget(&mut self) {
        self.places.slice().fill(Entry { key: 0, value: 0 });
        self.used = 0;
    }

    /// Empties it, and returns its memory.
    pub fn release(&mut self) {
        self.places.release();
        (self.mask, self.used) = (0, 0);
    }
}

#[inline]
fn place_of(key: u64) -> usize {
    (hash::spread(key) >> 32) as usize
}

fn put(places: &mut [Entry], mask: usize, entry: Entry) {
    let mut place = place_of(entry.key) & mask;
    while let Some(at) = places.get_mut(place) {
        if at.key == 0 {
            *at = entry;
            return;
        }
        place = (place + 1) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_keeps_its_value_while_the_table_grows() {
        let mut table = Table::new();
        assert_eq!(table.get(5), None);
        for key in 1..10_000u64 {
            assert_eq!(table.get(key << 40), None);
            table.insert(key << 40, key);
        }
        for key in 1..10_000u64 {
            assert_eq!(table.get(key << 40), Some(key));
        }
        table.set(7 << 40, 1);
        table.set(7, 2);
        assert_eq!([7 << 40, 7].map(|key| table.get(key)), [Some(1), Some(2)]);
        table.release();
        assert_eq!(table.get(1 << 40), None);
    }
}
