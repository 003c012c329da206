//! Where Larder's shared libraries are: `../lib` from the tool's own real path, then
//! `$LARDER_LIB`; those for musl in the folder `musl` there.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::{ExitStatus, Fatal};
use crate::{installed, printable};

/// The directory that overrides nothing but helps when the tool is not installed.
pub const LIBRARY_VARIABLE: &str = "LARDER_LIB";

/// Where a program is to serve its heap.
const LISTEN_VARIABLE: &str = "LARDER_LISTEN";

/// One of the libraries that the tool preloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Allocator,
    /// The allocator with checks around each object.
    Hardened,
    Recorder,
    /// The wrappers of system calls, beside the recorder.
    RecorderIo,
    /// The wrappers of functions that copy, beside the recorder.
    RecorderCopies,
    /// The wrappers of functions for threads and signals, beside the recorder.
    RecorderCpu,
    /// Lets allocations fail.
    Fail,
    /// Serves the heap of the program by HTTP.
    Endpoint,
}

impl Library {
    pub fn file_name(self) -> &'static str {
        match self {
            Library::Allocator => "liblarder.so",
            Library::Hardened => "liblarder_hardened.so",
            Library::Recorder => "liblarder_record.so",
            Library::RecorderIo => "liblarder_record_io.so",
            Library::RecorderCopies => "liblarder_record_copies.so",
            Library::RecorderCpu => "liblarder_record_cpu.so",
            Library::Fail => "liblarder_fail.so",
            Library::Endpoint => "liblarder_endpoint.so",
        }
    }
}

/// The C library that a library or a program is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc,
    Musl,
}

impl Libc {
    /// By the name of a program's loader.
    pub fn of(loader: &Path) -> Self {
        let name = loader.file_name().unwrap_or_default();
        match name.as_bytes().starts_with(b"ld-musl") {
            true => Libc::Musl,
            false => Libc::Glibc,
        }
    }
}

/// A library that is in none of the places searched.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is neither in {} nor in {}: {}",
    library.file_name(), searched.describe_beside(), searched.describe_variable(), searched.remedy(*library)
)]
pub struct LibraryNotFound {
    pub library: Library,
    pub searched: LibraryPath,
}

impl Fatal for LibraryNotFound {
    fn status(&self) -> ExitStatus {
        match self.searched.libc {
            Libc::Glibc => ExitStatus::Failed,
            Libc::Musl => ExitStatus::Unfit,
        }
    }
}

/// The places that are searched, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryPath {
    beside_tool: Option<PathBuf>,
    variable: Option<OsString>,
    libc: Libc,
}

impl LibraryPath {
    pub fn from_environment() -> Self {
        Self {
            beside_tool: installed::under_prefix("lib"),
            variable: env::var_os(LIBRARY_VARIABLE).filter(|v| !v.is_empty()),
            libc: Libc::Glibc,
        }
    }

    /// The same places for programs of this C library.
    pub fn built_for(self, libc: Libc) -> Self {
        Self { libc, ..self }
    }

    /// The library's absolute path, or what was searched and what to do.
    pub fn find(&self, library: Library) -> Result<PathBuf, LibraryNotFound> {
        let name = library.file_name();
        let variable = self.variable.as_ref().map(Path::new);
        self.beside_tool
            .as_deref()
            .into_iter()
            .chain(variable)
            .map(|directory| self.folder(directory))
            .find(|directory| directory.join(name).is_file())
            .and_then(|directory| directory.canonicalize().ok())
            // A link stays: it has the name without a version, by which reports know the library.
            .map(|directory| directory.join(name))
            .ok_or_else(|| LibraryNotFound {
                library,
                searched: self.clone(),
            })
    }

    /// What puts a program on Larder's allocator, in the order to preload: where `LARDER_LISTEN` is set,
    /// with the library that listens.
    pub fn allocator(&self) -> Result<Vec<PathBuf>, LibraryNotFound> {
        self.with_endpoint(Library::Allocator)
    }

