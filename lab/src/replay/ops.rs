//! The file of operations that `larder-replay` carries out; `replay/ops.h` reads it.
//!
//! A header, chunks of one thread each, and a table of the threads' first chunks. Memory: for each thread
//! an incomplete chunk of up to 32 KiB, and 8 bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"LRDOPS01";
const HEADER_BYTES: u64 = 40;
const CHUNK_HEADER_BYTES: usize = 16;
const CHUNK_WORDS: usize = ((32 << 10) - CHUNK_HEADER_BYTES) / 8;
/// Offset in the chunk's header of the position of the thread's next chunk.
const NEXT: u64 = 8;

pub const CODE_BITS: u32 = 5;
/// Slot numbers are below this.
pub const MOST_SLOTS: u32 = 1 << 27;

/// Codes up to `Realloc` allocate, those from `Free` on free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub enum Code {
    Align = 1,
    Wait,
    High,
    Lap,
    Spawn,
    Malloc,
    Calloc,
    AlignedAlloc,
    PosixMemalign,
    Memalign,
    Valloc,
    Pvalloc,
    New,
    NewArray,
    Realloc,
    Free,
    Delete,
    DeleteArray,
}

/// `small` is below `MOST_SLOTS`.
pub fn word(code: Code, small: u32, value: u32) -> u64 {
    u64::from(code as u8) | u64::from(small) << CODE_BITS | u64::from(value) << 32
}

/// A thread's operations that are not yet written.
#[derive(Debug)]
pub struct Stream {
    words: Vec<u64>,
    /// Where to write the position of its next chunk.
    link: Link,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Table(usize),
    Chunk(u64),
}

#[derive(Debug)]
pub struct OpsFile {
    file: File,
    end: u64,
    /// Offsets of the threads' first chunks; 0: none.
    table: Vec<u64>,
}

impl OpsFile {
    /// REQUIRES: the file is empty.
    pub fn new(file: File) -> OpsFile {
        OpsFile {
            file,
            end: HEADER_BYTES,
            table: Vec::new(),
        }
    }

    /// The stream of the next thread.
    pub fn begin_thread(&mut self) -> Stream {
        self.table.push(0);
        Stream {
            words: Vec::new(),
            link: Link::Table(self.table.len() - 1),
        }
    }

    pub fn push(&mut self, stream: &mut Stream, word: u64) -> io::Result<()> {
        if stream.words.len() == CHUNK_WORDS {
            self.flush(stream)?;
        }
        stream.words.push(word);
        Ok(())
    }

    /// Writes the rest of the stream, and frees its memory.
    pub fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        let words = std::mem::take(&mut stream.words);
        if words.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(CHUNK_HEADER_BYTES + words.len() * 8);
        bytes.extend((words.len() as u64).to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.file.write_all_at(&bytes, self.end)?;
        match stream.link {
            Link::Table(thread) => {
                if let Some(first) = self.table.get_mut(thread) {
                    *first = self.end;
                }
            }
            Link::Chunk(offset) => self
                .file
                .write_all_at(&self.end.to_le_bytes(), offset + NEXT)?,
        }
        stream.link = Link::Chunk(self.end);
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// REQUIRES: every stream is flushed.
    pub fn finish(self, slots: u64, most_threads: u64) -> io::Result<File> {
        let table: Vec<u8> = self.table.iter().flat_map(|at| at.to_le_bytes()).collect();
        self.file.write_all_at(&table, self.end)?;
        let mut header = MAGIC.to_vec();
        for field in [slots, self.table.len() as u64, self.end, most_threads] {
            header.extend(field.to_le_bytes());
        }
        self.file.write_all_at(&header, 0)?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of an enumeration in C++ or Rust.
    fn names<'a>(source: &'a str, head: &str) -> Vec<&'a str> {
        let (_, rest) = source.split_once(head).expect("the codes");
        let (body, _) = rest.split_once('}').expect("their end");
        body.lines()
            .filter_map(|line| line.trim().split([',', ' ']).next())
            .map(|name| name.strip_prefix('k').unwrap_or(name))
            .filter(|name| !name.is_empty())
            .collect()
    }

    #[test]
    fn the_reader_has_the_same_format() {
        const HEADER: &str = include_str!("../../../replay/ops.h");
        let read = names(HEADER, "enum class Code : uint8_t {");
        let written = names(include_str!("ops.rs"), "pub enum Code {");
        assert_eq!(read[0], "End");
        assert_eq!(read[Code::Align as usize..], written);
        assert_eq!(Code::DeleteArray as usize, written.len());
        let magic: Vec<String> = MAGIC.iter().map(|c| format!("'{}'", *c as char)).collect();
        for constant in [
            format!("kMagic[8] = {{{}}};", magic.join(", ")),
            format!(
                "kChunkBytes = {} << 10;",
                (CHUNK_WORDS * 8 + CHUNK_HEADER_BYTES) >> 10
            ),
            format!("kCodeBits = {CODE_BITS};"),
            format!("kSmallBits = {};", MOST_SLOTS.ilog2()),
        ] {
            assert!(HEADER.contains(&constant), "{constant}");
        }
    }
}
