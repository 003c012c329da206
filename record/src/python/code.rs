//! A code object's names and lines.
//!
//! Invariant: nothing is read that was not found readable just before.

use super::chain::{PythonFrame, is_plausible};
use super::layout::{BYTES, Evaluation, LENGTH, Layout, TEXT_STATE};
use crate::sys;

/// Longer texts and tables are taken for damage.
const MAX_BYTES: u64 = 16 << 20;
/// Characters of a name; the trace keeps no more bytes.
const MAX_CHARACTERS: u64 = 4096;
const PAGE: u64 = 4096;

/// A function and a line in it.
pub struct Place {
    pub function: Vec<u8>,
    pub file: Vec<u8>,
    pub line: u32,
}

/// Memory of the interpreter's; `None` if a part cannot be read.
pub fn read(address: u64, bytes: u64) -> Option<&'static [u8]> {
    let end = address.checked_add(bytes)?;
    if bytes > MAX_BYTES || address < PAGE || bytes < 8 {
        return None;
    }
    let mut page = address;
    while page < end {
        if !sys::readable(page.min(end - 8)) {
            return None;
        }
        page = (page & !(PAGE - 1)) + PAGE;
    }
    // SAFETY: every page was found readable; the thread that calls changes nothing meanwhile.
    Some(unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) })
}

pub fn read_word(address: u64) -> Option<u64> {
    Some(u64::from_ne_bytes(read(address, 8)?.try_into().ok()?))
}

