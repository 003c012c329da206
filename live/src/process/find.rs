//! Finds a process's `larder_anchor`, in a preloaded or linked liblarder or in the program itself: by
//! its symbol, or, in a program without symbols, by the magic number in the data that the loader has
//! relocated.

use larder_base::order;
use object::{Object, ObjectSymbol};

use super::Obstacle;
use super::anchor::{Anchor, MAGIC};
use super::maps::{self, Mapping};
use super::memory::Memory;

const SYMBOL: &str = "larder_anchor";
/// Bytes of data that are searched in a program without symbols.
const MOST_SEARCHED: u64 = 256 << 20;
const PIECE: u64 = 1 << 20;
const MOST_FOUND: usize = 8;

pub fn anchor(memory: &Memory) -> Result<Anchor, Obstacle> {
    let mappings = maps::read(memory)?;
    let mut groups: Vec<&[Mapping]> = maps::by_file(&mappings).collect();
    let program = memory.proc_path("exe").metadata().map(|file| {
        use std::os::unix::fs::MetadataExt;
        file.ino()
    });
    order::sort_by_key(&mut groups, |group| {
        let Some(first) = group.first() else { return 3 };
        let name = first
            .path
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        match () {
            () if name.starts_with(b"liblarder") => 0,
            () if program.as_ref().is_ok_and(|inode| *inode == first.inode) => 1,
            () => 2,
        }
    });
    for group in &groups {
        if let Some(address) = by_symbol(memory, group) {
            return Anchor::read(memory, address);
        }
    }
    let mut first = None;
    let of_programs = groups.iter().take(2).copied().flatten();
    for mapping in of_programs.filter(|mapping| !mapping.executable) {
        for address in by_magic(memory, mapping)? {
            // A second mapping of the file's page has addresses that are not relocated.
            match Anchor::read(memory, address) {
                Ok(anchor) => return Ok(anchor),
                Err(obstacle) => first = first.or(Some(obstacle)),
            }
        }
    }
    if let Some(obstacle) = first {
        return Err(obstacle);
    }
    // If memory may not be read, report that rather than NotLarder.
    mappings
        .first()
        .map_or(Ok(()), |first| memory.read(first.start, &mut [0]))?;
    Err(match is_narrow(memory) {
        true => Obstacle::Narrow,
        false => Obstacle::NotLarder,
    })
}

/// Whether it has more than one of Larder's libraries, each with a heap of its own.
pub fn several(memory: &Memory) -> Result<bool, Obstacle> {
    let mappings = maps::read(memory)?;
    let of_larder = maps::by_file(&mappings).filter(|group| by_symbol(memory, group).is_some());
    Ok(of_larder.take(2).count() > 1)
}

/// Whether its program is a 32-bit one.
pub fn is_narrow(memory: &Memory) -> bool {
    const CLASS_32: u8 = 1;
    let mut head = [0; 5];
    let read = memory.open_file("exe").map(|mut file| {
        use std::io::Read;
        file.read_exact(&mut head)
    });
    matches!(read, Ok(Ok(()))) && head.starts_with(b"\x7fELF") && head[4] == CLASS_32
}

fn by_symbol(memory: &Memory, group: &[Mapping]) -> Option<u64> {
    let (_, file) = maps::open_file(memory, group.first()?)?;
    let parsed = file.parse()?;
    let mut symbols = parsed.dynamic_symbols().chain(parsed.symbols());
    let found = symbols.find(|symbol| symbol.is_definition() && symbol.name() == Ok(SYMBOL))?;
    Some(found.address().wrapping_add(maps::bias(&file, group)?))
}

/// Addresses of the magic number, up to `MOST_FOUND`.
fn by_magic(memory: &Memory, mapping: &Mapping) -> Result<Vec<u64>, Obstacle> {
    let end = mapping.end.min(mapping.start.saturating_add(MOST_SEARCHED));
    let mut found = Vec::new();
    let mut at = mapping.start;
    while at < end {
        let piece = match memory.bytes(at, PIECE.min(end - at) as usize) {
            Ok(piece) => piece,
            // Gaps between the file's segments cannot be read.
            Err(Obstacle::Unsound(_)) => break,
            Err(obstacle) => return Err(obstacle),
        };
        // The structure contains addresses, so it is aligned to 8.
        for i in (0..piece.len()).step_by(8) {
            let rest = piece.get(i..).unwrap_or_default();
            if rest.starts_with(&MAGIC) && found.len() < MOST_FOUND {
                found.push(at + i as u64);
            }
        }
        at += PIECE - 4096;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_read_has_no_anchor() {
        let memory = Memory::open(std::process::id()).unwrap();
        let mut mapping = maps::read(&memory).unwrap().swap_remove(0);
        // No process has anything mapped here.
        (mapping.start, mapping.end) = (0, 4096);
        assert_eq!(by_magic(&memory, &mapping), Ok(Vec::new()));
    }
}
