//! Where the data of a process's program and libraries is: the memory of its global variables.

use larder_base::order;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::maps::{self, Mapping};
use super::memory::Memory;

/// What the data belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    CLibrary,
    CxxLibrary,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    pub start: u64,
    pub end: u64,
    pub owner: Owner,
}

/// File names of the C++ library.
const CXX_LIBRARIES: [&[u8]; 3] = [b"libstdc++.so", b"libc++.so", b"libc++abi.so"];

/// Sorted by address, and disjoint. A file that cannot be read has none.
pub fn globals(memory: &Memory, mappings: &[Mapping]) -> Vec<Data> {
    let mut found: Vec<Data> = maps::by_file(mappings)
        .filter(|group| group.iter().any(|mapping| mapping.executable))
        .filter_map(|group| of_file(memory, group))
        .flatten()
        .filter(|data| data.start < data.end)
        .collect();
    order::sort_by_key(&mut found, |data| data.start);
    found.dedup_by(|next, before| next.start < before.end);
    found
}

fn of_file(memory: &Memory, group: &[Mapping]) -> Option<Vec<Data>> {
    let (_, file) = maps::open_file(memory, group.first()?)?;
    let bias = maps::bias(&file, group)?;
    let header = elf::FileHeader64::<Endianness>::parse(&*file.map).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &*file.map).ok()?;
    let path = &group.first()?.path;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let owner = match name {
        b"libc.so.6" => Owner::CLibrary,
        _ if CXX_LIBRARIES.iter().any(|known| name.starts_with(known)) => Owner::CxxLibrary,
        _ => Owner::Other,
    };
    let written = segments.iter().filter(|segment| {
        segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian).0 & elf::PF_W.0 != 0
    });
    let data = written.map(|segment| {
        let start = bias.wrapping_add(segment.p_vaddr(endian));
        Data {
            start,
            end: start.saturating_add(segment.p_memsz(endian)),
            owner,
        }
    });
    Some(data.collect())
}

/// Ranges by what they belong to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub other: Vec<(u64, u64)>,
    pub globals: Vec<(u64, u64)>,
    pub c_library: Vec<(u64, u64)>,
    pub cxx_library: Vec<(u64, u64)>,
}

impl Split {
    /// REQUIRES: `data` is sorted by address, and disjoint.
    pub fn of(ranges: &[(u64, u64)], data: &[Data]) -> Self {
        let mut split = Self::default();
        for (begin, end) in ranges {
            let mut from = *begin;
            let first = data.partition_point(|data| data.end <= from);
            let rest = data.get(first..).unwrap_or_default().iter();
            for data in rest.take_while(|data| data.start < *end) {
                split.other.extend(range(from, data.start));
                let to = data.end.min(*end);
                let part = range(from.max(data.start), to);
                match data.owner {
                    Owner::CLibrary => split.c_library.extend(part),
                    Owner::CxxLibrary => split.cxx_library.extend(part),
                    Owner::Other => split.globals.extend(part),
                }
                from = to;
            }
            split.other.extend(range(from, *end));
        }
        split
    }
}

fn range(from: u64, to: u64) -> Option<(u64, u64)> {
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_where_data_begins_and_ends() {
        let data = |start, end, owner| Data { start, end, owner };
        let all = [data(10, 20, Owner::Other), data(30, 40, Owner::CxxLibrary)];
        let split = Split::of(&[(0, 12), (15, 35), (38, 50), (60, 70)], &all);
        assert_eq!(split.other, [(0, 10), (20, 30), (40, 50), (60, 70)]);
        assert_eq!(split.globals, [(10, 12), (15, 20)]);
        assert_eq!(split.cxx_library, [(30, 35), (38, 40)]);
        let whole = Split::of(&[(0, 12)], &[]);
        assert_eq!(whole.other, [(0, 12)]);
    }

    #[test]
    fn a_global_of_this_program_is_in_its_data() {
        static GLOBAL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let memory = Memory::open(std::process::id()).unwrap();
        let found = globals(&memory, &maps::read(&memory).unwrap());
        let (global, local) = (&raw const GLOBAL as u64, &raw const memory as u64);
        let holds = |at| {
            found
                .iter()
                .any(|data| (data.start..data.end).contains(&at))
        };
        assert!(holds(global) && !holds(local), "{found:x?}");
        assert!(found.is_sorted_by(|a, b| a.end <= b.start));
    }
}
