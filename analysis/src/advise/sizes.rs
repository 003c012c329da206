//! A histogram of sizes: exact up to 64 bytes, then eight steps a doubling; the largest is exact.
//!
//! Memory: up to 528 counts, from the smallest size to the largest; none while all sizes are equal.

/// Sizes below this have a count each.
const EXACT: u64 = 64;
const STEPS: u64 = 8;

#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// `None` while all sizes are equal.
    counts: Option<Box<Counts>>,
    total: u64,
    largest: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    smallest: u64,
    /// The bucket of the first count.
    first: usize,
    counts: Vec<u64>,
}

impl Counts {
    fn add(&mut self, bucket: usize, times: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let place = bucket - self.first;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += times;
    }

    /// Each bucket with its count.
    fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..).zip(self.counts.iter().copied())
    }
}

fn bucket(size: u64) -> usize {
    if size < EXACT {
        return size as usize;
    }
    let doubling = u64::from(size.ilog2());
    let step = (size >> (doubling - 3)) & (STEPS - 1);
    (EXACT + (doubling - 6) * STEPS + step) as usize
}

/// The largest size of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (doubling, step) = ((bucket - EXACT) / STEPS + 6, (bucket - EXACT) % STEPS);
    let width = 1u64 << (doubling - 3);
    (1u64 << doubling) + step * width + (width - 1)
}

impl Sizes {
    #[inline]
    pub fn add(&mut self, size: u64) {
        if self.counts.is_none() && size == self.largest {
            self.total += 1;
        } else if let Some(known) = &mut self.counts
            && let Some(count) = known.counts.get_mut(bucket(size).wrapping_sub(known.first))
        {
            *count += 1;
            self.total += 1;
            known.smallest = known.smallest.min(size);
            self.largest = self.largest.max(size);
        } else {
            self.add_many(size, 1);
        }
    }

    #[cold]
    fn add_many(&mut self, size: u64, times: u64) {
        if self.total == 0 {
            self.largest = size;
        }
        if size != self.largest || self.counts.is_some() {
            let known = self.spread();
            known.add(bucket(size), times);
            known.smallest = known.smallest.min(size);
            self.largest = self.largest.max(size);
        }
        self.total += times;
    }

    /// Moves the count of one size into buckets.
    fn spread(&mut self) -> &mut Counts {
        let (size, total) = (self.largest, self.total);
        self.counts.get_or_insert_with(|| {
            let mut counts = Box::new(Counts {
                smallest: size,
                ..Counts::default()
            });
            counts.add(bucket(size), total);
            counts
        })
    }

    pub fn merge(&mut self, other: &Sizes) {
        if other.total == 0 {
            return;
        }
        if self.total == 0 {
            *self = other.clone();
            return;
        }
        let Some(others) = &other.counts else {
            self.add_many(other.largest, other.total);
            return;
        };
        let known = self.spread();
        for (bucket, count) in others.iter().filter(|(_, count)| *count > 0) {
            known.add(bucket, count);
        }
        known.smallest = known.smallest.min(others.smallest);
        self.largest = self.largest.max(other.largest);
        self.total += other.total;
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn smallest(&self) -> u64 {
        self.counts
            .as_ref()
            .map_or(self.largest, |known| known.smallest)
    }

    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// A size that this share (0 to 1) of all, or more, does not exceed; not above the largest.
    pub fn covering(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        // While all sizes are equal there are no buckets.
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().flat_map(|known| known.iter()) {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper(bucket).min(self.largest);
            }
        }
        self.largest
    }

    /// The number that is certainly not above this size.
    pub fn up_to(&self, size: u64) -> u64 {
        if size >= self.largest {
            return self.total;
        }
        let counts = self.counts.iter().flat_map(|known| known.iter());
        let whole = counts.take_while(|(bucket, _)| upper(*bucket) <= size);
        whole.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_within_its_bucket_and_an_eighth_of_its_end() {
        for size in (0..5000).chain([1 << 20, (1 << 20) + 1, u64::MAX]) {
            let end = upper(bucket(size));
            assert!(end >= size, "{size}");
            assert!(end - size <= size / 8, "{size}: {end}");
            assert!(size == 0 || bucket(size - 1) <= bucket(size));
        }
    }

    #[test]
    fn the_covering_size_covers() {
        let mut sizes = Sizes::default();
        for size in 1..=1000 {
            sizes.add(size);
        }
        assert_eq!((sizes.smallest(), sizes.largest()), (1, 1000));
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let size = sizes.covering(share);
            assert!(size as f64 >= 1000.0 * share, "{share}: {size}");
            assert!(size as f64 <= 1000.0 * share * 1.13, "{share}: {size}");
        }
        assert_eq!(sizes.covering(1.0), 1000);
        assert_eq!(sizes.up_to(1000), 1000);
        assert_eq!(sizes.up_to(63), 63);
        assert_eq!(Sizes::default().covering(0.5), 0);
    }

    #[test]
    fn a_merge_is_as_if_all_had_been_added() {
        let (mut low, mut high, mut both) = (Sizes::default(), Sizes::default(), Sizes::default());
        for size in [3, 7, 7000] {
            low.add(size);
            both.add(size);
        }
        for size in [1, 100_000] {
            high.add(size);
            both.add(size);
        }
        low.merge(&high);
        low.merge(&Sizes::default());
        assert_eq!(low.counts, both.counts);
        assert_eq!((low.smallest(), low.largest, low.total), (1, 100_000, 5));
    }
}
