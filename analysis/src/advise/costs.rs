//! The time of a malloc and free on this machine, and the memory of a block, for the allocator that the
//! trace's program ran on, if it is still installed. Measured once (`measure`) and stored (`kept`).
//!
//! A trace is hostile input: a library that it names is loaded only from folders of this machine's
//! administrator or of `make peers`.

mod kept;
mod measure;
mod table;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;

use larder_base::libraries::{Library, LibraryPath};
use larder_base::preload::{PRELOAD_VARIABLE, loadable_path};
use larder_base::{cache, measured, printable};

use crate::reading::heap::Origin;
use table::Table;

/// The tool's hidden command that runs `print_here`.
pub const HIDDEN_COMMAND: &str = "measure-malloc";

/// File names of allocators.
const ALLOCATORS: &[&str] = &[
    "liblarder.so",
    "libjemalloc",
    "libmimalloc",
    "libtcmalloc",
    "libsnmalloc",
    "librpmalloc",
    "libhardened_malloc",
];

#[derive(Debug)]
pub struct Costs {
    /// The allocator's name in reports.
    pub allocator: String,
    table: Table,
}

/// Measures each allocator once a run, also if nothing can be stored.
#[derive(Default)]
pub struct AllCosts {
    known: Vec<(Option<PathBuf>, Rc<Costs>)>,
}

impl AllCosts {
    /// The costs of the allocator among the modules, else of the C library's.
    pub fn of(&mut self, modules: &[Vec<u8>]) -> Rc<Costs> {
        let path = |module: &Vec<u8>| PathBuf::from(OsStr::from_bytes(module));
        let is_allocator = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ALLOCATORS.iter().any(|known| name.starts_with(known))
        };
        let library = modules.iter().map(path).find(is_allocator);
        if let Some((_, costs)) = self.known.iter().find(|(known, _)| *known == library) {
            return costs.clone();
        }
        let trusted = library.as_deref().and_then(trusted);
        let costs = trusted.and_then(|library| Costs::of_library(&library));
        let costs = Rc::new(costs.unwrap_or_else(Costs::of_libc));
        self.known.push((library, costs.clone()));
        costs
    }
}

impl Costs {
    fn of_libc() -> Self {
        let measure = || Some(in_child(None).unwrap_or_else(measure::here));
        let table = measure::libc_file().and_then(|libc| kept::table(&libc, measure));
        Self {
            allocator: "the C library's malloc".to_owned(),
            table: table.unwrap_or_else(measure::here),
        }
    }

    /// `None` if the library cannot be preloaded.
    fn of_library(library: &Path) -> Option<Self> {
        Some(Self {
            allocator: printable::name(library.file_name().unwrap_or_default()),
            table: kept::table(library, || in_child(Some(library)))?,
        })
    }

    /// See `Table`.
    pub fn pair_ns(&self, size: u64) -> f64 {
        self.table.pair_ns(size)
    }

    pub fn zero_ns(&self, size: u64) -> f64 {
        self.table.zero_ns(size)
    }

    pub fn block_bytes(&self, size: u64) -> u64 {
        self.table.block_bytes(size)
    }

    /// The allocator's overhead at the peak for one stack.
    pub fn overhead_bytes(&self, sums: &Origin) -> u64 {
        let mean = sums.peak_bytes / sums.peak_blocks.max(1);
        let taken = sums.peak_blocks.saturating_mul(self.block_bytes(mean));
        taken.saturating_sub(sums.peak_bytes)
    }
}

/// The file with malloc and its costs, in the form that `in_child` reads.
pub fn print_here() {
    let file = measure::malloc_file().unwrap_or_default();
    print!("{}\n{}", file.display(), measure::here());
}

/// Measures in a process of its own, without variables that configure allocators; `None` if that fails,
/// or malloc is not the library's.
fn in_child(library: Option<&Path>) -> Option<Table> {
    let mut command = measured::command(std::env::current_exe().ok()?);
    if let Some(library) = library {
        command.env(PRELOAD_VARIABLE, loadable_path(library).ok()?);
    }
    command
        .arg(HIDDEN_COMMAND)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let text = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let (file, table) = text.split_once('\n')?;
    let is_in =
        |library: &Path| Some(Path::new(file).canonicalize().ok()? == library.canonicalize().ok()?);
    (library.is_none_or(|library| is_in(library) == Some(true))).then(|| Table::parse(table))?
}

/// Folders to which only an administrator writes libraries.
const SYSTEM: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt"];

/// The library, if it is safe to load: Larder's by the tool's own search, others by their folder.
fn trusted(library: &Path) -> Option<PathBuf> {
    // Programs that are linked with it load it by its name with a version.
    let name = library.file_name()?.to_str()?;
    if name.starts_with(Library::Allocator.file_name()) {
        let path = LibraryPath::from_environment();
        return path.find(Library::Allocator).ok();
    }
    let real = library.canonicalize().ok()?;
    let folders = SYSTEM.map(PathBuf::from).into_iter();
    let mut folders = folders.chain([cache::peers()]);
    let within = folders.any(|folder| folder.canonicalize().is_ok_and(|f| real.starts_with(f)));
    within.then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_not_loaded_because_a_trace_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("libjemalloc.so.2");
        std::fs::write(&named, "").unwrap();
        assert_eq!(trusted(&named), None);
        let system = std::fs::read_dir("/usr/lib").unwrap();
        let mut system = system.map(|entry| entry.unwrap().path());
        let system = system.find(|path| path.is_dir() && !path.is_symlink());
        let system = system.unwrap().canonicalize().unwrap();
        assert_eq!(trusted(&system), Some(system.clone()));
        let around = Path::new("/usr/lib/..").join(named.strip_prefix("/").unwrap());
        assert_eq!(trusted(&around), None);
    }

    #[test]
    fn a_library_that_is_gone_gives_the_c_librarys_costs() {
        let costs = AllCosts::default().of(&[b"/nowhere/libjemalloc.so.2".to_vec()]);
        assert!(costs.allocator.contains("C library"));
        assert!(costs.pair_ns(16) > 0.0);
    }
}
