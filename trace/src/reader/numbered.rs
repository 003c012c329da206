//! A table of definitions numbered in order, with holes where a lost part of the trace defined some.
//!
//! Invariant: memory is bounded by what was pushed, however far apart the numbers are.

pub struct Numbered<T> {
    /// Runs of values, each with the number of its first; ascending, disjoint, not empty.
    runs: Vec<(u32, Vec<T>)>,
}

impl<T> Numbered<T> {
    pub fn starting_at(first: u32) -> Self {
        Numbered {
            runs: vec![(first, Vec::new())],
        }
    }

    /// Most numbers are in the last run.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.runs.last() {
            Some((first, values)) if number >= *first => values.get((number - first) as usize),
            _ => {
                let (first, values) = &self.runs[self.earlier(number)?];
                values.get((number - first) as usize)
            }
        }
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let last = self.runs.len() - 1;
        let run = match number >= self.runs[last].0 {
            true => last,
            false => self.earlier(number)?,
        };
        let (first, values) = &mut self.runs[run];
        values.get_mut((number - *first) as usize)
    }

    #[cold]
    fn earlier(&self, number: u32) -> Option<usize> {
        self.runs
            .partition_point(|run| run.0 <= number)
            .checked_sub(1)
    }

    /// The number of the next value.
    pub fn next(&self) -> u32 {
        let (first, values) = &self.runs[self.runs.len() - 1];
        first.saturating_add(values.len() as u32)
    }

    pub fn push(&mut self, value: T) {
        let last = self.runs.len() - 1;
        self.runs[last].1.push(value);
    }

    /// The next number is `next`: removes the values from it on; numbers below it without a value stay
    /// unknown.
    pub fn continue_at(&mut self, next: u32) {
        if next == self.next() {
            return;
        }
        while self.runs.len() > 1 && self.runs[self.runs.len() - 1].0 >= next {
            self.runs.pop();
        }
        let last = self.runs.len() - 1;
        let (first, values) = &mut self.runs[last];
        values.truncate(next.saturating_sub(*first) as usize);
        if next > self.next() {
            self.runs.push((next, Vec::new()));
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
