//! Numbers by powers of two: 0, 1, 2–3, 4–7 and so on.
//!
//! Memory: 520 bytes.

use std::io::{self, Write};

use larder_base::number::grouped;
use larder_base::style::{FAINT, HEADING};
use serde_json::{Value, json};

/// By a number's bits.
const BUCKETS: usize = u64::BITS as usize + 1;
/// Columns of the longest bar.
const BAR: f64 = 40.0;

/// How often numbers of each size were met; estimated where they were sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram([f64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([0.0; BUCKETS])
    }
}

impl Histogram {
    pub fn add(&mut self, number: u64, times: f64) {
        self.0[(u64::BITS - number.leading_zeros()) as usize] += times;
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own += more;
        }
    }

    /// The smallest and the largest number of each row that is not empty, and how often it was met.
    pub fn rows(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let rows = self.0.iter().enumerate();
        rows.map(|(bits, times)| (bits, times.round() as u64))
            .filter(|(_, times)| *times > 0)
            .map(|(bits, times)| match bits {
                0 => (0, 0, times),
                _ => (1 << (bits - 1), u64::MAX >> (BUCKETS - 1 - bits), times),
            })
    }

    pub fn print(&self, title: &str, out: &mut dyn Write) -> io::Result<()> {
        let most = self.rows().map(|(.., times)| times).max();
        let Some(most) = most else {
            return Ok(());
        };
        writeln!(out, "\n{HEADING}{title}{HEADING:#}")?;
        for (least, largest, times) in self.rows() {
            let range = match least == largest {
                true => grouped(least),
                false => format!("{}–{}", grouped(least), grouped(largest)),
            };
            let bar = "▇".repeat((times as f64 * BAR / most as f64).ceil() as usize);
            let times = grouped(times);
            writeln!(out, "{range:>25} {times:>13}  {FAINT}{bar}{FAINT:#}")?;
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let rows = self.rows();
        rows.map(|(least, largest, times)| json!({"from": least, "to": largest, "calls": times}))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_by_powers_of_two() {
        let mut histogram = Histogram::default();
        for number in [0, 1, 1, 2, 3, 4, 16, 17, u64::MAX] {
            histogram.add(number, 1.0);
        }
        let mut other = Histogram::default();
        other.add(3, 2.4);
        other.add(100, 0.2);
        histogram.merge(&other);
        let rows: Vec<_> = histogram.rows().collect();
        let last = (1 << 63, u64::MAX, 1);
        let expected = [
            (0, 0, 1),
            (1, 1, 2),
            (2, 3, 4),
            (4, 7, 1),
            (16, 31, 2),
            last,
        ];
        assert_eq!(rows, expected);
    }
}
