//! A module's debug information, for `lines` and `types`: the compilation unit of an address, and the places
//! of its entries.
//!
//! One thread. Memory: 24 bytes a range of code; 12 bytes an entry of the units used last, up to 2^22
//! entries; compressed sections, unpacked. Time: one pass over a unit at its first address. Up to 2^21
//! entries of a unit and 2^26 of a module are read; beyond that nothing is known.
//! Only little-endian files, and only entries in the file itself: not those that `dwz` moved to another
//! file, nor split debug information (`.dwo`), nor type units.
//!
//! Invariants: `UnitIndex::scopes` is sorted by `start`, a scope comes after the one around it, and
//! scopes nest.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use addr2line::gimli::{
    Attribute, AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwTag, Dwarf,
    DwarfSections, EndianSlice, LittleEndian, SectionId, Unit, UnitOffset, constants as dw,
};
use object::{Object, ObjectSection};

use super::locate::ElfFile;

pub type Slice<'d> = EndianSlice<'d, LittleEndian>;
pub type Entry<'d> = DebuggingInformationEntry<Slice<'d>>;

const MOST_ENTRIES_A_UNIT: u64 = 1 << 21;
/// Entries of all passes and questions.
const MOST_ENTRIES_A_MODULE: u64 = 1 << 26;
/// Stored places of entries; when there are more, older units are dropped.
const MOST_KEPT: usize = 1 << 21;
const MOST_SCOPES_AROUND: usize = 1 << 10;
/// Larger compressed sections are not unpacked.
const MOST_UNPACKED_BYTES: u64 = 1 << 30;
/// The number of ranges examined that begin before an address.
const MOST_OVERLAPS: usize = 16;

enum Section {
    Mapped(Range<usize>),
    Unpacked(Vec<u8>),
}

impl Section {
    /// Empty if the file has none or is unreadable.
    fn load(file: &ElfFile, id: SectionId) -> Self {
        Self::find(file, id).unwrap_or(Section::Mapped(0..0))
    }

    fn find(file: &ElfFile, id: SectionId) -> Option<Self> {
        let parsed = file.parse()?;
        let data = parsed
            .section_by_name(id.name())?
            .compressed_data()
            .ok()
            .filter(|data| data.uncompressed_size <= MOST_UNPACKED_BYTES || !is_packed(data))?
            .decompress()
            .ok()?;
        match data {
            Cow::Owned(bytes) => Some(Section::Unpacked(bytes)),
            Cow::Borrowed(bytes) => {
                let start = (bytes.as_ptr() as usize).checked_sub(file.map.as_ptr() as usize)?;
                Some(Section::Mapped(start..start.checked_add(bytes.len())?))
            }
        }
    }

    fn bytes<'d>(&'d self, file: &'d ElfFile) -> &'d [u8] {
        match self {
            Section::Mapped(range) => file.map.get(range.clone()).unwrap_or_default(),
            Section::Unpacked(bytes) => bytes,
        }
    }
}

fn is_packed(data: &object::CompressedData<'_>) -> bool {
    data.format != object::CompressionFormat::None
}

/// The sections that describe types and lines; the others are not loaded.
fn is_needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

/// A range of code, and the offset of its unit in `.debug_info`.
#[derive(Clone, Copy)]
struct UnitRange {
    begin: u64,
    end: u64,
    unit: usize,
}

pub struct ModuleDwarf {
    file: ElfFile,
    sections: DwarfSections<Section>,
    /// By `.debug_aranges`, sorted.
    listed: OnceCell<Vec<UnitRange>>,
    /// By the units themselves, sorted; for code that the list leaves out.
    found: OnceCell<Vec<UnitRange>>,
    /// By the unit's offset. `None`: too large, or malformed.
    units: RefCell<HashMap<usize, Option<Rc<UnitIndex>>>>,
    entries_left: Cell<u64>,
}

impl ModuleDwarf {
    pub fn open(path: &Path) -> Option<Self> {
        let file = ElfFile::open(path)?;
        if !file.parse()?.is_little_endian() {
            return None;
        }
        let sections = DwarfSections::load(|id| {
            let section = if is_needed(id) {
                Section::load(&file, id)
            } else {
                Section::Mapped(0..0)
            };
            Ok::<_, std::convert::Infallible>(section)
        });
        let Ok(sections) = sections;
        Some(Self {
            file,
            sections,
            listed: OnceCell::new(),
            found: OnceCell::new(),
            units: RefCell::default(),
            entries_left: Cell::new(MOST_ENTRIES_A_MODULE),
        })
    }