fn word_at(bytes: &[u8], offset: u64) -> Option<u64> {
    let word = bytes.get(offset as usize..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// The place of a frame.
pub fn place(layout: &Layout, frame: PythonFrame) -> Option<Place> {
    let PythonFrame {
        code, instruction, ..
    } = frame;
    if !is_plausible(code) {
        return None;
    }
    let last = layout.lines.max(layout.shown_name).max(layout.first_line);
    let fields = read(code, u64::from(last) + 8)?;
    let field = |offset: u32| word_at(fields, offset.into());
    let first = field(layout.first_line)? as u32;
    let lines = field(layout.lines)?;
    let length = read_word(lines.checked_add(LENGTH)?)?;
    let table = read(lines, BYTES.checked_add(length)?)?.get(BYTES as usize..)?;
    let number = instruction as u32 as i32;
    let line = match layout.evaluation {
        Evaluation::FrameInOrder => Some(line_by_steps(table, first, number)),
        Evaluation::FrameEach => line_by_pairs(table, first, number),
        _ => {
            let start = code + u64::from(layout.instructions);
            line_by_locations(table, first, instruction.wrapping_sub(start) / 2)
        }
    };
    Some(Place {
        function: text(layout, field(layout.shown_name)?)?,
        file: text(layout, field(layout.file)?)?,
        line: line.unwrap_or(first).max(1),
    })
}

/// The characters of a text object in UTF-8. Python's stand-ins for bytes that are no UTF-8 are these bytes again.
pub fn text(layout: &Layout, object: u64) -> Option<Vec<u8>> {
    if !is_plausible(object) {
        return None;
    }
    let head = read(object, TEXT_STATE + 8)?;
    let state = word_at(head, TEXT_STATE)?;
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
    let count = word_at(head, LENGTH)?.min(MAX_CHARACTERS);
    if !is_compact || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let characters = if is_ascii {
        layout.ascii
    } else {
        layout.characters
    };
    let bytes = count * width;
    let from = object + u64::from(characters);
    // The object's own head stands before the characters of a short text.
    let held = read(from - 8, bytes + 8)?.get(8..)?;
    let mut out = Vec::with_capacity(held.len());
    for character in held.chunks_exact(width as usize) {
        let number = character
            .iter()
            .rev()
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        match char::from_u32(number) {
            Some(character) => out.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
            None => out.push(number as u8),
        }
    }
    Some(out)
}

/// Python 3.9: pairs of how many bytes behind the last line's instructions the next line's begin, and how far it is from
/// the last one. `instruction`: its first byte, negative before the first.
fn line_by_steps(table: &[u8], first: u32, instruction: i32) -> u32 {
    let (mut begin, mut line) = (0, first);
    for pair in table.chunks_exact(2) {
        begin += i64::from(pair[0]);
        if begin > i64::from(instruction) {
            break;
        }
        line = line.wrapping_add_signed((pair[1] as i8).into());
    }
    line
}

/// Python 3.10: pairs of how many bytes of instructions a line has, and how far it is from the last one.
/// `instruction`: its number, negative before the first.
fn line_by_pairs(table: &[u8], first: u32, instruction: i32) -> Option<u32> {
    const NO_LINE: u8 = 0x80;
    let wanted = u64::try_from(instruction).ok()? * 2;
    let (mut end, mut line) = (0, i64::from(first));
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        if pair[1] != NO_LINE {
            line += i64::from(pair[1] as i8);
        }
        if wanted < end {
            return (pair[1] != NO_LINE)
                .then_some(u32::try_from(line).ok())
                .flatten();
        }
    }
    None
}

/// Since Python 3.11: entries of how many instructions have a location. The first byte has bit 7 set, in bits 3
/// to 6 the location's form, below the number of instructions - 1.
fn line_by_locations(table: &[u8], first: u32, instruction: u64) -> Option<u32> {
    const NONE: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    let mut line = i64::from(first);
    let mut end = 0;
    let mut rest = table;
    while let Some((&head, after)) = rest.split_first() {
        let form = head >> 3 & 15;
        end += u64::from(head & 7) + 1;
        line += match form {
            LONG | NO_COLUMNS => signed_varint(after),
            10..=12 => i64::from(form) - 10,
            _ => 0,
        };
        if instruction < end {
            return (form != NONE).then_some(u32::try_from(line).ok()).flatten();
        }
        let skipped = after.iter().take_while(|byte| **byte & 0x80 == 0).count();
        rest = after.get(skipped..)?;
    }
    None
}

/// Groups of six bits, the low one first, bit 6 set on all but the last; the lowest bit is the sign.
fn signed_varint(bytes: &[u8]) -> i64 {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 63) << (6 * index);
        if byte & 64 == 0 {
            break;
        }
    }
    let amount = (value >> 1) as i64;
    if value & 1 != 0 { -amount } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of this function at line 10, by CPython 3.11, 3.10 and 3.9, with what `co_lines` or `dis` says of it.
    /// ```python
    /// def f(a):
    ///     b = [
    ///         a,
    ///     ]
    ///     return b
    /// ```
    #[test]
    fn a_table_gives_the_line_of_each_instruction() {
        let locations = [
            128, 0, 224, 8, 9, 240, 3, 2, 9, 6, 128, 65, 240, 6, 0, 12, 13, 128, 72,
        ];
        let lines = [10, 12, 11, 11, 14, 14].map(Some);
        let found = [0, 1, 2, 3, 4, 5].map(|at| line_by_locations(&locations, 10, at));
        assert_eq!(found, lines);
        let pairs = [2, 2, 4, 255, 4, 3];
        let lines = [None, Some(12), Some(11), Some(11), Some(14), Some(14)];
        let found = [-1, 0, 1, 2, 3, 4].map(|at| line_by_pairs(&pairs, 10, at));
        assert_eq!(found, lines);
        let steps = [0, 2, 2, 255, 4, 3];
        let found = [-1, 0, 1, 2, 4, 6, 8].map(|at| line_by_steps(&steps, 10, at));
        assert_eq!(found, [10, 12, 12, 11, 11, 14, 14]);
    }

    #[test]
    fn any_table_has_an_end() {
        for table in [
            &[][..],
            &[0x80],
            &[0x7f],
            &[0xf0],
            &[0xe8, 0x7f, 0x7f],
            &[255; 40],
        ] {
            assert_eq!(line_by_locations(table, 10, u64::MAX), None);
            assert_eq!(line_by_pairs(table, 10, i32::MAX), None);
            line_by_steps(table, 0, i32::MAX);
        }
    }

    #[test]
    fn memory_that_is_not_there_is_not_read() {
        let words = [7u64; 4];
        let at = words.as_ptr() as u64;
        assert_eq!(read_word(at), Some(7));
        assert_eq!(read(at, 32).map(<[u8]>::len), Some(32));
        assert_eq!(read_word(1 << 46), None);
        assert_eq!(read(u64::MAX - 3, 8), None);
        assert_eq!(read(at, u64::MAX), None);
    }
}
