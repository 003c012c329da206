//! The contents of blocks when they end: a hash of the requested bytes, whether calloc's zeros are unchanged,
//! and whether the bytes that were copied there are still the same at both places.
//!
//! The hash is our own, because the program continues to run: bytes are read with relaxed atomic loads,
//! word by word, which no crate does, and the zeros are counted in the same pass. Each word takes one
//! multiplication to 128 bits; a block about 1,000 instructions, with its record and its entry in the
//! table, and 2.4 a byte.
//!
//! Unreadable memory must not kill the program: a page is read only after the kernel has read a word of
//! it. The exception is the first page of a small block that is being freed, because the allocator is about
//! to write there; not if the block starts a page, because programs protect such pages.
//!
//! Thread safety: a block that ends is no longer in `BLOCKS`, so only its thread accesses it; a live one
//! is read with its shard locked, so that it cannot end meanwhile. In a child of fork call `after_fork`
//! first.
//!
//! The bytes that a block was copied from may be another thread's to free: they are read with the shard locked if a
//! block begins there, else by the kernel.
//!
//! Memory: the tables', see `blocks`. A block of more than `MOST_BYTES` is not read, because different
//! blocks would have the same hash of a part.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use larder_trace::{AllocCall, Fingerprint};

use crate::blocks::{Block, Blocks};
use crate::hash::fold;
use crate::sys;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// The owner's number is the size of calloc's elements: 1, 2, 4 or 8; 0 if another call allocated the
/// block.
static BLOCKS: Blocks = Blocks::new();
/// By the address of a block what was copied to its start last: the "size" is the source's address, the
/// "owner" the number of bytes.
static SOURCES: Blocks = Blocks::new();

/// Larger blocks are not read.
const MOST_BYTES: u64 = 4 << 20;
/// A copy may leave at most this part of a block as it was.
const SMALL_PART: u64 = 4;
const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();
/// In data up to one in this many words has a zero byte; pointers and small numbers always have one.
const WORDS_A_HOLE: u64 = 8;
/// In data up to one in this many words equals the previous one; more are flags or counters.
const WORDS_A_REPEAT: u64 = 8;

// The first digits of pi, as good as any.
const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x1319_8a2e_0370_7345;
const SIZE_FACTOR: u64 = 0xa409_3822_299f_31d1;

/// Whether contents are recorded.
#[inline(always)]
pub fn are_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

pub fn start() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// In a child of fork: forgets the parent's blocks.
pub fn after_fork() {
    if are_on() {
        BLOCKS.after_fork();
        SOURCES.after_fork();
    }
}

/// A block was allocated; with `count` elements if by calloc.
pub fn made(call: AllocCall, address: usize, size: usize, count: usize) {
    let element = match call {
        AllocCall::Calloc => element_bytes(size, count),
        _ => 0,
    };
    let block = Block {
        size: size as u64,
        owner: element,
    };
    if address != 0 && BLOCKS.insert(address, block).is_err() {
        let _ = BLOCKS.take(address);
    }
}

/// The unit in which a program assigns a calloc'ed block: the alignment of the elements. A single element
/// may be of any type.
fn element_bytes(size: usize, count: usize) -> u32 {
    match size.checked_div(count) {
        None | Some(0) => 1,
        Some(_) if count == 1 => 1,
        Some(element) => 1 << element.trailing_zeros().min(3),
    }
}

/// Bytes were copied, or are about to be.
pub fn copied(to: usize, from: usize, bytes: usize) {
    let Some(block) = BLOCKS.find(to) else { return };
    let most = block.size.min(MOST_BYTES);
    if (block.size - block.size / SMALL_PART..=most).contains(&(bytes as u64)) {
        let source = Block {
            size: from as u64,
            owner: bytes as u32,
        };
        if SOURCES.insert(to, source).is_err() {
            let _ = SOURCES.take(to);
        }
    }
}

