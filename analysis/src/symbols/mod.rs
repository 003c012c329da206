//! Turns an address in a module into functions, files and lines, inlined frames included.
//!
//! Debug information comes from the module's file, or from a file found by build id, debug link or debuginfod;
//! without it, from function symbols. A file with another build id than the recorded one is never used.
//! One thread; results are cached, so memory grows with distinct addresses.

pub mod debuginfod;
mod demangle;
mod dwarf;
mod lines;
mod locate;
pub mod loops;
pub mod shorten;
pub mod source;
mod table;
pub mod types;

use std::path::Path;
use std::rc::Rc;

use demangle::demangle;
use lines::Lines;
pub use locate::{DebugInfo, DebugRoots, ElfFile, hex};
use shorten::shorten;
use table::SymbolTable;
use types::ModuleTypes;

/// One function at an address; if there are several, all but the last are inlined into the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    pub function: Option<FunctionName>,
    pub file: Option<Rc<str>>,
    pub line: Option<u32>,
    pub inlined: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// The linker's name, or that of the debug information.
    pub symbol: Rc<str>,
    /// The name as it is shown: in source form, short.
    pub name: Rc<str>,
    /// The same with all template arguments.
    pub full: Rc<str>,
    /// The offset of the address in the function; only from symbol tables.
    pub offset: Option<u64>,
}

impl FunctionName {
    pub fn new(symbol: &str, offset: Option<u64>) -> Self {
        let full: Rc<str> = demangle(symbol).into();
        let short = shorten(&full);
        Self {
            symbol: symbol.into(),
            name: match short == *full {
                true => full.clone(),
                false => short.into(),
            },
            full,
            offset,
        }
    }

    /// A name that is not mangled.
    pub fn plain(name: &str) -> Self {
        let name: Rc<str> = name.into();
        Self {
            symbol: name.clone(),
            name: name.clone(),
            full: name,
            offset: None,
        }
    }

    /// Whether one of the forms that a user may write is meant.
    pub fn is_named(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        is_meant(&self.name) || is_meant(&self.symbol) || is_meant(&self.full)
    }
}

/// Why a module's functions lack names or lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SymbolProblem {
    /// The file is gone, or is not an ELF file.
    NoFile,
    /// The file was replaced since the recording.
    OtherBuild { recorded: String, found: String },
    /// Names come from symbol tables, without lines.
    NoDebugInfo,
}

/// A module whose symbols are loaded.
pub struct ModuleSymbols {
    lines: Option<Lines>,
    tables: Vec<SymbolTable>,
    pub problem: Option<SymbolProblem>,
}

impl ModuleSymbols {
    /// Loads the symbols of the module with this recorded path and build id.
    pub fn load(path: &Path, build_id: &[u8], roots: &DebugRoots) -> Self {
        let (file, mut problem) = open_recorded(path, build_id);
        let own_dwarf = file.as_ref().is_some_and(ElfFile::has_dwarf);
        let separate = match own_dwarf {
            true => None,
            false => roots.find(path, file.as_ref(), build_id),
        };
        let dwarf_file = if own_dwarf {
            file.as_ref()
        } else {
            separate.as_ref()
        };
        let lines =
            dwarf_file.and_then(|file| Lines::open(file.path.clone(), file.supplement(roots)));
        if lines.is_none() {
            problem.get_or_insert(SymbolProblem::NoDebugInfo);
        }
        let tables = [separate, file].into_iter().flatten();
        let tables = tables.map(SymbolTable::new).collect();
        Self {
            lines,
            tables,
            problem,
        }
    }

