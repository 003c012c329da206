//! Runs a command on Larder with the leak checker on, which writes a report for each process when it
//! ends.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use larder_analysis::reading::suppressions::Suppressions;
use larder_base::error::system;
use larder_base::execute::Stdout;
use larder_base::failure::Result;
use tempfile::NamedTempFile;

use super::args::Mode;
use crate::profile::command::{Run, run_with};
use crate::profile::heap::HeapProfile;

const MODE_VARIABLE: &str = "LARDER_HEAPCHECK";
const REPORTS_VARIABLE: &str = "LARDER_LEAK_REPORTS";
pub const SUPPRESSIONS_VARIABLE: &str = "LARDER_LEAK_SUPPRESSIONS";

/// Returns the reports of its processes, at least one, and the command's exit code.
pub fn run(
    words: &[OsString],
    mode: Mode,
    suppressions: &Suppressions,
    stdout: Stdout,
) -> Result<(Vec<HeapProfile>, u8)> {
    let mut environment = vec![(MODE_VARIABLE, OsStr::new(mode.name()))];
    let known = written(suppressions)?;
    if !suppressions.0.is_empty() {
        environment.push((SUPPRESSIONS_VARIABLE, known.path().as_os_str()));
    }
    run_with(&Run {
        words,
        place: REPORTS_VARIABLE,
        pattern: "",
        environment: &environment,
        stdout,
        none: "was not checked for leaks: a process that ends by a signal or _exit is not, nor one \
               that Larder cannot be preloaded into",
    })
}

/// A file that the processes read.
fn written(suppressions: &Suppressions) -> Result<NamedTempFile> {
    let write = || -> std::io::Result<NamedTempFile> {
        let mut file = NamedTempFile::with_prefix("larder-known-leaks-")?;
        for suppression in &suppressions.0 {
            writeln!(file, "leak:{}", suppression.pattern)?;
        }
        Ok(file)
    };
    let cause = "no place for the suppressions";
    Ok(write().map_err(system(cause, "set TMPDIR to a writable directory"))?)
}