    /// The same with another of Larder's allocators.
    pub fn with_endpoint(&self, allocator: Library) -> Result<Vec<PathBuf>, LibraryNotFound> {
        let listens = env::var_os(LISTEN_VARIABLE).is_some_and(|place| !place.is_empty());
        let endpoint = listens.then_some(Library::Endpoint);
        let libraries = [Some(allocator), endpoint];
        libraries
            .into_iter()
            .flatten()
            .map(|library| self.find(library))
            .collect()
    }

    fn folder(&self, directory: &Path) -> PathBuf {
        match self.libc {
            Libc::Glibc => directory.to_owned(),
            Libc::Musl => directory.join("musl"),
        }
    }

    fn remedy(&self, library: Library) -> String {
        match (self.libc, library) {
            (Libc::Glibc, _) => format!(
                "run `make build` and use out/bin/larder, or set {LIBRARY_VARIABLE} to the directory \
                 that holds {}",
                library.file_name()
            ),
            (Libc::Musl, Library::Endpoint) => format!(
                "a musl program cannot serve its own heap: unset {LISTEN_VARIABLE}, and use \
                 `larder serve PID`"
            ),
            (Libc::Musl, _) => "the program is linked against musl: run `make musl`, or build the \
                                program with glibc"
                .to_owned(),
        }
    }

    fn describe_beside(&self) -> String {
        match &self.beside_tool {
            Some(directory) => printable::name(self.folder(directory)),
            None => "../lib (the tool's own path is unknown)".to_owned(),
        }
    }

    fn describe_variable(&self) -> String {
        match &self.variable {
            Some(value) => format!("${LIBRARY_VARIABLE} ({})", printable::name(value)),
            None => format!("${LIBRARY_VARIABLE} (not set)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_beside_the_tool_comes_before_the_variable() {
        let beside = tempfile::tempdir().unwrap();
        let variable = tempfile::tempdir().unwrap();
        let path = LibraryPath {
            beside_tool: Some(beside.path().to_owned()),
            variable: Some(variable.path().into()),
            libc: Libc::Glibc,
        };
        std::fs::write(variable.path().join("liblarder.so"), b"").unwrap();
        let found = path.find(Library::Allocator).unwrap();
        assert_eq!(
            found,
            variable.path().canonicalize().unwrap().join("liblarder.so")
        );
        std::fs::write(beside.path().join("liblarder.so"), b"").unwrap();
        let found = path.find(Library::Allocator).unwrap();
        assert_eq!(
            found,
            beside.path().canonicalize().unwrap().join("liblarder.so")
        );
    }

    #[test]
    fn a_musl_program_gets_the_libraries_for_musl_alone() {
        assert_eq!(Libc::of(Path::new("/lib/ld-musl-x86_64.so.1")), Libc::Musl);
        let glibc = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(Libc::of(glibc), Libc::Glibc);
        let beside = tempfile::tempdir().unwrap();
        let path = LibraryPath {
            beside_tool: Some(beside.path().to_owned()),
            variable: None,
            libc: Libc::Glibc,
        };
        let musl = path.clone().built_for(Libc::Musl);
        std::fs::write(beside.path().join("liblarder.so"), b"").unwrap();
        let error = musl.find(Library::Allocator).unwrap_err();
        assert_eq!(error.status(), ExitStatus::Unfit);
        assert!(error.to_string().contains("make musl"), "{error}");
        let folder = beside.path().canonicalize().unwrap().join("musl");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("liblarder.so"), b"").unwrap();
        assert_eq!(
            musl.find(Library::Allocator).unwrap(),
            folder.join("liblarder.so")
        );
        assert_ne!(
            path.find(Library::Allocator).unwrap(),
            folder.join("liblarder.so")
        );
    }

    #[test]
    fn a_missing_library_is_named_with_the_places_searched() {
        let path = LibraryPath {
            beside_tool: Some("/nowhere/lib".into()),
            variable: None,
            libc: Libc::Glibc,
        };
        let error = path.find(Library::Recorder).unwrap_err();
        assert_eq!(error.library, Library::Recorder);
        assert_eq!(error.searched, path);
    }
}
