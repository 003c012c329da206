//! Runs a command on Larder, and looks into each of its processes at its end.

use std::ffi::OsString;

use larder_analysis::reading::losses;
use larder_base::execute;
use larder_base::failure::{Failure, Result};
use larder_base::libraries::LibraryPath;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::printable;
use larder_base::target::{Target, reason};

use super::look::{self, Look};
use crate::process::Obstacle;
use crate::traced;

/// Processes whose figures are kept; those that end first.
const MOST_LOOKS: usize = 1000;

/// The figures of its processes, at least one, and the command's exit code.
pub fn run(words: &[OsString]) -> Result<(Vec<Look>, u8)> {
    let target = Target::resolve(&words[0])?;
    let preload = preload_value(&LibraryPath::from_environment().allocator()?)?;
    let environment = [(PRELOAD_VARIABLE, preload.as_os_str())];
    let (mut looks, mut left_out) = (Vec::new(), 0);
    let mut at_end = |id| match look::try_look(id) {
        Ok(look) if looks.len() < MOST_LOOKS => looks.push(look),
        Ok(_) => left_out += 1,
        // A child that a preload does not reach.
        Err(Obstacle::NotLarder) => {}
        Err(obstacle) => losses::warn(&format!("process {id}: {obstacle}")),
    };
    let status = traced::supervise(&target.path, words, &environment, &mut at_end);
    let status = status.map_err(|error| {
        Failure::unfit(format!(
            "{}: cannot be executed, or not be traced: {}",
            printable::name(&target.path),
            reason(&error)
        ))
    })?;
    if left_out > 0 {
        losses::warn(&format!(
            "{left_out} processes more ended, and are left out"
        ));
    }
    let code = execute::exit_code(status);
    if looks.is_empty() {
        return Err(Failure::failed(format!(
            "{}: ended with {code}, and none of its processes ran on Larder: `larder doctor \
             PROGRAM` says more",
            printable::name(&words[0])
        )));
    }
    Ok((looks, code))
}
