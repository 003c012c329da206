//! Finds debug information that was stripped from a module: by build id under /usr/lib/debug and in
//! debuginfod's cache, and by `.gnu_debuglink`; and the file that `dwz` shares between modules.
//!
//! Invariant: a file is used only if its build id (or, without one, its checksum) is the module's.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_base::cache;
use larder_base::printable;
use larder_base::regular::open_regular;
use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSymbol};

use super::debuginfod::{self, Debuginfod};

/// Where distributions put separate debug information.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The roots that are searched.
#[derive(Clone, Debug)]
pub struct DebugRoots {
    pub system: PathBuf,
    pub debuginfod_cache: Option<PathBuf>,
    /// Asked for what is in neither.
    pub debuginfod: Option<Arc<Debuginfod>>,
}

impl DebugRoots {
    pub fn from_environment() -> Self {
        Self {
            system: DEBUG_ROOT.into(),
            debuginfod_cache: debuginfod_cache(),
            debuginfod: None,
        }
    }

    /// What is on this machine.
    pub fn local(&self) -> Self {
        Self {
            debuginfod: None,
            ..self.clone()
        }
    }

    /// The separate debug file of a module, if there is one that matches.
    pub fn find(&self, path: &Path, module: Option<&ElfFile>, build_id: &[u8]) -> Option<ElfFile> {
        let by_id = self.by_build_id(build_id).into_iter().find_map(|path| {
            ElfFile::open(&path).filter(|file| file.build_id() == build_id && file.has_dwarf())
        });
        by_id
            .or_else(|| module.and_then(|file| self.by_debuglink(path, file)))
            .or_else(|| self.asked_for(path, build_id))
    }

    fn asked_for(&self, module: &Path, build_id: &[u8]) -> Option<ElfFile> {
        let debuginfod = self.debuginfod.as_ref()?;
        let name = Path::new(module.file_name()?).to_string_lossy();
        let path = debuginfod.debug_info(build_id, &name)?;
        let found = ElfFile::open(&path).filter(|file| file.build_id() == build_id);
        if found.is_none() {
            debuginfod::warn(&format!(
                "debuginfod: what it has for {} is no file of that build: remove {}",
                printable::name(module),
                printable::name(&path)
            ));
        }
        found.filter(ElfFile::has_dwarf)
    }

    fn by_build_id(&self, build_id: &[u8]) -> Vec<PathBuf> {
        let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return Vec::new();
        };
        let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
        let mut paths = vec![self.system.join(name)];
        if let Some(cache) = &self.debuginfod_cache {
            paths.push(cache.join(hex(build_id)).join("debuginfo"));
        }
        paths
    }

    fn by_debuglink(&self, path: &Path, file: &ElfFile) -> Option<ElfFile> {
        let (name, checksum) = file.debuglink()?;
        let real = path.canonicalize().ok()?;
        let directory = real.parent()?;
        let below_root = directory.strip_prefix("/").unwrap_or(directory);
        let name = Path::new(OsStr::from_bytes(&name)).file_name()?.to_owned();
        [
            directory.join(&name),
            directory.join(".debug").join(&name),
            self.system.join(below_root).join(&name),
        ]
        .into_iter()
        .filter(|candidate| *candidate != real)
        .find_map(|candidate| {
            let found = ElfFile::open(&candidate)?;
            let right = if file.build_id().is_empty() {
                crc32fast::hash(&found.map) == checksum
            } else {
                found.build_id() == file.build_id()
            };
            (right && found.has_dwarf()).then_some(found)
        })
    }
}

/// The source of names for a module's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugInfo {
    Own,
    Separate(PathBuf),
    SymbolsOnly,
    None,
}

impl DebugInfo {
    pub fn of(path: &Path, roots: &DebugRoots) -> Self {
        let Some(file) = ElfFile::open(path) else {
            return DebugInfo::None;
        };
        if file.has_dwarf() {
            return DebugInfo::Own;
        }
        if let Some(found) = roots.find(path, Some(&file), &file.build_id()) {
            return DebugInfo::Separate(found.path);
        }
        if file.has_symbol_table() {
            DebugInfo::SymbolsOnly
        } else {
            DebugInfo::None
        }
    }
}

fn debuginfod_cache() -> Option<PathBuf> {
    env::var_os("DEBUGINFOD_CACHE_PATH")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(cache::directory()?.join("debuginfod_client")))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A mapped ELF file and what identifies it.
pub struct ElfFile {
    pub path: PathBuf,
    pub map: Mmap,
}

impl ElfFile {
    /// `None` if it cannot be opened or is not an ELF file.
    pub fn open(path: &Path) -> Option<Self> {
        let file = open_regular(path).ok()?;
        // SAFETY: read only; if another process truncates a module while it is read, this process ends,
        // as with every reader of symbols.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        object::File::parse(&*map).ok()?;
        Some(Self {
            path: path.to_owned(),
            map,
        })
    }

    pub fn parse(&self) -> Option<object::File<'_>> {
        object::File::parse(&*self.map).ok()
    }

    /// Empty if there is none.
    pub fn build_id(&self) -> Vec<u8> {
        let id = self
            .parse()
            .and_then(|file| Some(file.build_id().ok()??.to_vec()));
        id.unwrap_or_default()
    }

    pub fn has_dwarf(&self) -> bool {
        self.parse().is_some_and(|file| {
            ["debug_info", "zdebug_info"].iter().any(|name| {
                let section = file.section_by_name(&format!(".{name}"));
                section
                    .is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
            })
        })
    }

    /// Whether a function of this name is defined in the file, in either symbol table.
    pub fn defines_function(&self, name: &str) -> bool {
        self.parse().is_some_and(|file| {
            let mut symbols = file.symbols().chain(file.dynamic_symbols());
            symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
        })
    }

    /// Whether it has a full symbol table, beyond its exported symbols.
    fn has_symbol_table(&self) -> bool {
        self.parse()
            .is_some_and(|file| file.symbols().next().is_some())
    }

    fn debuglink(&self) -> Option<(Vec<u8>, u32)> {
        let file = self.parse()?;
        let (name, checksum) = file.gnu_debuglink().ok()??;
        Some((name.to_vec(), checksum))
    }

    /// The file into which `dwz` moved parts of this one.
    pub fn supplement(&self, roots: &DebugRoots) -> Option<PathBuf> {
        let file = self.parse()?;
        let (name, build_id) = file.gnu_debugaltlink().ok()??;
        let name = Path::new(OsStr::from_bytes(name));
        let beside = self.path.canonicalize().ok()?.parent()?.join(name);
        let candidates = [
            beside,
            Path::new(DEBUG_ROOT).join(".dwz").join(name.file_name()?),
        ];
        let is_it =
            |path: &PathBuf| ElfFile::open(path).is_some_and(|file| file.build_id() == build_id);
        candidates.into_iter().find(is_it).or_else(|| {
            let debuginfod = roots.debuginfod.as_ref()?;
            let path = debuginfod.debug_info(build_id, &name.file_name()?.to_string_lossy())?;
            Some(path).filter(is_it)
        })
    }
}
