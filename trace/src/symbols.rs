//! Symbol chunks: the trace's own names for addresses, for code that no file on disk describes (an imported
//! trace, lines of Python).
//!
//! Invariants: texts are numbered from 1 in each chunk, so that a chunk can be read without the others; the
//! first name of an address counts; `Symbols` takes a small multiple of the bytes of its chunks, which are
//! never compressed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::modules::ModuleId;
use crate::varint::{Input, MAX_BYTES, Out, unzigzag, zigzag};

/// A function at an address, and the address's source line in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function<'a> {
    /// The mangled or the demangled name; empty if unknown.
    pub name: &'a [u8],
    /// Empty if unknown.
    pub file: &'a [u8],
    /// 0 if unknown.
    pub line: u32,
}

/// The path of the module that has Python's lines.
pub const PYTHON: &[u8] = b"[python]";
/// Its addresses. None is canonical, so no code is at any.
pub const PYTHON_ADDRESSES: Range<u64> = 1 << 62..(1 << 63) - 1;

const TEXT: u8 = 1;
const ADDRESS: u8 = 2;

/// A longer name is truncated, so that every record fits into a chunk.
pub const MAX_TEXT_BYTES: usize = 4096;
/// Functions of one address; functions inlined deeper are left out.
pub const MAX_FUNCTIONS: usize = 64;
/// A chunk with more bytes is full. Invariant: this + the longest record ≤ `MAX_RAW_BYTES`.
const FULL_BYTES: usize = 256 << 10;

fn cut(text: &[u8]) -> &[u8] {
    text.get(..MAX_TEXT_BYTES).unwrap_or(text)
}

/// The payload of a symbol chunk while it is written. Allocates; asks the system for no random numbers.
#[derive(Debug, Default)]
pub struct SymbolChunk {
    bytes: Vec<u8>,
    texts: BTreeMap<Vec<u8>, u64>,
    address: u64,
}

impl SymbolChunk {
    /// Names the functions at an address of a module, innermost first. The address is the looked-up one - the
    /// module's bias.
    pub fn add(&mut self, module: ModuleId, address: u64, functions: &[Function<'_>]) {
        let functions = functions.get(..MAX_FUNCTIONS).unwrap_or(functions);
        let numbers: Vec<[u64; 3]> = functions
            .iter()
            .map(|function| {
                let (name, file) = (self.text(function.name), self.text(function.file));
                [name, file, function.line.into()]
            })
            .collect();
        self.bytes.push(ADDRESS);
        self.varint(module.0.into());
        self.varint(zigzag(address.wrapping_sub(self.address) as i64));
        self.varint(numbers.len() as u64);
        for number in numbers.into_iter().flatten() {
            self.varint(number);
        }
        self.address = address;
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() > FULL_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The payload; the chunk is empty afterwards.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }

    fn text(&mut self, text: &[u8]) -> u64 {
        let text = cut(text);
        if text.is_empty() {
            return 0;
        }
        if let Some(&number) = self.texts.get(text) {
            return number;
        }
        self.bytes.push(TEXT);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text);
        let number = self.texts.len() as u64 + 1;
        self.texts.insert(text.to_vec(), number);
        number
    }

    fn varint(&mut self, value: u64) {
        let mut buffer = [0; MAX_BYTES];
        let mut out = Out::new(&mut buffer);
        out.varint(value);
        let length = out.len();
        self.bytes.extend_from_slice(&buffer[..length]);
    }
}

/// The names of all symbol chunks of a file.
#[derive(Debug, Default)]
pub struct Symbols {
    text_bytes: Vec<u8>,
    /// The place of each text in `text_bytes`; the first is empty.
    texts: Vec<(usize, usize)>,
    /// Texts of name and file, and the line.
    functions: Vec<(usize, usize, u32)>,
    /// The first function, and their number.
    by_address: HashMap<(ModuleId, u64), (usize, usize)>,
    modules: HashSet<ModuleId>,
}

