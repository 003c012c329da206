//! The hash of the recorder's tables: one multiplication, after which the high bits depend on all bits of
//! the key.

/// 2^64 over the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
pub const fn spread(key: u64) -> u64 {
    key.wrapping_mul(FACTOR)
}

/// Each byte by its place.
pub fn bytes(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |hash, byte| spread(hash ^ u64::from(*byte)))
}

/// The highest bits alone.
#[inline(always)]
pub const fn top(key: u64, bits: u32) -> usize {
    (spread(key) >> (64 - bits)) as usize
}
