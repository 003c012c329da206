//! `larder run`: replaces this process by the command, on Larder's allocator. Prints nothing.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};

use larder_base::execute;
use larder_base::failure::{Failure, Result};
use larder_base::libraries::Library;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::printable;
use larder_base::target::{Target, reason};

const GUARD_VARIABLE: &str = "LARDER_GUARD";

/// What to run: the program and its arguments, at least one word.
#[derive(Debug)]
pub struct RunPlan {
    pub allocator: Library,
    /// Guarded samples.
    pub guard: bool,
    pub command: Vec<OsString>,
}

/// Returns only if the command did not start, with the reason.
pub fn run(plan: &RunPlan) -> Result<Infallible> {
    let target = Target::resolve(&plan.command[0])?;
    let libraries = target.libraries().with_endpoint(plan.allocator)?;
    let preload = preload_value(&libraries)?;
    let mut environment = vec![(PRELOAD_VARIABLE, preload.as_os_str())];
    if plan.guard {
        environment.push((GUARD_VARIABLE, OsStr::new("1")));
    }
    let error = execute::replace(&target.path, &plan.command, &environment);
    Err(Failure::unfit(format!(
        "{}: cannot be executed: {}",
        printable::name(&target.path),
        reason(&error)
    )))
}
