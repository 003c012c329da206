//! The hash of the recorder's tables: one multiplication, after which the high bits depend on all bits of
//! the key; and that of bytes.

/// 2^64 over the golden ratio.
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
pub const fn spread(key: u64) -> u64 {
    key.wrapping_mul(FACTOR)
}

/// Both halves of the product: each bit depends on all of both factors.
#[inline(always)]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Each byte by its place; a multiplication a word.
pub fn bytes(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(size_of::<u64>());
    let tail = words.remainder().iter();
    let tail = tail.fold(0, |word, byte| word << 8 | u64::from(*byte));
    let next = |hash, word| fold(hash ^ word, FACTOR);
    let hash = words.fold(bytes.len() as u64, |hash, word| {
        next(
            hash,
            u64::from_le_bytes(word.try_into().unwrap_or_default()),
        )
    });
    next(hash, tail)
}

/// The highest bits alone.
#[inline(always)]
pub const fn top(key: u64, bits: u32) -> usize {
    (spread(key) >> (64 - bits)) as usize
}
