//! A table of definitions numbered in order, with holes where a lost part of the trace defined some.
//!
//! Invariant: memory is bounded by what was pushed, however far apart the numbers are.

pub struct Numbered<T> {
    /// Runs of values, each with the number of its first; ascending, disjoint. Most numbers are in the last run.
    earlier: Vec<(u32, Vec<T>)>,
    first: u32,
    values: Vec<T>,
}

impl<T> Numbered<T> {
    pub fn starting_at(first: u32) -> Self {
        Numbered {
            earlier: Vec::new(),
            first,
            values: Vec::new(),
        }
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        if let Some(place) = number.checked_sub(self.first) {
            return self.values.get(place as usize);
        }
        let (first, values) = self.earlier.get(self.run_of(number)?)?;
        values.get((number - first) as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        if let Some(place) = number.checked_sub(self.first) {
            return self.values.get_mut(place as usize);
        }
        let run = self.run_of(number)?;
        let (first, values) = self.earlier.get_mut(run)?;
        values.get_mut((number - *first) as usize)
    }

    #[cold]
    fn run_of(&self, number: u32) -> Option<usize> {
        self.earlier
            .partition_point(|run| run.0 <= number)
            .checked_sub(1)
    }

    /// The number of the next value.
    pub fn next(&self) -> u32 {
        self.first.saturating_add(self.values.len() as u32)
    }

    pub fn push(&mut self, value: T) {
        self.values.push(value);
    }

    /// The next number is `next`: removes the values from it on; numbers below it without a value stay
    /// unknown.
    pub fn continue_at(&mut self, next: u32) {
        if next == self.next() {
            return;
        }
        while self.first >= next
            && let Some(before) = self.earlier.pop()
        {
            (self.first, self.values) = before;
        }
        self.values
            .truncate(next.saturating_sub(self.first) as usize);
        if next > self.next() {
            let run = (self.first, std::mem::take(&mut self.values));
            self.earlier.push(run);
            self.first = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_unknown_and_costs_nothing() {
        let mut table = Numbered::starting_at(2);
        table.push('a');
        table.push('b');
        table.continue_at(4_000_000_000);
        table.push('c');
        assert_eq!(table.get(1), None);
        assert_eq!(table.get(2), Some(&'a'));
        assert_eq!(table.get(3), Some(&'b'));
        assert_eq!(table.get(4), None);
        assert_eq!(table.get(4_000_000_000), Some(&'c'));
        assert_eq!(table.next(), 4_000_000_001);
        table.continue_at(3);
        assert_eq!(table.get(2), Some(&'a'));
        assert_eq!(table.get(3), None);
        assert_eq!(table.get(4_000_000_000), None);
        table.push('d');
        assert_eq!(table.get(3), Some(&'d'));
        table.continue_at(0);
        table.push('e');
        assert_eq!(table.get(2), Some(&'e'));
    }
}