    /// The file's time of modification.
    pub fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.file.path).ok()?.modified().ok()
    }

    pub fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let section = |section| EndianSlice::new(Section::bytes(section, &self.file), LittleEndian);
        self.sections.borrow(section)
    }

    /// The place in `.debug_info` of the unit around an address of the module.
    pub fn place(&self, address: u64) -> Option<usize> {
        let listed = self.listed.get_or_init(|| listed_ranges(&self.dwarf()));
        find(listed, address).or_else(|| {
            let found = self.found.get_or_init(|| unit_ranges(&self.dwarf()));
            find(found, address)
        })
    }

    /// Calls `question` with the unit around an address of the module.
    pub fn ask<T>(
        &self,
        address: u64,
        question: impl FnOnce(&UnitView<'_>) -> Option<T>,
    ) -> Option<T> {
        let (dwarf, place) = (self.dwarf(), self.place(address)?);
        let unit = open_unit(&dwarf, place)?;
        let index = self.index(place, &unit)?;
        let is_c = is_c(&unit);
        question(&UnitView {
            dwarf,
            unit,
            index,
            is_c,
            entries_left: &self.entries_left,
        })
    }

    fn index(&self, place: usize, unit: &Unit<Slice<'_>>) -> Option<Rc<UnitIndex>> {
        let mut units = self.units.borrow_mut();
        if let Some(known) = units.get(&place) {
            return known.clone();
        }
        let index = UnitIndex::new(unit, &self.entries_left).map(Rc::new);
        let kept: usize = units.values().flatten().map(|index| index.len()).sum();
        if kept > MOST_KEPT {
            units.clear();
        }
        units.insert(place, index.clone());
        index
    }
}

fn open_unit<'d>(dwarf: &Dwarf<Slice<'d>>, place: usize) -> Option<Unit<Slice<'d>>> {
    let header = dwarf.unit_header(DebugInfoOffset(place)).ok()?;
    dwarf.unit(header).ok()
}

fn is_c(unit: &Unit<Slice<'_>>) -> bool {
    let root = unit.entry(unit.header.root_offset()).ok();
    let language = root.and_then(|root| root.attr_value(dw::DW_AT_language));
    matches!(
        language,
        Some(AttributeValue::Language(
            dw::DW_LANG_C | dw::DW_LANG_C89 | dw::DW_LANG_C99 | dw::DW_LANG_C11 | dw::DW_LANG_C17
        ))
    )
}

fn find(ranges: &[UnitRange], address: u64) -> Option<usize> {
    let after = ranges.partition_point(|range| range.begin <= address);
    let before = ranges[..after].iter().rev().take(MOST_OVERLAPS);
    let mut around = before.filter(|range| address < range.end);
    around.next().map(|range| range.unit)
}

fn listed_ranges(dwarf: &Dwarf<Slice<'_>>) -> Vec<UnitRange> {
    let mut ranges = Vec::new();
    let mut headers = dwarf.debug_aranges.headers();
    while let Ok(Some(header)) = headers.next() {
        let unit = header.debug_info_offset().0;
        let mut entries = header.entries();
        while let Ok(Some(entry)) = entries.next() {
            ranges.push(UnitRange {
                begin: entry.address(),
                end: entry.address().saturating_add(entry.length()),
                unit,
            });
        }
    }
    ranges.sort_by_key(|range| range.begin);
    ranges
}

fn unit_ranges(dwarf: &Dwarf<Slice<'_>>) -> Vec<UnitRange> {
    let mut ranges = Vec::new();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Some(place) = header.debug_info_offset() else {
            continue;
        };
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let Ok(root) = unit.entry(unit.header.root_offset()) else {
            continue;
        };
        code_ranges(dwarf, &unit, &root, |range| {
            ranges.push(UnitRange {
                begin: range.start,
                end: range.end,
                unit: place.0,
            });
        });
    }
    ranges.sort_by_key(|range| range.begin);
    ranges
}

