//! Tests and measures allocators: `bench` compares them by programs, `replay` by a trace, `instruments`
//! by one question each, and `torture` finds faults. It depends on `larder-analysis` for traces and
//! symbols, and on `larder-base`. It is a program of its own, `larder-lab`, which the tool starts in its
//! place, so that reading a trace does not need it.

mod args;
mod bench;
mod error;
mod instruments;
mod replay;
mod torture;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use larder_base::command_line;
use larder_base::failure::Result;
use larder_base::installed;

use args::Plan;
use error::LabError;

/// Runs the command line; the first word is the tool's name.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
    match args::parse(words)? {
        Plan::Bench(plan) => bench::bench(*plan).map(ExitCode::from),
        Plan::Instrument(plan) => instruments::run(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Replay(plan) => replay::replay(&plan).map(ExitCode::from),
        Plan::Torture(plan) => torture::torture(&plan).map(ExitCode::from),
        Plan::Show(text) => command_line::show(&text),
    }
}

/// A program that `make build` stages.
fn built(program: &'static str) -> error::Result<PathBuf> {
    let directory = installed::programs();
    let path = directory.join(program);
    match path.is_file() {
        true => Ok(path),
        false => Err(LabError::NotBuilt { program, directory }),
    }
}