/// The block at an address is about to be freed.
pub fn ending(address: usize) -> Option<Fingerprint> {
    let (block, source) = (BLOCKS.take(address)?, SOURCES.take(address));
    read(address, block, false).map(|held| held.with(as_copied(address, source, false)))
}

/// A realloc of the block begins; its address may be reused from now on. Returns the contents only of a
/// calloc'ed one: a growing buffer would be read at each step.
pub fn hold(old: usize) -> (Option<Block>, Option<Fingerprint>) {
    let block = BLOCKS.take(old);
    let _ = SOURCES.take(old);
    let known = block.filter(|block| block.owner != 0);
    (block, known.and_then(|block| read(old, block, false)))
}

/// A realloc failed: the block stays live, unless its address was reused.
#[cold]
pub fn put_back(old: usize, block: Block) {
    if let Ok(Some(newer)) = BLOCKS.insert(old, block) {
        let _ = BLOCKS.insert(old, newer);
    }
}

/// Records every live block that can be read.
pub fn each_live(mut act: impl FnMut(usize, Fingerprint)) {
    BLOCKS.each(|address, block| {
        if let Some(held) = read(address, block, true) {
            act(
                address,
                held.with(as_copied(address, SOURCES.find(address), true)),
            );
        }
    });
}

fn read(address: usize, block: Block, lives: bool) -> Option<Fingerprint> {
    if block.size == 0 || block.size > MOST_BYTES || !address.is_multiple_of(WORD) {
        return None;
    }
    let size = block.size as usize;
    let end = address.checked_add(size)?;
    let trusted = !lives && size < PAGE && !address.is_multiple_of(PAGE);
    let mut scan = Scan::new(block.owner);
    let mut at = address;
    while at < end {
        let page = at & !(PAGE - 1);
        let readable = (trusted && at == address) || sys::readable(page as u64);
        if !readable {
            return None;
        }
        let to = end.min(page + PAGE);
        // SAFETY: the page can be read, see above, and the address is aligned.
        unsafe {
            if block.owner == 0 {
                scan.words::<false>(at, (to - at) / WORD);
            } else {
                scan.words::<true>(at, (to - at) / WORD);
            }
            at = to;
        }
    }
    // SAFETY: the page of the last byte was just read.
    unsafe { scan.tail(end - size % WORD, size % WORD) };
    Some(scan.finish(block))
}

/// `AS_COPIED` if the bytes at both ends of a copy are the same.
///
/// REQUIRES: `address` is a block's that has just been read; unless `lives`, no shard is locked.
fn as_copied(address: usize, source: Option<Block>, lives: bool) -> u8 {
    let Some(source) = source else { return 0 };
    let (from, bytes) = (source.size as usize, source.owner as usize);
    // A block cannot end while its shard is locked.
    let compared = match lives {
        true => None,
        false => BLOCKS.while_live(from, |block| {
            let pages = (from & !(PAGE - 1)..from + bytes).step_by(PAGE);
            let fits = bytes as u64 <= block.size && from.is_multiple_of(WORD);
            // SAFETY: the pages can be read, and both addresses are aligned.
            fits && pages.map(|page| page as u64).all(sys::readable)
                && unsafe { are_same(address, from, bytes) }
        }),
    };
    match compared.unwrap_or_else(|| is_copy_of_any(address, from, bytes)) {
        true => Fingerprint::AS_COPIED,
        false => 0,
    }
}

/// # Safety
/// So many bytes can be read at both multiples of eight.
unsafe fn are_same(a: usize, b: usize, bytes: usize) -> bool {
    let words = bytes / WORD;
    let word = |at: usize| {
        // SAFETY: the caller's promise.
        unsafe { (*(at as *const AtomicU64)).load(Ordering::Relaxed) }
    };
    let byte = |at: usize| {
        // SAFETY: the caller's promise.
        unsafe { (*(at as *const AtomicU8)).load(Ordering::Relaxed) }
    };
    (0..words).all(|index| word(a + index * WORD) == word(b + index * WORD))
        && (words * WORD..bytes).all(|index| byte(a + index) == byte(b + index))
}

