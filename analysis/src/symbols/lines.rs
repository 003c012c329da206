//! The functions and lines of a module's addresses, by its debug information.
//!
//! addr2line opens all units of a file at once, which takes 34 MiB and 330 million instructions for the C library.
//! So it gets the unit of an address as if that were all there is, unless the unit refers to others, as after
//! link-time optimization or `dwz`, or has its information in another file (`.dwo`): then it gets the whole file.
//!
//! One thread. Memory: by the functions and lines of the units asked for.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;

use addr2line::gimli::{
    self, DebugAranges, DebugInfo, DebugInfoOffset, DwAt, DwForm, EndianSlice, LittleEndian,
    Reader, Section, constants as dw,
};
use addr2line::{Context, FrameIter, Loader};
use self_cell::self_cell;

use super::dwarf::{ModuleDwarf, Slice};
use super::{FunctionName, SourceFrame, tidy_path};

/// Of one file.
pub struct Lines {
    path: PathBuf,
    /// The file that it shares parts with.
    supplement: Option<PathBuf>,
    units: OnceCell<Option<Units>>,
    whole: OnceCell<Option<Loader>>,
}

impl Lines {
    /// `None`: the file has no debug information that can be read.
    pub fn open(path: PathBuf, supplement: Option<PathBuf>) -> Option<Self> {
        let lines = Self {
            path,
            supplement,
            units: OnceCell::new(),
            whole: OnceCell::new(),
        };
        (lines.units().is_some() || lines.whole().is_some()).then_some(lines)
    }

    /// Frees what was read. It is read again when needed.
    pub fn rest(&mut self) {
        (self.units, self.whole) = Default::default();
    }

    fn units(&self) -> Option<&Units> {
        let open = || {
            let dwarf = ModuleDwarf::open(&self.path)?;
            Some(Units::new(dwarf, |dwarf| ByPlace::new(dwarf)))
        };
        self.units.get_or_init(open).as_ref()
    }

    fn whole(&self) -> Option<&Loader> {
        let open = || Loader::new_with_sup(&self.path, self.supplement.as_ref()).ok();
        self.whole.get_or_init(open).as_ref()
    }

    pub fn dwarf(&self) -> Option<&ModuleDwarf> {
        self.units().map(Units::borrow_owner)
    }

    /// Innermost first; empty if nothing is known.
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let units = self.units();
        let alone = units.and_then(|units| units.with_dependent(|_, units| units.frames(address)));
        alone.unwrap_or_else(|| {
            let whole = self.whole();
            let found = whole.and_then(|whole| whole.find_frames(address).ok());
            found.map_or(Vec::new(), source_frames)
        })
    }
}

self_cell! {
    struct Units {
        owner: ModuleDwarf,

        #[not_covariant]
        dependent: ByPlace,
    }
}

/// Units by their place; `None`: it needs others.
struct ByPlace<'d> {
    file: &'d ModuleDwarf,
    units: RefCell<HashMap<usize, Option<Context<Slice<'d>>>>>,
}

impl<'d> ByPlace<'d> {
    fn new(file: &'d ModuleDwarf) -> Self {
        let units = RefCell::default();
        Self { file, units }
    }

    /// `None`: the whole file is needed.
    fn frames(&self, address: u64) -> Option<Vec<SourceFrame>> {
        let Some(place) = self.file.place(address) else {
            // Empty too if it is packed and too large for `dwarf`.
            let is_read = !self.file.dwarf().debug_info.reader().is_empty();
            return is_read.then(Vec::new);
        };
        let mut units = self.units.borrow_mut();
        let unit = units.entry(place).or_insert_with(|| self.alone(place));
        let found = unit.as_ref()?.find_frames(address).skip_all_loads().ok()?;
        let frames = source_frames(found);
        // Units may overlap.
        (!frames.is_empty()).then_some(frames)
    }

    fn alone(&self, place: usize) -> Option<Context<Slice<'d>>> {
        let mut dwarf = self.file.dwarf();
        let header = dwarf.unit_header(DebugInfoOffset(place)).ok()?;
        let abbreviations = dwarf.debug_abbrev.reader().slice();
        let abbreviations = abbreviations.get(header.debug_abbrev_offset().0..)?;
        if refers_to_others(EndianSlice::new(abbreviations, LittleEndian)).unwrap_or(true) {
            return None;
        }
        let end = place.checked_add(header.length_including_self())?;
        let info = dwarf.debug_info.reader().slice().get(place..end)?;
        dwarf.debug_info = DebugInfo::new(info, LittleEndian);
        // It names units by their place in the whole file.
        dwarf.debug_aranges = DebugAranges::new(&[], LittleEndian);
        Context::from_dwarf(dwarf).ok()
    }
}

