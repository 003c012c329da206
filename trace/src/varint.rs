//! Variable-length integers: little-endian base 128, and zigzag for signed differences.
//!
//! Thread safety: `Out` and `Input` belong to one thread. Invariant of `Out`: a write past the end is
//! dropped and sets `overflowed`, so that writing never panics.

/// The most bytes a 64-bit varint takes.
pub const MAX_BYTES: usize = 10;

pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// A bounded sink over borrowed memory.
pub struct Out<'a> {
    bytes: &'a mut [u8],
    len: usize,
    overflowed: bool,
}

impl<'a> Out<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Out {
            bytes,
            len: 0,
            overflowed: false,
        }
    }

    #[inline]
    pub fn byte(&mut self, value: u8) {
        match self.bytes.get_mut(self.len) {
            Some(slot) => {
                *slot = value;
                self.len += 1;
            }
            None => self.overflowed = true,
        }
    }

    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// A length and the bytes themselves.
    pub fn blob(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        match self
            .bytes
            .get_mut(self.len..)
            .and_then(|rest| rest.get_mut(..bytes.len()))
        {
            Some(slot) => {
                slot.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.overflowed = true,
        }
    }

    /// The bytes written, or `None` if they did not fit.
    pub fn finish(self) -> Option<usize> {
        (!self.overflowed).then_some(self.len)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A bounded source. Every read returns `None` at the end of the bytes or for a malformed number.
#[derive(Clone)]
pub struct Input<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { bytes, pos: 0 }
    }

    pub fn at(bytes: &'a [u8], pos: usize) -> Self {
        Input { bytes, pos }
    }

    pub fn pos(&self) -> usize {
        self.pos
    }

    pub fn is_empty(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let value = *self.bytes.get(self.pos)?;
        self.pos += 1;
        Some(value)
    }

    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            // The tenth byte has the last bit.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    pub fn varint_u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    pub fn blob(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        let end = self.pos.checked_add(len)?;
        let bytes = self.bytes.get(self.pos..end)?;
        self.pos = end;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_return_as_written() {
        for value in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut bytes = [0; MAX_BYTES];
            let mut out = Out::new(&mut bytes);
            out.varint(value);
            let len = out.finish().expect("fits");
            let mut input = Input::new(&bytes[..len]);
            assert_eq!(input.varint(), Some(value));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn differences_return_as_written() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-1), 1);
    }

    #[test]
    fn a_number_cut_or_too_long_is_refused() {
        assert_eq!(Input::new(&[0x80, 0x80]).varint(), None);
        assert_eq!(Input::new(&[0xff; 11]).varint(), None);
        assert_eq!(Input::new(&[5, 1, 2]).blob(), None);
    }

    #[test]
    fn writing_past_the_end_is_remembered() {
        let mut bytes = [0; 2];
        let mut out = Out::new(&mut bytes);
        out.varint(u64::MAX);
        assert_eq!(out.finish(), None);
    }
}
