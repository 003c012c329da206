//! Which objects of a stopped process are reachable, and which of the others point to which.
//!
//! Memory is read while it is scanned, 1 MiB of many objects in one call, and is not stored. Time grows
//! with the bytes in use.

use rustc_hash::FxHashMap;

use super::memory::{MOST_RANGES, Memory};
use super::objects::{Bits, Objects, Slot};
use super::residence::Residence;

const PIECE: usize = 1 << 20;
/// Of larger objects, only the resident pages are read.
const LARGE: u64 = 256 << 10;

/// What pointers lead to: objects that do not overlap, each with a number below `count`.
pub trait Targets {
    type Slot: Copy;
    fn count(&self) -> u32;
    /// The object that contains the address.
    fn find(&self, address: u64) -> Option<Self::Slot>;
    fn number(&self, slot: Self::Slot) -> u32;
    /// Its address and its bytes.
    fn place(&self, slot: Self::Slot) -> (u64, u64);
}

impl Targets for Objects {
    type Slot = Slot;
    fn count(&self) -> u32 {
        self.count()
    }
    fn find(&self, address: u64) -> Option<Slot> {
        self.find(address)
    }
    fn number(&self, slot: Slot) -> u32 {
        self.number(slot)
    }
    fn place(&self, slot: Slot) -> (u64, u64) {
        self.place(slot)
    }
}

pub struct Reach<'a, T: Targets> {
    memory: &'a Memory,
    objects: &'a T,
    residence: &'a mut Residence,
    pub reached: Bits,
    waiting: Vec<T::Slot>,
    batch: Batch,
}

impl<'a, T: Targets> Reach<'a, T> {
    pub fn new(memory: &'a Memory, objects: &'a T, residence: &'a mut Residence) -> Self {
        Self {
            memory,
            objects,
            residence,
            reached: Bits::none(objects.count()),
            waiting: Vec::new(),
            batch: Batch::default(),
        }
    }

    /// Marks what these point to as reached, and follows it.
    pub fn add_words(&mut self, words: &[u64]) {
        let found: Vec<T::Slot> = words
            .iter()
            .filter_map(|word| self.objects.find(*word))
            .collect();
        self.add_objects(&found);
    }

    pub fn add_ranges(&mut self, ranges: &[(u64, u64)]) {
        self.add_ranges_but(ranges, |_| false);
    }

    /// The same, without the words that `left_out` accepts.
    pub fn add_ranges_but(&mut self, ranges: &[(u64, u64)], left_out: impl Fn(u64) -> bool) {
        for (begin, end) in ranges {
            let (batch, mut full) = (&mut self.batch, false);
            pieces(*begin, *end, |from, bytes| full |= batch.add(from, bytes));
            if full {
                self.read(&left_out);
                self.flood();
            }
        }
        self.read(&left_out);
        self.flood();
    }

    pub fn add_objects(&mut self, slots: &[T::Slot]) {
        for slot in slots {
            if self.reached.set(self.objects.number(*slot)) {
                self.waiting.push(*slot);
            }
        }
        self.flood();
    }

    fn flood(&mut self) {
        while let Some(slot) = self.waiting.pop() {
            let (batch, mut full) = (&mut self.batch, false);
            places(self.objects, slot, self.residence, |from, bytes| {
                full |= batch.add(from, bytes);
            });
            if full || self.waiting.is_empty() {
                self.read(|_| false);
            }
        }
    }

    fn read(&mut self, left_out: impl Fn(u64) -> bool) {
        let (objects, reached, waiting) = (self.objects, &mut self.reached, &mut self.waiting);
        self.batch.read(self.memory, |bytes| {
            for word in words(bytes) {
                if let Some(slot) = objects.find(word)
                    && !left_out(word)
                    && reached.set(objects.number(slot))
                {
                    waiting.push(slot);
                }
            }
        });
    }
}

/// For each of the objects, in order, which of the others it points to.
pub fn edges(
    memory: &Memory,
    objects: &Objects,
    residence: &mut Residence,
    from: &[Slot],
) -> Vec<Vec<u32>> {
    let numbers = from.iter().map(|slot| objects.number(*slot));
    let places_of: FxHashMap<u32, u32> = numbers.zip(0..).collect();
    let mut batch = Batch::default();
    let edges = from.iter().zip(0u32..).map(|(slot, own)| {
        let mut found = Vec::new();
        places(objects, *slot, residence, |from, bytes| {
            batch.add(from, bytes);
        });
        batch.read(memory, |bytes| {
            let to = words(bytes).filter_map(|word| objects.find(word));
            let to = to.filter_map(|slot| places_of.get(&objects.number(slot)).copied());
            found.extend(to.filter(|to| *to != own));
        });
        found
    });
    edges.collect()
}

