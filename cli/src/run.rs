//! `larder run`: replaces itself by the command, on Larder's allocator. Prints nothing.

use std::convert::Infallible;
use std::ffi::OsString;

use crate::execute;
use crate::failure::{Failure, Result};
use crate::libraries::{Library, LibraryPath};
use crate::preload::{PRELOAD_VARIABLE, preload_value};
use crate::printable;
use crate::target::{Target, reason};

/// What to run: the program and its arguments, at least one word.
#[derive(Debug)]
pub struct RunPlan {
    pub command: Vec<OsString>,
}

/// Returns only to say why the command did not start.
pub fn run(plan: &RunPlan) -> Result<Infallible> {
    let target = Target::resolve(&plan.command[0])?;
    let allocator = LibraryPath::from_environment().find(Library::Allocator)?;
    let preload = preload_value(&[allocator])?;
    let error = execute::replace(
        &target.path,
        &plan.command,
        &[(PRELOAD_VARIABLE, preload.as_os_str())],
    );
    Err(Failure::unfit(format!(
        "{}: cannot be executed: {}",
        printable::name(&target.path),
        reason(&error)
    )))
}
