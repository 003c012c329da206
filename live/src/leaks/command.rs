//! Runs a command on Larder with the leak checker on, which writes a report for each process when it
//! ends.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use larder_base::failure::Result;

use super::args::Mode;
use crate::profile::command::{Run, run_with};
use crate::profile::heap::HeapProfile;

const MODE_VARIABLE: &str = "LARDER_HEAPCHECK";
const REPORTS_VARIABLE: &str = "LARDER_LEAK_REPORTS";
const SUPPRESSIONS_VARIABLE: &str = "LARDER_LEAK_SUPPRESSIONS";

/// Returns the reports of its processes, at least one, and the command's exit code.
pub fn run(
    words: &[OsString],
    mode: Mode,
    suppressions: Option<&Path>,
) -> Result<(Vec<HeapProfile>, u8)> {
    let mut environment = vec![(MODE_VARIABLE, OsStr::new(mode.name()))];
    environment.extend(suppressions.map(|file| (SUPPRESSIONS_VARIABLE, file.as_os_str())));
    run_with(&Run {
        words,
        place: REPORTS_VARIABLE,
        pattern: "",
        environment: &environment,
        none: "was not checked for leaks: a process that ends by a signal or _exit is not, nor one \
               that Larder cannot be preloaded into",
    })
}
