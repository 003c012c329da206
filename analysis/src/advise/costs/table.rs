//! The costs of an allocator by size: nanoseconds of a malloc and free, nanoseconds of zeroing, and the
//! memory of a block. The text form has one line for each:
//!
//! ```text
//! pair_ns 16:6.70 64:7.01 …
//! zero_ns 256:4.10 1024:9.32 …
//! block_bytes 24:32 40:48 …
//! ```
//!
//! Invariants: pairs and zeroing have the sizes of `PAIR_SIZES` and `ZERO_SIZES`; sizes of blocks rise
//! to `LARGEST_BLOCK`, and each takes at least its size.

use std::fmt;

/// Sizes whose malloc and free are timed.
pub const PAIR_SIZES: [u64; 8] = [16, 64, 256, 1024, 4096, 16 << 10, 64 << 10, 1 << 20];
/// Sizes whose zeroing is timed.
pub const ZERO_SIZES: [u64; 5] = [256, 1024, 4096, 64 << 10, 1 << 20];
/// For larger blocks the allocator's overhead is negligible.
pub const LARGEST_BLOCK: u64 = 1024;
/// The largest valid figure.
const MOST: f64 = 1e9;

#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// In the order of `PAIR_SIZES`.
    pub pair_ns: Vec<f64>,
    /// In the order of `ZERO_SIZES`.
    pub zero_ns: Vec<f64>,
    /// The largest size that takes this many bytes, and the bytes.
    pub blocks: Vec<(u64, u64)>,
}

impl Table {
    /// Nanoseconds of a malloc and free of this size: those of the next larger one that was timed,
    /// or of the largest.
    pub fn pair_ns(&self, size: u64) -> f64 {
        let index = PAIR_SIZES.partition_point(|known| *known < size);
        let last = self.pair_ns.last().copied().unwrap_or(0.0);
        self.pair_ns.get(index).copied().unwrap_or(last)
    }

    /// Nanoseconds to zero this many bytes in the caches: linear between the measured sizes,
    /// proportional outside.
    pub fn zero_ns(&self, size: u64) -> f64 {
        let timed = || ZERO_SIZES.iter().zip(&self.zero_ns);
        let above = timed().find(|(known, _)| **known >= size);
        let below = timed().rfind(|(known, _)| **known <= size);
        match (below, above) {
            (Some((small, least)), Some((large, most))) if large > small => {
                let way = (size - small) as f64 / (large - small) as f64;
                least + way * (most - least)
            }
            (Some((known, ns)), _) | (None, Some((known, ns))) => ns * size as f64 / *known as f64,
            (None, None) => 0.0,
        }
    }

    /// The memory that the allocator takes for a block of this size.
    pub fn block_bytes(&self, size: u64) -> u64 {
        let index = self.blocks.partition_point(|(largest, _)| *largest < size);
        self.blocks.get(index).map_or(size, |(_, bytes)| *bytes)
    }

    /// Parses the form that `Display` writes; `None` for any other, or if the invariants do not hold.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut timed = |name: &str, sizes: &[u64]| {
            let pairs: Vec<(u64, f64)> = figures(lines.next()?, name)?;
            let same = pairs.iter().map(|(size, _)| size).eq(sizes);
            let sane = |ns: &f64| (0.0..=MOST).contains(ns);
            let values: Vec<f64> = pairs.into_iter().map(|(_, ns)| ns).collect();
            (same && values.iter().all(sane)).then_some(values)
        };
        let pair_ns = timed("pair_ns", &PAIR_SIZES)?;
        let zero_ns = timed("zero_ns", &ZERO_SIZES)?;
        let blocks: Vec<(u64, u64)> = figures(lines.next()?, "block_bytes")?;
        let rising = blocks.windows(2).all(|two| two[0].0 < two[1].0);
        let hold = |(size, bytes): &(u64, u64)| size <= bytes && *bytes <= MOST as u64;
        let all = blocks.last()?.0 == LARGEST_BLOCK && lines.next().is_none();
        (rising && all && blocks.iter().all(hold)).then_some(Self {
            pair_ns,
            zero_ns,
            blocks,
        })
    }
}