    /// The functions at an address of the file (its own, not the process's), innermost first.
    /// Empty if nothing is known.
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let lines = self.lines.as_ref();
        let mut frames = lines.map_or(Vec::new(), |lines| lines.frames(address));
        let physical_is_named = frames.last().is_some_and(|frame| frame.function.is_some());
        if physical_is_named {
            return frames;
        }
        let symbol = self.tables.iter().find_map(|table| table.find(address));
        let function = symbol.map(|(name, offset)| FunctionName::new(name, Some(offset)));
        match (frames.last_mut(), function) {
            (Some(frame), function) => frame.function = function,
            (None, Some(function)) => frames.push(SourceFrame {
                function: Some(function),
                file: None,
                line: None,
                inlined: false,
            }),
            (None, None) => {}
        }
        frames
    }

    /// The start of the function around an address, and its bytes of code.
    pub fn extent(&self, address: u64) -> Option<(u64, u64)> {
        let tables = || self.tables.iter();
        let by_symbol = tables().find_map(|table| table.function(address));
        by_symbol.or_else(|| tables().find_map(|table| table.unwound(address)))
    }

    /// The machine code of the function around an address, and its start.
    pub fn code(&self, address: u64) -> Option<(u64, &[u8])> {
        let (start, size) = self
            .tables
            .iter()
            .find_map(|table| table.function(address))?;
        let code = self
            .tables
            .iter()
            .find_map(|table| table.code(start, size))?;
        Some((start, code))
    }

    /// What the file has from an address on, to the end of its section, if that is never written to.
    pub fn data(&self, address: u64) -> Option<&[u8]> {
        self.tables.iter().find_map(|table| table.data(address))
    }

    /// Frees the debug information until an address needs it again.
    pub fn rest(&mut self) {
        if let Some(lines) = &mut self.lines {
            lines.rest();
        }
    }

    pub fn types(&self) -> Option<ModuleTypes<'_>> {
        self.lines.as_ref()?.dwarf().map(ModuleTypes)
    }
}

/// The file at `path`, if it is the one that was recorded.
fn open_recorded(path: &Path, build_id: &[u8]) -> (Option<ElfFile>, Option<SymbolProblem>) {
    let Some(file) = ElfFile::open(path) else {
        return (None, Some(SymbolProblem::NoFile));
    };
    let found = file.build_id();
    if found == build_id {
        return (Some(file), None);
    }
    let problem = SymbolProblem::OtherBuild {
        recorded: or_none(build_id),
        found: or_none(&found),
    };
    (None, Some(problem))
}

fn or_none(build_id: &[u8]) -> String {
    if build_id.is_empty() {
        "none".to_owned()
    } else {
        hex(build_id)
    }
}

/// Drops `.` and resolves `..` by name, because debug information has many of them.
fn tidy_path(path: &str) -> Rc<str> {
    if !path.contains("./") {
        return path.into();
    }
    let mut parts: Vec<&str> = Vec::new();
    for (index, part) in path.split('/').enumerate() {
        match part {
            "." => {}
            "" if index > 0 => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, "" | "..")) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_tidied_by_name_only() {
        assert_eq!(&*tidy_path("/src/lib/../include/./x.h"), "/src/include/x.h");
        assert_eq!(&*tidy_path("../x.c"), "../x.c");
        assert_eq!(&*tidy_path("./x.c"), "x.c");
        assert_eq!(&*tidy_path("/a/b.c"), "/a/b.c");
    }

    #[test]
    fn a_file_of_another_build_is_not_used() {
        let own = std::env::current_exe().unwrap();
        let roots = DebugRoots {
            system: "/nowhere".into(),
            debuginfod_cache: None,
            debuginfod: None,
        };
        let symbols = ModuleSymbols::load(&own, &[1, 2, 3], &roots);
        assert!(matches!(&symbols.problem,
            Some(SymbolProblem::OtherBuild { recorded, .. }) if recorded == "010203"));
        assert!(symbols.frames(0x1000).is_empty());
    }

    #[test]
    fn a_function_of_this_program_has_its_line() {
        let own = std::env::current_exe().unwrap();
        let build_id = ElfFile::open(&own).unwrap().build_id();
        let roots = DebugRoots {
            system: "/nowhere".into(),
            debuginfod_cache: None,
            debuginfod: None,
        };
        let symbols = ModuleSymbols::load(&own, &build_id, &roots);
        assert_eq!(symbols.problem, None);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.ends_with(own.to_str().unwrap()))
            .unwrap();
        let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let address = tidy_path as fn(&str) -> Rc<str> as usize as u64;
        let frames = symbols.frames(address - base);
        let physical = frames.last().unwrap();
        assert!(
            physical
                .function
                .as_ref()
                .unwrap()
                .name
                .ends_with("tidy_path"),
            "{physical:?}"
        );
        assert!(
            physical.file.as_ref().unwrap().ends_with("symbols/mod.rs"),
            "{physical:?}"
        );
    }
}