/// The code of an entry. gimli's own sum of its start and size may overflow.
fn code_ranges<'d>(
    dwarf: &Dwarf<Slice<'d>>,
    unit: &Unit<Slice<'d>>,
    entry: &Entry<'d>,
    mut visit: impl FnMut(Range<u64>),
) {
    let address = |value| dwarf.attr_address(unit, value).ok().flatten();
    if let Some(ranges) = entry.attr_value(dw::DW_AT_ranges) {
        if let Ok(Some(mut ranges)) = dwarf.attr_ranges(unit, ranges) {
            while let Ok(Some(range)) = ranges.next() {
                visit(range.begin..range.end);
            }
        }
        return;
    }
    let low = entry.attr_value(dw::DW_AT_low_pc).and_then(address);
    let high = entry.attr_value(dw::DW_AT_high_pc);
    if let (Some(low), Some(high)) = (low, high) {
        let end = match high.udata_value() {
            Some(size) => Some(low.saturating_add(size)),
            None => address(high),
        };
        if let Some(end) = end {
            visit(low..end);
        }
    }
}

/// A namespace, type or function with entries in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scope {
    start: u32,
    end: u32,
    /// Index of the scope around it; `NO_SCOPE`: the unit.
    around: u32,
}

const NO_SCOPE: u32 = u32::MAX;

/// A scope that is still open.
struct Open {
    depth: isize,
    index: usize,
    namespace: bool,
}

/// The places of a unit's entries at which questions begin.
#[derive(Debug, Default)]
pub struct UnitIndex {
    scopes: Vec<Scope>,
    /// Functions with code.
    pub functions: Vec<u32>,
    /// Types with a name.
    pub types: Vec<u32>,
    /// Variables outside of functions.
    pub variables: Vec<u32>,
}

impl UnitIndex {
    fn new(unit: &Unit<Slice<'_>>, entries_left: &Cell<u64>) -> Option<Self> {
        let mut index = UnitIndex::default();
        let mut raw = unit.entries_raw(None).ok()?;
        let mut open: Vec<Open> = Vec::new();
        for _ in 0..MOST_ENTRIES_A_UNIT {
            if raw.is_empty() {
                index.close(&mut open, isize::MIN, raw.next_offset());
                return Some(index);
            }
            spend(entries_left)?;
            let (depth, offset) = (raw.next_depth(), raw.next_offset());
            let start = u32::try_from(offset.0).ok()?;
            let Some(abbreviation) = raw.read_abbreviation().ok()? else {
                index.close(&mut open, raw.next_depth(), raw.next_offset());
                continue;
            };
            let tag = abbreviation.tag();
            let has = |name| {
                let mut attributes = abbreviation.attributes().iter();
                attributes.any(|attribute| attribute.name() == name)
            };
            match tag {
                dw::DW_TAG_subprogram if has(dw::DW_AT_low_pc) || has(dw::DW_AT_ranges) => {
                    index.functions.push(start);
                }
                dw::DW_TAG_variable if open.last().is_none_or(|scope| scope.namespace) => {
                    index.variables.push(start);
                }
                _ if is_named_type(tag) && has(dw::DW_AT_name) => index.types.push(start),
                _ => {}
            }
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            if abbreviation.has_children() && is_scope(tag) {
                let around = open.last().map_or(NO_SCOPE, |scope| scope.index as u32);
                open.push(Open {
                    depth,
                    index: index.scopes.len(),
                    namespace: tag == dw::DW_TAG_namespace,
                });
                index.scopes.push(Scope {
                    start,
                    end: u32::MAX,
                    around,
                });
            }
        }
        None
    }

    /// The number of stored places.
    fn len(&self) -> usize {
        self.scopes.len() + self.functions.len() + self.types.len() + self.variables.len()
    }

    fn close(&mut self, open: &mut Vec<Open>, depth: isize, end: UnitOffset) {
        while let Some(scope) = open.pop_if(|scope| scope.depth >= depth) {
            self.scopes[scope.index].end = u32::try_from(end.0).unwrap_or(u32::MAX);
        }
    }

    /// The entries around one, innermost first, without the unit's own.
    fn around(&self, offset: UnitOffset) -> impl Iterator<Item = UnitOffset> {
        let place = |scope: &Scope| scope.start as usize;
        let before = self.scopes.partition_point(|scope| place(scope) < offset.0);
        let mut next = before.checked_sub(1);
        std::iter::from_fn(move || {
            let scope = self.scopes.get(next?)?;
            next = Some(scope.around as usize);
            Some(scope)
        })
        .take(MOST_SCOPES_AROUND)
        .filter(move |scope| offset.0 < scope.end as usize)
        .map(|scope| UnitOffset(scope.start as usize))
    }
}

fn is_named_type(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_typedef
            | dw::DW_TAG_base_type
    )
}

fn is_scope(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_namespace
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_subprogram
            | dw::DW_TAG_lexical_block
    )
}

