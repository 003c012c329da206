//! Cuts a stream into lines, with their offsets, in bounded memory.
//!
//! curl cuts a line at 1,023 bytes, newline included, so that the next one follows directly: longer text
//! without a newline is split at that length. The last line of a log may lack its newline, if a crash lost
//! buffered text.
//!
//! Invariant: the lines joined by newlines = the stream's bytes.

use std::io::{self, Read};

use crate::line::{Line, Unrecognised};

/// The maximum length of a line that curl writes.
pub const MAX_LINE_BYTES: usize = 1023;

const BLOCK_BYTES: usize = 256 << 10;

/// How a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Newline,
    /// Longer than curl's maximum: the rest is the next line.
    TooLong,
    /// The log ends without a newline.
    EndOfLog,
}

/// A line without its newline, and without a carriage return before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawLine<'a> {
    pub bytes: &'a [u8],
    /// The offset of its first byte in the stream.
    pub offset: u64,
    /// From 1.
    pub number: u64,
    pub ending: Ending,
}

pub struct Lines<R> {
    source: R,
    /// `buffer[start..end]` is read and not yet returned.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    offset: u64,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub fn new(source: R) -> Self {
        Lines {
            source,
            buffer: vec![0; BLOCK_BYTES],
            start: 0,
            end: 0,
            ended: false,
            offset: 0,
            number: 0,
        }
    }

    /// The next bytes, up to a buffer of them, without consuming them.
    pub fn peek(&mut self) -> io::Result<&[u8]> {
        if self.end - self.start <= MAX_LINE_BYTES && !self.ended {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Bytes returned so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line; `None` at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.peek()?;
        let have = &self.buffer[self.start..self.end];
        if have.is_empty() {
            return Ok(None);
        }
        let window = &have[..have.len().min(MAX_LINE_BYTES + 1)];
        let (length, taken, ending) = match memchr::memchr(b'\n', window) {
            Some(at) => (at, at + 1, Ending::Newline),
            None if have.len() > MAX_LINE_BYTES => {
                (MAX_LINE_BYTES, MAX_LINE_BYTES, Ending::TooLong)
            }
            None => (have.len(), have.len(), Ending::EndOfLog),
        };
        let line = &have[..length];
        let raw = RawLine {
            bytes: line.strip_suffix(b"\r").unwrap_or(line),
            offset: self.offset,
            number: self.number + 1,
            ending,
        };
        self.start += taken;
        self.offset += taken as u64;
        self.number += 1;
        Ok(Some(raw))
    }

    /// Reads until there is more than one line's length, or the end.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end <= MAX_LINE_BYTES {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether this may be the start of a log: it has a line of a known kind, or is empty.
pub fn looks_like_a_log(beginning: &[u8]) -> bool {
    let known = |line| !matches!(Line::parse(line), Err(Unrecognised::Prefix));
    beginning.is_empty() || beginning.split(|&byte| byte == b'\n').any(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a byte or two at a time, like a slow pipe.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let take = out.len().min(self.0.len()).min(1 + self.0.len() % 2);
            out[..take].copy_from_slice(&self.0[..take]);
            self.0 = &self.0[take..];
            Ok(take)
        }
    }

    fn all(source: impl Read) -> Vec<(Vec<u8>, u64, Ending)> {
        let mut lines = Lines::new(source);
        let mut out = Vec::new();
        while let Some(line) = lines.next().expect("no read error") {
            out.push((line.bytes.to_vec(), line.offset, line.ending));
        }
        out
    }

    #[test]
    fn lines_have_their_offsets_and_the_last_is_marked_as_truncated() {
        let expected = [
            (b"one".to_vec(), 0, Ending::Newline),
            (b"".to_vec(), 4, Ending::Newline),
            (b"two".to_vec(), 5, Ending::Newline),
            (b"thr".to_vec(), 10, Ending::EndOfLog),
        ];
        assert_eq!(all(b"one\n\ntwo\r\nthr".as_slice()), expected);
    }

    #[test]
    fn a_line_that_curl_cut_does_not_take_the_next_one_with_it() {
        let text = [vec![b'x'; MAX_LINE_BYTES], b"next\n".to_vec()].concat();
        let lines = all(text.as_slice());
        assert_eq!(lines[0].2, Ending::TooLong);
        assert_eq!(lines[1], (b"next".to_vec(), 1023, Ending::Newline));
    }

    #[test]
    fn a_line_of_full_length_is_whole() {
        let text = [vec![b'x'; MAX_LINE_BYTES], b"\n".to_vec()].concat();
        assert_eq!(
            all(text.as_slice()),
            [(vec![b'x'; MAX_LINE_BYTES], 0, Ending::Newline)]
        );
    }

    proptest! {
        #[test]
        fn how_the_bytes_arrive_makes_no_difference(
            text in proptest::collection::vec(prop_oneof![8 => any::<u8>(), 1 => Just(b'\n')], 0..5000)
        ) {
            prop_assert_eq!(all(text.as_slice()), all(Trickle(&text)));
        }
    }
}
