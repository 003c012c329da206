//! From a profile's addresses to functions and lines: the module that contains an address, and the
//! offset in the module's file.
//!
//! A profile has no build ids, so a file that was replaced since gives wrong names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_analysis::reading::chain::{Chain, Location};
use larder_analysis::reading::resolve::Resolver;
use larder_analysis::symbols::ElfFile;
use larder_trace::Module;
use object::{Object, ObjectSegment};

use super::heap::Mapping;

/// A loaded part of a file: its offset in the file, its length, and its address there.
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

struct LoadedFile {
    module: Module,
    segments: Vec<Segment>,
}

/// The code of one process, by address.
pub struct Modules<'a> {
    /// Sorted by address, and disjoint.
    mappings: Vec<(&'a Mapping, usize)>,
    files: Vec<LoadedFile>,
}

impl<'a> Modules<'a> {
    /// REQUIRES: `mappings` are sorted by address. Opens each file once.
    pub fn new(mappings: &'a [Mapping]) -> Self {
        let mut modules = Self {
            mappings: Vec::with_capacity(mappings.len()),
            files: Vec::new(),
        };
        let mut by_path = rustc_hash::FxHashMap::default();
        for mapping in mappings {
            let file = *by_path.entry(&*mapping.path).or_insert_with(|| {
                modules.files.push(LoadedFile::open(mapping));
                modules.files.len() - 1
            });
            modules.mappings.push((mapping, file));
        }
        modules
    }

    /// The stack of these return addresses, innermost first.
    pub fn chain(&self, resolver: &mut Resolver, frames: &[u64]) -> Chain {
        frames
            .iter()
            // Inside the call instruction.
            .map(|frame| self.location(resolver, frame.saturating_sub(1)))
            .collect()
    }

    fn location(&self, resolver: &mut Resolver, address: u64) -> Location {
        let after = self
            .mappings
            .partition_point(|(mapping, _)| mapping.start <= address);
        let found = after
            .checked_sub(1)
            .and_then(|index| self.mappings.get(index));
        match found.filter(|(mapping, _)| address < mapping.end) {
            Some((mapping, file)) => {
                let file = &self.files[*file];
                let in_file = file.address(address - mapping.start, mapping.offset);
                resolver.frames_in_file(Some(&file.module), in_file)
            }
            None => resolver.frames_in_file(None, address),
        }
    }
}

impl LoadedFile {
    fn open(mapping: &Mapping) -> Self {
        let file = ElfFile::open(Path::new(OsStr::from_bytes(&mapping.path)));
        let parsed = file.as_ref().and_then(ElfFile::parse);
        let segments = parsed.iter().flat_map(|file| file.segments());
        let segments = segments.map(|segment| {
            let (offset, size) = segment.file_range();
            Segment {
                offset,
                size,
                address: segment.address(),
            }
        });
        Self {
            segments: segments.collect(),
            module: Module::of_file(
                mapping.path.clone(),
                file.as_ref().map(ElfFile::build_id).unwrap_or_default(),
            ),
        }
    }

    /// The file's own address of a byte of the mapping; its offset if the file is missing.
    fn address(&self, in_mapping: u64, offset: u64) -> u64 {
        let offset = in_mapping.wrapping_add(offset);
        let segment = self
            .segments
            .iter()
            .find(|segment| offset.wrapping_sub(segment.offset) < segment.size);
        segment.map_or(offset, |segment| {
            (offset - segment.offset).wrapping_add(segment.address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_analysis::reading::attribute::functions;
    use larder_analysis::reading::resolve::Charging;

    #[inline(never)]
    fn marked_function() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_of_this_program_is_found_by_its_address() {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let mappings: Vec<Mapping> = maps
            .split(|byte| *byte == b'\n')
            .filter_map(super::super::parse::mapping)
            .flatten()
            .collect();
        let modules = Modules::new(&mappings);
        let mut resolver = Resolver::new(Charging::default());
        let inside = marked_function as fn() -> u32 as usize as u64 + 2;
        let chain = modules.chain(&mut resolver, &[inside, 0, u64::MAX]);
        let names: Vec<String> = functions(&chain)
            .map(larder_analysis::reading::naming::frame_name)
            .collect();
        assert!(names[0].ends_with("marked_function"), "{names:?}");
        assert_eq!(names.last().unwrap(), "[unknown]+0xfffffffffffffffe");
        let _ = marked_function();
    }

    #[test]
    fn a_module_that_is_gone_keeps_its_offsets() {
        let mapping = Mapping {
            start: 0x1000,
            end: 0x3000,
            offset: 0x500,
            path: b"/no/such/file\x1b".to_vec(),
        };
        let mappings = [mapping];
        let modules = Modules::new(&mappings);
        let mut resolver = Resolver::new(Charging::default());
        let chain = modules.chain(&mut resolver, &[0x1011]);
        let names: Vec<String> = functions(&chain)
            .map(larder_analysis::reading::naming::frame_name)
            .collect();
        assert_eq!(names, ["file\\x1b+0x510"]);
    }
}