/// One unit, during a question.
pub struct UnitView<'d> {
    dwarf: Dwarf<Slice<'d>>,
    unit: Unit<Slice<'d>>,
    pub index: Rc<UnitIndex>,
    pub is_c: bool,
    entries_left: &'d Cell<u64>,
}

impl<'d> UnitView<'d> {
    pub fn entry(&self, offset: UnitOffset) -> Option<Entry<'d>> {
        spend(self.entries_left)?;
        self.unit.entry(offset).ok()
    }

    pub fn entry_at(&self, offset: u32) -> Option<Entry<'d>> {
        self.entry(UnitOffset(offset as usize))
    }

    pub fn address_bytes(&self) -> u64 {
        u64::from(self.unit.header.address_size())
    }

    /// `None`: no name, or one outside of this file.
    pub fn name(&self, entry: &Entry<'d>) -> Option<Cow<'d, str>> {
        let name = entry.attr_value(dw::DW_AT_name)?;
        let name = self.dwarf.attr_string(&self.unit, name).ok()?;
        Some(String::from_utf8_lossy(name.slice()))
    }

    /// The entry that an attribute refers to, if it is in this unit.
    pub fn referred(&self, entry: &Entry<'d>, attribute: dw::DwAt) -> Option<Entry<'d>> {
        let offset = match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => offset,
            AttributeValue::DebugInfoRef(offset) => offset.to_unit_offset(&self.unit.header)?,
            _ => return None,
        };
        self.entry(offset)
    }

    /// The entries around one, innermost first, without the unit's own.
    pub fn around(&self, entry: &Entry<'d>) -> impl Iterator<Item = Entry<'d>> {
        let around = self.index.around(entry.offset());
        around.filter_map(|offset| self.entry(offset))
    }

    pub fn has_code_at(&self, entry: &Entry<'d>, address: u64) -> bool {
        let mut within = false;
        code_ranges(&self.dwarf, &self.unit, entry, |range| {
            within |= range.contains(&address);
        });
        within
    }

    /// Visits the entries below one, and recursively those below entries that `descend` accepts, in the
    /// order of the file, until `visit` returns true.
    pub fn below(
        &self,
        entry: &Entry<'d>,
        descend: impl Fn(&Entry<'d>) -> bool,
        mut visit: impl FnMut(&Entry<'d>) -> bool,
    ) -> Option<()> {
        let mut raw = self.unit.entries_raw(Some(entry.offset())).ok()?;
        let mut at = Entry::null();
        raw.read_entry(&mut at).ok()?;
        let mut level = 1;
        for _ in 0..MOST_ENTRIES_A_UNIT {
            let depth = raw.next_depth();
            if depth < 1 || raw.is_empty() {
                return Some(());
            }
            spend(self.entries_left)?;
            level = level.min(depth);
            if depth > level {
                let skipped = raw.read_abbreviation().ok()?;
                let attributes = skipped.map_or(&[][..], |entry| entry.attributes());
                raw.skip_attributes(attributes).ok()?;
                continue;
            }
            if !raw.read_entry(&mut at).ok()? {
                continue;
            }
            if visit(&at) {
                return Some(());
            }
            if at.has_children() && descend(&at) {
                level = depth + 1;
            }
        }
        None
    }
}

/// Counts a read entry. `None`: the limit is reached.
fn spend(entries_left: &Cell<u64>) -> Option<()> {
    entries_left.set(entries_left.get().checked_sub(1)?);
    Some(())
}

/// A constant in any form.
pub fn number(attribute: Option<&Attribute<Slice<'_>>>) -> Option<u64> {
    attribute?.udata_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(start: u32, end: u32, around: u32) -> Scope {
        Scope { start, end, around }
    }

    #[test]
    fn the_scopes_around_an_entry_are_found() {
        let index = UnitIndex {
            scopes: vec![
                scope(10, 100, NO_SCOPE),
                scope(20, 40, 0),
                scope(30, 35, 1),
                scope(50, 60, 0),
            ],
            ..UnitIndex::default()
        };
        let around = |offset| {
            let around = index.around(UnitOffset(offset));
            around.map(|offset| offset.0).collect::<Vec<_>>()
        };
        assert_eq!(around(32), [30, 20, 10]);
        assert_eq!(around(37), [20, 10]);
        assert_eq!(around(30), [20, 10]);
        assert_eq!(around(45), [10]);
        assert_eq!(around(10), [0usize; 0]);
        assert_eq!(around(100), [0usize; 0]);
    }
}