impl Symbols {
    /// The functions at an address of a module, innermost first; none if the trace names none.
    pub fn functions(
        &self,
        module: ModuleId,
        address: u64,
    ) -> impl ExactSizeIterator<Item = Function<'_>> {
        let range = self.by_address.get(&(module, address));
        let found = range.and_then(|&(first, count)| self.functions.get(first..first + count));
        found
            .unwrap_or_default()
            .iter()
            .map(|&(name, file, line)| Function {
                name: self.text(name),
                file: self.text(file),
                line,
            })
    }

    /// What is named, in order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (ModuleId, u64)> {
        let mut all: Vec<_> = self.by_address.keys().copied().collect();
        all.sort_unstable();
        all.into_iter()
    }

    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Whether the trace names any function of a module.
    pub fn name_some_of(&self, module: ModuleId) -> bool {
        self.modules.contains(&module)
    }

    fn text(&self, number: usize) -> &[u8] {
        let place = self.texts.get(number);
        place
            .and_then(|&(start, end)| self.text_bytes.get(start..end))
            .unwrap_or_default()
    }

    /// Adds a symbol chunk; `None` at the first malformed record; the records before it stay.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Option<()> {
        if self.texts.is_empty() {
            self.texts.push((0, 0));
        }
        // Text 1 of this chunk.
        let first = self.texts.len();
        let mut address = 0u64;
        let mut input = Input::new(payload);
        while !input.is_empty() {
            match input.byte()? {
                TEXT => {
                    let start = self.text_bytes.len();
                    self.text_bytes.extend_from_slice(cut(input.blob()?));
                    self.texts.push((start, self.text_bytes.len()));
                }
                ADDRESS => {
                    let module = ModuleId(input.varint_u32()?);
                    address = address.wrapping_add(unzigzag(input.varint()?) as u64);
                    let count = usize::try_from(input.varint()?).ok()?;
                    // A reader makes a named frame of each.
                    if count > MAX_FUNCTIONS {
                        return None;
                    }
                    let begin = self.functions.len();
                    for _ in 0..count {
                        let name = self.text_number(&mut input, first)?;
                        let file = self.text_number(&mut input, first)?;
                        self.functions.push((name, file, input.varint_u32()?));
                    }
                    self.modules.insert(module);
                    self.by_address
                        .entry((module, address))
                        .or_insert((begin, count));
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn text_number(&self, input: &mut Input<'_>, first: usize) -> Option<usize> {
        let number = usize::try_from(input.varint()?).ok()?;
        let own = match number {
            0 => 0,
            _ => first.checked_add(number - 1)?,
        };
        (own < self.texts.len()).then_some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function<'a>(name: &'a str, file: &'a str, line: u32) -> Function<'a> {
        Function {
            name: name.as_bytes(),
            file: file.as_bytes(),
            line,
        }
    }

    #[test]
    fn names_return_as_written_chunk_by_chunk() {
        let inlined = [function("leaf", "a.h", 3), function("f", "a.c", 0)];
        let mut symbols = Symbols::default();
        let mut chunk = SymbolChunk::default();
        chunk.add(ModuleId(0), 0x1000, &inlined);
        chunk.add(ModuleId(0), 0x10, &[function("", "a.c", 9)]);
        assert_eq!(symbols.apply(&chunk.take()), Some(()));
        chunk.add(ModuleId(1), 0x1000, &[function("f", "b.c", u32::MAX)]);
        chunk.add(ModuleId(0), 0x10, &[function("late", "", 1)]);
        assert_eq!(symbols.apply(&chunk.take()), Some(()));
        let at = |module, address| {
            symbols
                .functions(ModuleId(module), address)
                .collect::<Vec<_>>()
        };
        assert_eq!(at(0, 0x1000), inlined);
        assert_eq!(at(0, 0x10), [function("", "a.c", 9)]);
        assert_eq!(at(1, 0x1000), [function("f", "b.c", u32::MAX)]);
        assert_eq!(at(1, 0x10), []);
    }

    #[test]
    fn hostile_chunks_end_at_the_first_bad_record() {
        for bad in [
            &[TEXT, 200, 1, 2][..],
            &[ADDRESS, 0, 0, 1, 9, 0, 0],
            &[
                ADDRESS, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1,
            ],
            &[
                ADDRESS, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0,
            ],
            &[3],
        ] {
            let mut chunk = SymbolChunk::default();
            chunk.add(ModuleId(7), 7, &[function("kept", "", 0)]);
            let mut symbols = Symbols::default();
            assert_eq!(
                symbols.apply(&[&chunk.take(), bad].concat()),
                None,
                "{bad:?}"
            );
            assert_eq!(
                symbols.functions(ModuleId(7), 7).next(),
                Some(function("kept", "", 0))
            );
        }
    }

    #[test]
    fn a_reader_takes_no_more_than_a_writer_gives() {
        let mut text = vec![TEXT, 0x80, 0x80, 0x04];
        text.extend([b'x'; 1 << 16]);
        let mut symbols = Symbols::default();
        assert_eq!(
            symbols.apply(&[&text[..], &[ADDRESS, 0, 2, 1, 1, 0, 0]].concat()),
            Some(())
        );
        let name = symbols.functions(ModuleId(0), 1).next().unwrap().name;
        assert_eq!(name.len(), MAX_TEXT_BYTES);
        let many = |count: u8| [&[ADDRESS, 1, 2, count], &[0; 3].repeat(count.into())[..]].concat();
        assert_eq!(symbols.apply(&many(MAX_FUNCTIONS as u8)), Some(()));
        assert_eq!(symbols.apply(&many(MAX_FUNCTIONS as u8 + 1)), None);
    }

    #[test]
    fn names_beyond_reason_are_cut() {
        let long = "x".repeat(10 << 20);
        let mut chunk = SymbolChunk::default();
        chunk.add(ModuleId(0), 1, &vec![function(&long, &long, 1); 100_000]);
        assert!(chunk.take().len() < crate::layout::MAX_RAW_BYTES);
    }
}
