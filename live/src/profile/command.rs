//! Runs a command on Larder, which writes a heap profile for each of its processes when it ends.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;

use larder_analysis::reading::losses;
use larder_base::error::{BaseError, system};
use larder_base::execute::{self, Stdout};
use larder_base::failure::Result;
use larder_base::order;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::target::Target;

use super::heap::HeapProfile;
use crate::error::LiveError;

/// Where the allocator writes the profile at the end; %p is the process.
const PROFILE_VARIABLE: &str = "LARDER_PROFILE";
const MEAN_VARIABLE: &str = "LARDER_PROFILE_BYTES";

/// The command, and the variables that make its processes write profiles.
pub struct Run<'a> {
    pub words: &'a [OsString],
    /// The variable that names the place: a scratch directory, and behind it a pattern.
    pub place: &'static str,
    pub pattern: &'static str,
    pub environment: &'a [(&'static str, &'a OsStr)],
    pub stdout: Stdout,
    /// The message for a command whose processes wrote none.
    pub none: &'static str,
}

/// Returns the profiles of its processes, at least one, and the command's exit code.
pub fn run(
    words: &[OsString],
    mean: Option<u64>,
    stdout: Stdout,
) -> Result<(Vec<HeapProfile>, u8)> {
    let mean = mean.map(|mean| OsString::from(mean.to_string()));
    let mean = mean.as_deref().map(|mean| (MEAN_VARIABLE, mean));
    run_with(&Run {
        words,
        place: PROFILE_VARIABLE,
        pattern: "%p",
        environment: mean.as_slice(),
        stdout,
        none: "wrote no heap profile: a process that ends by a signal or _exit writes none, nor one \
               that Larder cannot be preloaded into",
    })
}

pub fn run_with(run: &Run<'_>) -> Result<(Vec<HeapProfile>, u8)> {
    let words = run.words;
    let target = Target::resolve(&words[0])?;
    let preload = preload_value(&target.libraries().allocator()?)?;
    let scratch = tempfile::Builder::new()
        .prefix("larder-profile-")
        .tempdir()
        .map_err(system(
            "no place for the profile",
            "set TMPDIR to a writable directory",
        ))?;
    let place = scratch.path().join(run.pattern);
    let mut environment: Vec<(&str, &OsStr)> = vec![
        (PRELOAD_VARIABLE, preload.as_os_str()),
        (run.place, place.as_os_str()),
    ];
    environment.extend(run.environment);
    let status = execute::supervise(&target.path, words, &environment, run.stdout);
    let status = status.map_err(|source| BaseError::NotExecuted {
        program: target.path,
        source,
    })?;
    let code = execute::exit_code(status);
    let mut files = fs::read_dir(scratch.path())
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(system("the profiles are gone", "set TMPDIR"))?;
    order::sort_by(&mut files, Ord::cmp);
    let mut profiles = Vec::new();
    for file in &files {
        match super::read(file) {
            Ok(profile) => profiles.push(profile),
            // The process may have been killed while it wrote.
            Err(failure) => losses::warn(&failure.message),
        }
    }
    if profiles.is_empty() {
        return Err(LiveError::NothingWritten {
            command: words[0].clone(),
            code,
            none: run.none,
        }
        .into());
    }
    Ok((profiles, code))
}