/// The figures of a line by size, if it has this name.
fn figures<T: std::str::FromStr>(line: &str, name: &str) -> Option<Vec<(u64, T)>> {
    let mut words = line.split(' ');
    let figure = |word: &str| {
        let (size, value) = word.split_once(':')?;
        Some((size.parse().ok()?, value.parse().ok()?))
    };
    (words.next()? == name).then(|| words.map(figure).collect())?
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut timed = |name: &str, sizes: &[u64], values: &[f64]| {
            write!(f, "{name}")?;
            for (size, ns) in sizes.iter().zip(values) {
                write!(f, " {size}:{ns:.2}")?;
            }
            writeln!(f)
        };
        timed("pair_ns", &PAIR_SIZES, &self.pair_ns)?;
        timed("zero_ns", &ZERO_SIZES, &self.zero_ns)?;
        write!(f, "block_bytes")?;
        for (size, bytes) in &self.blocks {
            write!(f, " {size}:{bytes}")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// glibc's, with a nanosecond more for each larger size.
    pub fn made() -> Table {
        Table {
            pair_ns: (1..=8).map(f64::from).collect(),
            zero_ns: vec![4.0, 16.0, 64.0, 1024.0, 32768.0],
            blocks: (0..64).map(|n| (24 + 16 * n, 32 + 16 * n)).collect(),
        }
        .ending_at_the_largest()
    }

    impl Table {
        fn ending_at_the_largest(mut self) -> Self {
            self.blocks.last_mut().unwrap().0 = LARGEST_BLOCK;
            self
        }
    }

    #[test]
    fn a_malloc_costs_what_the_next_larger_measured_one_does() {
        let table = made();
        assert_eq!(table.pair_ns(0), 1.0);
        assert_eq!(table.pair_ns(16), 1.0);
        assert_eq!(table.pair_ns(17), 2.0);
        assert_eq!(table.pair_ns(1 << 30), 8.0);
    }

    #[test]
    fn zeroing_lies_between_the_sizes_that_were_timed() {
        let table = made();
        assert_eq!(table.zero_ns(0), 0.0);
        assert_eq!(table.zero_ns(128), 2.0);
        assert_eq!(table.zero_ns(256), 4.0);
        assert_eq!(table.zero_ns(640), 10.0);
        assert_eq!(table.zero_ns(1 << 20), 32768.0);
        assert_eq!(table.zero_ns(1 << 21), 65536.0);
    }

    #[test]
    fn a_block_takes_its_class() {
        let table = made();
        assert_eq!(
            [0, 1, 24, 25, 40].map(|size| table.block_bytes(size)),
            [32, 32, 32, 48, 48]
        );
        assert_eq!(table.block_bytes(5000), 5000);
    }

    #[test]
    fn a_table_returns_as_written_and_nothing_else_is_one() {
        let text = made().to_string();
        assert_eq!(Table::parse(&text), Some(made()));
        let wrong = [
            text.replace("pair_ns", "pears_ns"),
            text.replace("16:1.00 ", ""),
            text.replace("16:1.00", "17:1.00"),
            text.replace("16:1.00", "16:NaN"),
            text.replace("16:1.00", "16:-1"),
            text.replace("16:1.00", "16:inf"),
            text.replace("24:32 ", "24:23 "),
            text.replace("24:32 40:48", "40:48 24:32"),
            text.replace("1024:1040", "1023:1040"),
            text.replace("40:48 ", "40:99999999999999999999 "),
            format!("{text}more\n"),
            text[..text.len() / 2].to_owned(),
            String::new(),
        ];
        for wrong in wrong {
            assert_ne!(wrong, text);
            assert_eq!(Table::parse(&wrong), None, "{wrong}");
        }
    }
}
