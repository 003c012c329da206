//! Starts `larder-lab`, the program that tests and measures allocators: it replaces this process and gets
//! the same words.

use std::convert::Infallible;
use std::ffi::OsString;

use clap::Command;
use larder_base::failure::{Failure, Result};
use larder_base::target::reason;
use larder_base::{execute, installed, printable};

/// The commands in `larder --help`, with the descriptions that `larder-lab` has.
const COMMANDS: [(&str, &str); 6] = [
    (
        "bench",
        "Compare allocators: time and memory, workload by workload",
    ),
    (
        "replay",
        "Run a trace's calls again, on every allocator: time, peak memory, fragmentation",
    ),
    (
        "torture",
        "Test a malloc for faults: Larder's, or any other",
    ),
    (
        "sweep",
        "Time a malloc and free by size, from 50 B to 50 MB",
    ),
    (
        "alias",
        "Run a stencil over large arrays, by padding: which of them alias, and what that costs",
    ),
    ("lab", "Measure Larder itself, for its developers"),
];

/// Commands of `larder lab` that are accepted without `lab`, too.
const WITHOUT_LAB: [&str; 7] = [
    "grid",
    "page-map",
    "counts",
    "instructions",
    "startup",
    "recording",
    "stacks",
];

/// For help only: these commands are not parsed here.
pub fn commands() -> impl Iterator<Item = Command> {
    COMMANDS
        .map(|(name, about)| Command::new(name).about(about))
        .into_iter()
}

/// Whether these words, the first of which is the tool's name, or help with them, are for `larder-lab`.
pub fn is_for(words: &[OsString]) -> bool {
    let command = match words.get(1) {
        Some(word) if word == "help" => words.get(2),
        word => word,
    };
    let known = || COMMANDS.iter().map(|command| command.0).chain(WITHOUT_LAB);
    command.is_some_and(|word| known().any(|name| word == name))
}

/// Returns only if the program did not start, with the reason.
pub fn start(words: &[OsString]) -> Result<Infallible> {
    let program = installed::lab()?;
    let error = execute::replace(&program, words, &[]);
    Err(Failure::failed(format!(
        "{}: cannot be executed: {}: run `make build` again",
        printable::name(&program),
        reason(&error)
    )))
}
