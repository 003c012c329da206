//! The live blocks in order of age, for records that name a block by its place in that order.
//!
//! Invariants: blocks are numbered from 0 in the order in which they were made; `sums` is a Fenwick tree over
//! the set bits of `words`. Memory: a bit and a half for each block that was ever made. Time: logarithmic in that.

use std::iter;

#[derive(Default)]
pub struct Live {
    /// A bit for each block: set while it is live.
    words: Vec<u64>,
    /// `sums[n]` counts the bits of the words from n + 1 − lowest(n + 1) to n.
    sums: Vec<u32>,
    made: u64,
    live: u64,
}

fn lowest(number: usize) -> usize {
    number & number.wrapping_neg()
}

impl Live {
    pub fn count(&self) -> u64 {
        self.live
    }

    /// The number of a new block.
    pub fn make(&mut self) -> u64 {
        let number = self.made;
        let word = (number / 64) as usize;
        if word == self.words.len() {
            let end = word + 1;
            let parts = iter::successors(Some(word), |at| Some(at - lowest(*at)));
            let parts = parts.take_while(|at| *at > end - lowest(end));
            self.sums.push(parts.map(|at| self.sums[at - 1]).sum());
            self.words.push(0);
        }
        self.set(word, 1 << (number % 64), 1);
        (self.made, self.live) = (number + 1, self.live + 1);
        number
    }

    /// Whether it was live.
    pub fn end(&mut self, block: u64) -> bool {
        let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
        let was = self.words.get(word).is_some_and(|bits| bits & bit != 0);
        if was {
            self.set(word, bit, u32::MAX);
            self.live -= 1;
        }
        was
    }

    /// Flips a bit, and adds to the sums over its word.
    fn set(&mut self, word: usize, bit: u64, change: u32) {
        self.words[word] ^= bit;
        let mut at = word + 1;
        while let Some(sum) = self.sums.get_mut(at - 1) {
            *sum = sum.wrapping_add(change);
            at += lowest(at);
        }
    }

    /// How many live blocks are older than this one.
    pub fn older(&self, block: u64) -> u64 {
        let word = (block / 64) as usize;
        let Some(bits) = self.words.get(word) else {
            return self.live;
        };
        let within = bits & ((1 << (block % 64)) - 1);
        let parts = iter::successors(Some(word), |at| Some(at - lowest(*at)));
        let before = parts.take_while(|at| *at > 0);
        let before: u64 = before.map(|at| u64::from(self.sums[at - 1])).sum();
        before + u64::from(within.count_ones())
    }

    /// The block that so many are older than.
    pub fn at(&self, mut older: u64) -> Option<u64> {
        if older >= self.live {
            return None;
        }
        let mut word = 0;
        let mut step = self.words.len().next_power_of_two();
        while step > 0 {
            match self.sums.get(word + step - 1) {
                Some(sum) if u64::from(*sum) <= older => {
                    older -= u64::from(*sum);
                    word += step;
                }
                _ => {}
            }
            step /= 2;
        }
        let mut bits = *self.words.get(word)?;
        for _ in 0..older {
            bits &= bits.wrapping_sub(1);
        }
        Some(word as u64 * 64 + u64::from(bits.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each step makes a block, or ends the one at a place among all that were made.
        #[test]
        fn it_does_what_a_sorted_list_does(steps in proptest::collection::vec(any::<Option<u16>>(), 0..600)) {
            let (mut live, mut list, mut made) = (Live::default(), Vec::new(), 0u64);
            for step in steps {
                match step {
                    None => {
                        prop_assert_eq!(live.make(), made);
                        list.push(made);
                        made += 1;
                    }
                    Some(place) => {
                        let block = u64::from(place) % (made + 1);
                        let found = list.binary_search(&block);
                        prop_assert_eq!(live.older(block), found.unwrap_or_else(|at| at) as u64);
                        prop_assert_eq!(live.end(block), found.is_ok());
                        found.map(|at| list.remove(at)).ok();
                    }
                }
                prop_assert_eq!(live.count(), list.len() as u64);
            }
            for older in 0..=list.len() {
                prop_assert_eq!(live.at(older as u64), list.get(older).copied());
            }
        }
    }
}
