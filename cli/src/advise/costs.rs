//! What a malloc and free costs on this machine, measured before advice is given: on the allocator
//! that the trace's program ran on, where that is still there.
//!
//! A trace is hostile input: a library that it names is loaded only if it lies where this machine's
//! administrator, or `make peers`, put libraries.
//!
//! Takes about 50 ms. The figure is the least of several rounds of a pair in a loop, so it is what
//! is saved at least: a block that is not in the caches costs more.

use std::ffi::OsStr;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::bench::allocators::peers_directory;
use crate::libraries::{Library, LibraryPath};
use crate::preload::PRELOAD_VARIABLE;
use crate::printable;

/// Sizes that are timed; others take the next larger one's time, and the last one's beyond.
const SIZES: [usize; 8] = [16, 64, 256, 1024, 4096, 16 << 10, 64 << 10, 1 << 20];
const ROUNDS: usize = 7;
const ROUND_PAIRS: usize = 2000;
/// The tool itself, asked for `Costs::here`.
pub const HIDDEN_COMMAND: &str = "measure-malloc";

/// File names that allocators have.
const ALLOCATORS: &[&str] = &[
    "liblarder.so",
    "libjemalloc",
    "libmimalloc",
    "libtcmalloc",
    "libsnmalloc",
    "librpmalloc",
    "libhardened_malloc",
];

#[derive(Clone, Debug)]
pub struct Costs {
    /// For people.
    pub allocator: String,
    /// Of a malloc and its free, by `SIZES`.
    pair_ns: Vec<f64>,
}

impl Costs {
    /// Measures the allocator that one of the modules is, else the C library's.
    pub fn of(modules: &[Vec<u8>]) -> Self {
        let path = |module: &Vec<u8>| PathBuf::from(OsStr::from_bytes(module));
        let is_allocator = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ALLOCATORS.iter().any(|known| name.starts_with(known))
        };
        let library = modules.iter().map(path).find(is_allocator);
        library
            .and_then(|library| Self::under(&trusted(&library)?))
            .unwrap_or_else(Self::of_libc)
    }

    fn of_libc() -> Self {
        Self {
            allocator: "the C library's malloc".to_owned(),
            pair_ns: Self::here(),
        }
    }

    /// In a process of its own with the library preloaded; `None` if that does not work.
    fn under(library: &Path) -> Option<Self> {
        let output = Command::new(std::env::current_exe().ok()?)
            .arg(HIDDEN_COMMAND)
            .env(PRELOAD_VARIABLE, library)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let pair_ns: Vec<f64> = text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        (pair_ns.len() == SIZES.len()).then(|| Self {
            allocator: printable::name(library.file_name().unwrap_or_default()),
            pair_ns,
        })
    }

    /// Nanoseconds a pair, by size, of this process's malloc.
    pub fn here() -> Vec<f64> {
        SIZES.iter().map(|size| time_pair(*size)).collect()
    }

    pub fn print_here() {
        let words: Vec<String> = Self::here().iter().map(|ns| format!("{ns:.2}")).collect();
        println!("{}", words.join(" "));
    }

    /// Nanoseconds of a malloc and free of this size.
    pub fn pair_ns(&self, size: u64) -> f64 {
        let index = SIZES.partition_point(|known| (*known as u64) < size);
        let last = self.pair_ns.last().copied().unwrap_or(0.0);
        self.pair_ns.get(index).copied().unwrap_or(last)
    }

    /// Nanoseconds to zero this many bytes that are in the caches: 1 MiB is timed at most, and more
    /// counted in proportion. Measured now.
    pub fn zero_ns(&self, size: u64) -> f64 {
        let timed = size.clamp(1, 1 << 20);
        let mut bytes = vec![1u8; timed as usize];
        let times = ((1 << 20) / timed).clamp(1, ROUND_PAIRS as u64);
        let mut round = || {
            let begin = Instant::now();
            for _ in 0..times {
                black_box(&mut bytes).fill(0);
            }
            begin.elapsed().as_nanos() as f64 / times as f64
        };
        let least = (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min);
        least * (size as f64 / timed as f64)
    }
}

/// Folders of libraries that only an administrator writes to.
const SYSTEM: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt"];

/// The library itself, if it is safe to load: Larder's as the tool finds it, others by their folder.
fn trusted(library: &Path) -> Option<PathBuf> {
    if library.file_name()? == Library::Allocator.file_name() {
        let path = LibraryPath::from_environment();
        return path.find(Library::Allocator).ok();
    }
    let real = library.canonicalize().ok()?;
    let folders = SYSTEM.map(PathBuf::from).into_iter();
    let mut folders = folders.chain([peers_directory()]);
    let within = folders.any(|folder| folder.canonicalize().is_ok_and(|f| real.starts_with(f)));
    within.then_some(real)
}

fn time_pair(size: usize) -> f64 {
    let round = || {
        let begin = Instant::now();
        for _ in 0..ROUND_PAIRS {
            // SAFETY: the block is not used but for its first byte, and freed once.
            unsafe {
                let block = libc::malloc(black_box(size));
                if !block.is_null() {
                    block.cast::<u8>().write_volatile(1);
                }
                libc::free(black_box(block));
            }
        }
        begin.elapsed().as_nanos() as f64 / ROUND_PAIRS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_costs_what_the_next_larger_measured_one_does() {
        let costs = Costs {
            allocator: String::new(),
            pair_ns: (1..=8).map(f64::from).collect(),
        };
        assert_eq!(costs.pair_ns(0), 1.0);
        assert_eq!(costs.pair_ns(16), 1.0);
        assert_eq!(costs.pair_ns(17), 2.0);
        assert_eq!(costs.pair_ns(1 << 30), 8.0);
    }

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
        let costs = Costs::of(&[b"/nowhere/libc.so.6".to_vec()]);
        assert!(costs.allocator.contains("C library"));
        assert!(costs.pair_ns(16) > 0.0);
    }
}