/// Whether a block that can be read begins with the bytes at any address: the kernel copies them, for 1.5 µs
/// each 512.
fn is_copy_of_any(address: usize, from: usize, bytes: usize) -> bool {
    #[repr(align(8))]
    struct Part([u8; 512]);
    let mut part = Part([0; 512]);
    (0..bytes).step_by(512).all(|start| {
        let part = &mut part.0[..(bytes - start).min(512)];
        let own = address + start;
        // SAFETY: both can be read, and an array of words is aligned.
        sys::read_memory(from + start, part)
            && unsafe { are_same(own, part.as_ptr().addr(), part.len()) }
    })
}

/// Elements of a word.
#[derive(Clone, Copy)]
struct Lanes {
    lowest_bits: u64,
    highest_bits: u64,
}

impl Lanes {
    const BYTES: Lanes = Lanes::of(8);

    const fn of(bits: u32) -> Self {
        let lowest_bits = u64::MAX / (u64::MAX >> (64 - bits));
        Lanes {
            lowest_bits,
            highest_bits: lowest_bits << (bits - 1),
        }
    }

    /// Not 0 if an element of the word is.
    fn zero(self, word: u64) -> u64 {
        word.wrapping_sub(self.lowest_bits) & !word & self.highest_bits
    }
}

struct Scan {
    hash: u64,
    previous: u64,
    /// Bits that differ between any two neighbours.
    differences: u64,
    words: u64,
    /// Words with a zero byte.
    holes: u64,
    /// Whether the last word has one: it may be what ends a text.
    last_hole: u64,
    /// Of calloc's block.
    elements: Lanes,
    zeros: u64,
    /// Words that equal the previous one; may include the first.
    repeats: u64,
    last_byte: u8,
}

impl Scan {
    fn new(element: u32) -> Self {
        Scan {
            hash: SEED,
            previous: 0,
            differences: 0,
            words: 0,
            holes: 0,
            last_hole: 0,
            elements: match element {
                2 | 4 => Lanes::of(8 * element),
                _ => Lanes::of(64),
            },
            zeros: 0,
            repeats: 0,
            last_byte: 0,
        }
    }

    /// # Safety
    /// So many words can be read at this multiple of eight.
    unsafe fn words<const CALLOC: bool>(&mut self, at: usize, count: usize) {
        let words = at as *const AtomicU64;
        // SAFETY: the caller's promise.
        let load = |index| unsafe { (*words.add(index)).load(Ordering::Relaxed) };
        if count == 0 {
            return;
        }
        if self.words == 0 {
            self.previous = load(0);
        }
        let (mut hash, mut previous) = (self.hash, self.previous);
        let (mut differences, mut holes) = (0, 0);
        for index in 0..count {
            let word = load(index);
            hash = fold(hash ^ word, FACTOR);
            differences |= word ^ previous;
            holes += u64::from(Lanes::BYTES.zero(word) != 0);
            if CALLOC {
                self.zeros |= self.elements.zero(word);
                self.repeats += u64::from(word == previous);
            }
            previous = word;
        }
        (self.hash, self.previous) = (hash, previous);
        self.differences |= differences;
        self.holes += holes;
        self.words += count as u64;
        self.last_byte = (previous >> 56) as u8;
        self.last_hole = u64::from(Lanes::BYTES.zero(previous) != 0);
    }