/// An object's memory; of a large one, its resident parts.
fn places<T: Targets>(
    objects: &T,
    slot: T::Slot,
    residence: &mut Residence,
    mut visit: impl FnMut(u64, usize),
) {
    let (base, bytes) = objects.place(slot);
    if bytes < LARGE {
        return visit(base, bytes as usize);
    }
    residence.parts(base, base + bytes, false, |from, to| {
        pieces(from, to, &mut visit);
    });
}

fn pieces(begin: u64, end: u64, mut visit: impl FnMut(u64, usize)) {
    let mut from = begin.next_multiple_of(8);
    while from < end {
        let bytes = (end - from).min(PIECE as u64);
        visit(from, bytes as usize);
        from += bytes;
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

/// Ranges to be read together, each of up to `PIECE` bytes.
#[derive(Default)]
struct Batch {
    ranges: Vec<(u64, usize)>,
    bytes: usize,
    buffer: Vec<u8>,
}

impl Batch {
    /// Whether the batch is full.
    fn add(&mut self, from: u64, bytes: usize) -> bool {
        self.ranges.push((from, bytes));
        self.bytes += bytes;
        self.bytes >= PIECE || self.ranges.len() >= MOST_RANGES
    }

    /// Calls `visit` with the content of each range, or with the readable pages of it.
    fn read(&mut self, memory: &Memory, mut visit: impl FnMut(&[u8])) {
        self.bytes = 0;
        let ranges = std::mem::take(&mut self.ranges);
        let mut left = &ranges[..];
        while !left.is_empty() {
            let mut sum = 0;
            let fit = left.iter().take(MOST_RANGES).take_while(|(_, bytes)| {
                sum += bytes;
                sum <= 2 * PIECE
            });
            let part = &left[..fit.count().max(1)];
            let bytes: usize = part.iter().map(|(_, bytes)| bytes).sum();
            if self.buffer.len() < bytes {
                self.buffer.resize(bytes, 0);
            }
            let (into, _) = self.buffer.split_at_mut(bytes);
            let got = memory.read_ranges(part, into);
            let (mut content, mut done) = (&into[..got.min(bytes)], 0);
            for (_, bytes) in part {
                let Some((of_range, rest)) = content.split_at_checked(*bytes) else {
                    break;
                };
                visit(of_range);
                (content, done) = (rest, done + 1);
            }
            if let Some((from, bytes)) = part.get(done) {
                read_pages(memory, *from, *bytes, &mut visit);
                done += 1;
            }
            left = &left[done..];
        }
        self.ranges = ranges;
        self.ranges.clear();
    }
}

/// A page at a time: a program may have made some of its pages unreadable.
fn read_pages(memory: &Memory, from: u64, bytes: usize, visit: &mut impl FnMut(&[u8])) {
    const PAGE: usize = 4096;
    let (mut page, mut done) = ([0; PAGE], 0);
    while done < bytes {
        let at = from + done as u64;
        let length = (PAGE - at as usize % PAGE).min(bytes - done);
        let (part, _) = page.split_at_mut(length);
        if memory.read_ranges(&[(at, length)], part) == length {
            visit(part);
        }
        done += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_range_with_a_guard_page_the_rest_is_read() {
        const PAGE: usize = 4096;
        let own = Memory::open(std::process::id()).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping of our own; the page is not accessed afterwards.
        let base = unsafe {
            let base = libc::mmap(std::ptr::null_mut(), 3 * PAGE, access, kind, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            base.cast::<u64>().add(1).write(7);
            base.cast::<u64>().add(3 * PAGE / 8 - 1).write(9);
            assert_eq!(libc::mprotect(base.add(PAGE), PAGE, libc::PROT_NONE), 0);
            base
        };
        let (mut batch, from) = (Batch::default(), base as u64);
        for (from, bytes) in [(from, 16), (from + 8, 3 * PAGE - 8), (from, 16)] {
            batch.add(from, bytes);
        }
        let mut found = Vec::new();
        batch.read(&own, |bytes| found.extend(words(bytes)));
        found.retain(|word| *word != 0);
        assert_eq!(found, [7, 7, 9, 7]);
        // SAFETY: as it was mapped.
        unsafe { libc::munmap(base, 3 * PAGE) };
    }
}
