//! What a trace has of a block's contents: a hash, and properties of the bytes.

/// The fingerprint of a block's requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Equal contents have equal hashes; different ones with a probability of 2^-64.
    pub hash: u64,
    /// Bits from the constants below; a reader ignores others.
    pub flags: u8,
}

impl Fingerprint {
    /// All words of eight bytes are the same: nothing was written, or a filler.
    pub const UNIFORM: u8 = 1;
    /// Few words have a zero byte, which pointers and small numbers have: text, or data.
    pub const DENSE: u8 = 2;
    /// The block came from calloc, and no element of it is zero (`docs/reference/trace-format.md`).
    pub const NO_ZEROS: u8 = 4;
    /// With `NO_ZEROS`: the elements are single bytes, which differ like data, not like flags.
    pub const DATA: u8 = 8;
    /// One recorded copy filled three quarters of the block or more, and the bytes at both ends are still the same.
    pub const AS_COPIED: u8 = 16;

    pub fn with(self, flags: u8) -> Self {
        Fingerprint {
            flags: self.flags | flags,
            ..self
        }
    }

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