    /// The bytes behind the last word, fewer than eight.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn tail(&mut self, at: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // The missing bytes count as not zero.
        let (mut word, mut absent) = (0, u64::MAX);
        for index in 0..bytes {
            // SAFETY: the caller's promise.
            let byte = unsafe { (*((at + index) as *const AtomicU8)).load(Ordering::Relaxed) };
            word |= u64::from(byte) << (8 * index);
            absent <<= 8;
            self.last_byte = byte;
        }
        self.hash = fold(self.hash ^ word, FACTOR);
        self.zeros |= self.elements.zero(word | absent) | u64::from(word == 0);
        self.last_hole = 0;
    }

    fn finish(self, block: Block) -> Fingerprint {
        let mut flags = 0;
        if self.differences == 0 {
            flags |= Fingerprint::UNIFORM;
        }
        let dense = (self.holes - self.last_hole) * WORDS_A_HOLE <= self.words;
        if dense {
            flags |= Fingerprint::DENSE;
        }
        let bytes = block.owner == 1;
        // A zero at the end terminates a text, and may be calloc's.
        let filled = self.zeros == 0 && (!bytes || (dense && self.last_byte != 0));
        if block.owner != 0 && filled {
            flags |= Fingerprint::NO_ZEROS;
            if bytes && self.repeats.saturating_sub(1) * WORDS_A_REPEAT < self.words {
                flags |= Fingerprint::DATA;
            }
        }
        Fingerprint {
            hash: fold(self.hash ^ SEED, block.size ^ SIZE_FACTOR),
            flags,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Bytes at a multiple of sixteen.
    #[repr(align(16))]
    struct Bytes([u8; 8192]);

    fn look(bytes: &[u8], element: u32) -> Fingerprint {
        let mut place = Box::new(Bytes([0xaa; 8192]));
        place.0[..bytes.len()].copy_from_slice(bytes);
        let block = Block {
            size: bytes.len() as u64,
            owner: element,
        };
        read(place.0.as_ptr() as usize, block, true).expect("it can be read")
    }

    fn some_bytes(count: usize) -> Vec<u8> {
        let byte = |n: usize| (n as u32 + 1).wrapping_mul(0x9e37_79b9).to_le_bytes()[3] | 1;
        (0..count).map(byte).collect()
    }

    #[test]
    fn equal_bytes_have_equal_hashes_and_each_bit_counts() {
        for size in [1, 7, 8, 9, 16, 31, 4095, 4096, 4097, 5000] {
            let mut bytes = some_bytes(size);
            assert_eq!(look(&bytes, 0), look(&bytes, 0));
            assert_eq!(look(&bytes, 0).hash, look(&bytes, 1).hash);
            let mut seen = HashSet::from([look(&bytes, 0).hash]);
            let step = (size * 8 / 300).max(1);
            for bit in (0..size * 8).step_by(step) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(look(&bytes, 0).hash), "{size} bytes, bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn zeros_of_different_length_are_different_and_what_lies_behind_does_not_count() {
        let hashes: HashSet<u64> = (1..500).map(|n| look(&vec![0; n], 0).hash).collect();
        assert_eq!(hashes.len(), 499);
    }

    #[test]
    fn words_that_swap_places_are_noticed() {
        let mut bytes = some_bytes(64);
        let before = look(&bytes, 0).hash;
        let (a, b) = bytes.split_at_mut(32);
        a[..8].swap_with_slice(&mut b[..8]);
        assert_ne!(look(&bytes, 0).hash, before);
    }

    #[test]
    fn a_filler_is_uniform_and_data_is_not() {
        assert!(look(&[0; 64], 0).has(Fingerprint::UNIFORM));
        assert!(look(&[7; 64], 0).has(Fingerprint::UNIFORM));
        assert!(!look(&some_bytes(64), 0).has(Fingerprint::UNIFORM));
    }

    #[test]
    fn zero_elements_are_found_by_their_size() {
        let word = u64::from_le_bytes([1, 1, 1, 0, 1, 0, 0, 0]);
        let zero = |bits| Lanes::of(bits).zero(word) != 0;
        assert_eq!([8, 16, 32, 64].map(zero), [true, true, false, false]);
        let high = 0x8000_8000_8000_8000;
        assert!(
            [16, 32, 64]
                .iter()
                .all(|bits| Lanes::of(*bits).zero(high) == 0)
        );
        assert!(Lanes::of(64).zero(0) != 0 && Lanes::of(32).zero(1) != 0);
        assert_eq!([element_bytes(12, 1), element_bytes(0, 0)], [1, 1]);
        let arrays = [(10, 1), (40, 4), (60, 2), (120, 4), (80, 8), (160, 8)];
        for (size, bytes) in arrays {
            assert_eq!(element_bytes(size, 10), bytes, "{size}");
        }
    }

    #[test]
    fn text_and_data_are_dense_and_pointers_are_not() {
        let dense = |bytes: &[u8]| look(bytes, 0).has(Fingerprint::DENSE);
        assert!(dense(b"sixteen bytes..\0"));
        assert!(dense(b"a text of some length\0"));
        assert!(dense(&some_bytes(1000)));
        let pointers: Vec<u8> = (0..100u64)
            .flat_map(|n| (0x7fff_1234_5678 + n).to_le_bytes())
            .collect();
        assert!(!dense(&pointers));
        assert!(!dense(&pointers[..16]));
        assert!(!dense(b"short\0\0\0 and more of it.."));
    }

    #[test]
    fn bytes_are_overwritten_if_they_are_dense_and_end_in_something() {
        let flags = |bytes: &[u8]| look(bytes, 1).flags;
        let all = Fingerprint::DENSE | Fingerprint::NO_ZEROS | Fingerprint::DATA;
        let mut bytes = some_bytes(1001);
        assert_eq!(flags(&bytes), all);
        bytes[500] = 0;
        assert_eq!(flags(&bytes), all, "one zero is data");
        bytes[1000] = 0;
        assert_eq!(flags(&bytes), Fingerprint::DENSE, "a terminator");
        let sieve: Vec<u8> = (0..1001).map(|n| u8::from(n % 2 == 0)).collect();
        assert_eq!(flags(&sieve) & all, 0);
        let marks = look(&[1; 1001], 1);
        assert_eq!(marks.flags & all, all & !Fingerprint::DATA);
        let mut hole = some_bytes(8000);
        hole[800..808].fill(0);
        assert_eq!(flags(&hole), Fingerprint::DENSE, "a word was left out");
    }

    #[test]
    fn numbers_are_overwritten_if_none_is_zero() {
        let numbers: Vec<u8> = (1..100u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(look(&numbers, 4).flags, Fingerprint::NO_ZEROS);
        assert_eq!(look(&numbers, 2).flags, 0);
        assert_eq!(look(&numbers[..392], 8).flags, Fingerprint::NO_ZEROS);
        let mut last = numbers.clone();
        last[98 * 4..].fill(0);
        assert_eq!(look(&last, 4).flags, 0);
        assert_eq!(look(&last, 8).flags, 0, "the tail of a larger element");
        assert_eq!(look(&numbers, 0).flags, 0, "not of calloc");
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let block = |size| Block { size, owner: 0 };
        let place = Bytes([1; 8192]);
        let address = place.0.as_ptr() as usize;
        assert_eq!(read(address, block(0), false), None);
        assert_eq!(read(address, block(MOST_BYTES + 1), false), None);
        assert_eq!(read(address + 1, block(8), false), None);
        assert_eq!(read(usize::MAX - 7, block(8), false), None);
        // A page of no access behind one that can be read.
        let pages = sys::map_anonymous(3 * PAGE).expect("memory");
        // Kept, so that no other test's mapping comes there. SAFETY: the last page of the mapping.
        let refused = unsafe { libc::mprotect(pages.add(2 * PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(refused, 0);
        let address = pages as usize;
        assert!(read(address, block(2 * PAGE as u64), false).is_some());
        assert_eq!(read(address, block(2 * PAGE as u64 + 1), false), None);
        assert_eq!(read(address + 2 * PAGE - 16, block(24), false), None);
        assert!(read(address + 2 * PAGE - 16, block(16), false).is_some());
        assert_eq!(read(address + 2 * PAGE, block(16), false), None);
    }
}
