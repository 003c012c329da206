//! The names of the program's marks, as numbers that are valid in one chunk.
//!
//! A name has one place, by its hash; another name with that place replaces it, and is defined anew. So
//! names that never repeat take bytes in the trace, but no memory.
//!
//! Thread safety: owned by a stream.

use larder_trace::codec::MAX_MARK_NAME;

use crate::hash;
use crate::memory::Pages;

#[derive(Clone, Copy)]
struct Place {
    /// One more than the number of the chunk that defined the name; 0 in an empty place.
    chunk: u32,
    bytes: u32,
    name: [u8; MAX_MARK_NAME],
}

const PLACES: usize = 64;

pub struct MarkNames(Pages<Place>);

pub struct Numbered {
    pub number: u32,
    /// It must be defined in the trace.
    pub new: bool,
}

impl MarkNames {
    pub const fn new() -> Self {
        MarkNames(Pages::empty())
    }

    pub fn release(&mut self) {
        self.0.release();
    }

    /// The number of a name in a chunk; `None` without memory.
    pub fn number(&mut self, chunk: u32, name: &[u8]) -> Option<Numbered> {
        if !self.0.grow(PLACES) {
            return None;
        }
        let number = (hash::bytes(name) >> 58) as usize;
        let place = self.0.slice().get_mut(number)?;
        let chunk = chunk.wrapping_add(1);
        let known = place.name.get(..place.bytes as usize) == Some(name);
        let new = place.chunk != chunk || !known;
        if new {
            place.name.get_mut(..name.len())?.copy_from_slice(name);
            place.bytes = name.len() as u32;
            place.chunk = chunk;
        }
        Some(Numbered {
            number: number as u32,
            new,
        })
    }
}

const _: () = assert!(PLACES == 1 << (64 - 58));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_a_chunk_and_after_another_took_its_place() {
        let mut names = MarkNames::new();
        let mut number = |chunk, name: &str| {
            let numbered = names.number(chunk, name.as_bytes()).expect("memory");
            (numbered.number, numbered.new)
        };
        let (request, new) = number(0, "request");
        assert!(new);
        assert_eq!(number(0, "request"), (request, false));
        assert_eq!(number(1, "request"), (request, true));
        assert!(number(1, "").1);
        assert!(!number(1, "").1);
        let other = (0..)
            .map(|n| n.to_string())
            .find(|name| number(1, name).0 == request)
            .expect("some name has the same place");
        assert_eq!(number(1, "request"), (request, true), "{other} was there");
    }
}
