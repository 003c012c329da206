//! The allocators that an instrument compares, after a check that each serves its program.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use larder_base::failure::Result;
use larder_base::printable;

use super::programs::{Launch, Programs};
use crate::bench::allocators::{self, Allocator, Choice, ExtraPeer};
use crate::error::LabError;

/// The requested allocators.
#[derive(Debug, Default)]
pub struct Field {
    pub names: Option<Vec<String>>,
    pub extra: Vec<ExtraPeer>,
    pub larder: Option<PathBuf>,
    pub run_limit_seconds: u64,
}

impl Field {
    /// The allocators, and notes on the choice for the report.
    pub fn find(&self) -> Result<(Vec<Allocator>, Vec<String>)> {
        Ok(allocators::find(&Choice {
            names: self.names.as_deref(),
            extra: &self.extra,
            larder: self.larder.as_deref(),
        })?)
    }
}

/// Runs `words` on the allocator under the loader's log, to check that malloc is the allocator's.
pub fn check_loaded(programs: &Programs, allocator: &Allocator, words: &[&str]) -> Result<()> {
    let folder = programs.scratch_folder()?;
    let mut launch = Launch::new(words, Some(allocator));
    for (name, value) in [
        ("LD_DEBUG", "bindings".into()),
        ("LD_BIND_NOW", "1".into()),
        ("LD_DEBUG_OUTPUT", folder.join("log").into_os_string()),
    ] {
        launch.environment.push((name.to_owned(), value));
    }
    programs.run(&launch)?;
    let program = Path::new(words[0]).file_name().unwrap_or_default();
    let mut owners = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let log = fs::read(entry.path()).unwrap_or_default();
        owners.extend(owners_of_malloc(&String::from_utf8_lossy(&log), program));
    }
    let is_it = |path: &PathBuf| {
        path.canonicalize()
            .is_ok_and(|path| path == allocator.library)
    };
    match owners.iter().find(|path| !is_it(path)) {
        None if !owners.is_empty() => Ok(()),
        found => Err(LabError::OtherMalloc(format!(
            "{}: {} takes malloc from {}, not from {}: the library does not define malloc or could \
             not be preloaded; leave it out with --allocators",
            allocator.name,
            words[0],
            found.map_or_else(|| "nowhere".to_owned(), printable::name),
            printable::name(&allocator.library)
        ))
        .into()),
    }
}

/// From lines `binding file USER [0] to OWNER [0]: normal symbol `malloc'`, those of the program.
fn owners_of_malloc(log: &str, program: impl AsRef<OsStr>) -> Vec<PathBuf> {
    let mut owners = Vec::new();
    for line in log.lines() {
        let Some((files, symbol)) = line.split_once("]: normal symbol ") else {
            continue;
        };
        let Some((user, owner)) = files.split_once("] to ") else {
            continue;
        };
        let user = user
            .split_once("binding file ")
            .map_or("", |(_, user)| user);
        let (Some((user, _)), Some((owner, _))) = (user.rsplit_once(" ["), owner.rsplit_once(" ["))
        else {
            continue;
        };
        let is_program = Path::new(user)
            .file_name()
            .is_some_and(|name| name == program.as_ref());
        if is_program && symbol.starts_with("`malloc'") {
            owners.push(owner.into());
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_own_malloc_counts() {
        let log = "  7:\tbinding file /b/bench_x [0] to /l/a b.so [0]: normal symbol `malloc' [GLIBC_2.2.5]\n\
                   7:\tbinding file /b/bench_x [0] to /l/c.so [0]: normal symbol `malloc_trim'\n\
                   7:\tbinding file /l/libstdc++.so [0] to /l/c.so [0]: normal symbol `malloc'\n\
                   7:\tcalling init: /b/bench_x\n]: normal symbol ] to binding file";
        assert_eq!(owners_of_malloc(log, "bench_x"), [Path::new("/l/a b.so")]);
        assert!(owners_of_malloc(log, "bench_y").is_empty());
    }
}
