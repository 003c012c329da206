//! Distinct values, numbered in the order of their first use.

use std::hash::Hash;

use rustc_hash::FxHashMap;

pub struct Table<T> {
    numbers: FxHashMap<T, usize>,
    values: Vec<T>,
}

impl<T: Clone + Eq + Hash> Table<T> {
    pub fn new() -> Self {
        Self {
            numbers: FxHashMap::default(),
            values: Vec::new(),
        }
    }

    pub fn number(&mut self, value: T) -> usize {
        let next = self.values.len();
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            next
        })
    }

    /// By number.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }
}