/// Whether entries with these abbreviations may need another unit or file.
fn refers_to_others(mut abbreviations: Slice<'_>) -> gimli::Result<bool> {
    while abbreviations.read_uleb128()? != 0 {
        abbreviations.read_uleb128()?;
        abbreviations.read_u8()?;
        loop {
            let name = DwAt(abbreviations.read_uleb128_u16()?);
            let form = DwForm(abbreviations.read_uleb128_u16()?);
            match (name, form) {
                (DwAt(0), DwForm(0)) => break,
                (dw::DW_AT_dwo_name | dw::DW_AT_GNU_dwo_name, _) => return Ok(true),
                (_, dw::DW_FORM_implicit_const) => abbreviations.skip_leb128()?,
                (
                    _,
                    dw::DW_FORM_ref_addr
                    | dw::DW_FORM_ref_sup4
                    | dw::DW_FORM_ref_sup8
                    | dw::DW_FORM_strp_sup
                    | dw::DW_FORM_GNU_ref_alt
                    | dw::DW_FORM_GNU_strp_alt
                    | dw::DW_FORM_indirect,
                ) => return Ok(true),
                _ => {}
            }
        }
    }
    Ok(false)
}

/// Malformed debug information ends the walk; the frames found before are kept.
fn source_frames<R: Reader>(mut found: FrameIter<'_, R>) -> Vec<SourceFrame> {
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = found.next() {
        let function = frame.function.as_ref();
        let symbol = function.and_then(|function| function.raw_name().ok());
        let location = frame.location.as_ref();
        frames.push(SourceFrame {
            function: symbol.map(|symbol| FunctionName::new(&symbol, None)),
            file: location.and_then(|location| location.file).map(tidy_path),
            line: location
                .and_then(|location| location.line)
                .filter(|line| *line > 0),
            inlined: true,
        });
    }
    if let Some(physical) = frames.last_mut() {
        physical.inlined = false;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use object::{Object, ObjectSymbol, SymbolKind};

    use crate::symbols::ElfFile;

    /// The number of addresses that have a line, after a look whether each of up to 20,000 in the functions of a file
    /// is the same with all its units open; and the number of units that were open alone.
    fn like_whole(path: &Path) -> (usize, usize) {
        let file = ElfFile::open(path).unwrap();
        let lines = Lines::open(path.to_owned(), None).unwrap();
        let whole = Loader::new(path).unwrap();
        let parsed = file.parse().unwrap();
        let functions = parsed
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text);
        let addresses: Vec<u64> = functions
            .flat_map(|f| (f.address()..f.address() + f.size()).step_by(5))
            .collect();
        let mut named = 0;
        for address in addresses.iter().step_by(1 + addresses.len() / 20_000) {
            let expected = source_frames(whole.find_frames(*address).unwrap());
            assert_eq!(lines.frames(*address), expected, "{address:#x} of {path:?}");
            named += usize::from(expected.iter().any(|frame| frame.line.is_some()));
        }
        let units = lines.units().unwrap();
        let alone = units.with_dependent(|_, units| {
            units
                .units
                .borrow()
                .values()
                .filter(|unit| unit.is_some())
                .count()
        });
        (named, alone)
    }

    /// Two units, of which one inlines a function of the other if the linker optimizes.
    fn program(directory: &Path, options: &[&str]) -> PathBuf {
        let caller = "int b(int); static inline int a(int x) { return b(x) * 3; }
            int main(int n, char **v) { (void)v; return a(n) + a(7); }";
        let callee =
            "static inline int c(int x) { return x / 5; } int b(int x) { return c(x) ^ x; }";
        let sources = [("a.c", caller), ("b.c", callee)];
        let sources = sources.map(|(name, text)| {
            let path = directory.join(name);
            fs::write(&path, text).unwrap();
            path
        });
        let program = directory.join(format!("p{}", options.concat()));
        let mut gcc = Command::new("gcc");
        gcc.current_dir(directory).args(["-g", "-O2", "-o"]);
        gcc.arg(&program).args(options).args(sources);
        assert!(gcc.status().expect("gcc is needed for this test").success());
        program
    }

    #[test]
    fn a_unit_that_refers_to_no_other_is_opened_alone_and_has_the_same_lines() {
        let directory = tempfile::tempdir().unwrap();
        for (options, expected) in [
            (&[][..], 2),
            (&["-gdwarf-4"], 2),
            (&["-gz"], 2),
            (&["-flto"], 0),
            (&["-gsplit-dwarf"], 0),
            (&["-gsplit-dwarf", "-gdwarf-4"], 0),
        ] {
            let (named, alone) = like_whole(&program(directory.path(), options));
            assert!(named > 0, "{options:?}");
            assert_eq!(alone, expected, "{options:?}");
        }
        let own = std::env::current_exe().unwrap();
        assert!(like_whole(&own).0 > 1_000);
    }
}
