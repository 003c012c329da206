//! What a block held, in so far as a trace says it: a hash, and what the bytes are like.

/// Of a block's bytes, those that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Equal bytes of equal number have equal hashes; others do by chance, once in 2^64.
    pub hash: u64,
    /// Of the constants below; a reader ignores others.
    pub flags: u8,
}

impl Fingerprint {
    /// All words of eight bytes are the same: nothing was written, or a filler.
    pub const UNIFORM: u8 = 1;
    /// Few words have a zero byte, which pointers and small numbers have: text, or data.
    pub const DENSE: u8 = 2;
    /// The block came from calloc, and no element of it is zero (`docs/reference/trace-format.md`).
    pub const NO_ZEROS: u8 = 4;
    /// With `NO_ZEROS`: of single bytes, which differ like data and not like marks.
    pub const DATA: u8 = 8;

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
