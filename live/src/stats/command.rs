//! Runs a command on Larder, and takes a snapshot of each of its processes at its end.

use std::ffi::OsString;

use larder_analysis::reading::losses;
use larder_base::execute::{self, Stdout};
use larder_base::failure::Result;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::target::Target;

use super::snapshot::{self, Snapshot};
use crate::error::LiveError;
use crate::process::Obstacle;
use crate::traced;

/// Snapshots are kept of this many processes, those that end first.
const MOST_SNAPSHOTS: usize = 1000;

/// The figures of its processes, at least one, and the command's exit code.
pub fn run(words: &[OsString], stdout: Stdout) -> Result<(Vec<Snapshot>, u8)> {
    let target = Target::resolve(&words[0])?;
    let preload = preload_value(&target.libraries().allocator()?)?;
    let environment = [(PRELOAD_VARIABLE, preload.as_os_str())];
    let (mut snapshots, mut left_out) = (Vec::new(), 0);
    let mut at_end = |id| match snapshot::try_take(id) {
        Ok(snapshot) if snapshots.len() < MOST_SNAPSHOTS => snapshots.push(snapshot),
        Ok(_) => left_out += 1,
        // A preload does not reach this child.
        Err(Obstacle::NotLarder) => {}
        Err(obstacle) => losses::warn(&format!("process {id}: {obstacle}")),
    };
    let status = traced::supervise(&target.path, words, &environment, stdout, &mut at_end);
    let status = status.map_err(|source| LiveError::NotTraced {
        program: target.path,
        source,
    })?;
    if left_out > 0 {
        losses::warn(&format!(
            "{left_out} more processes ended, and are left out"
        ));
    }
    let code = execute::exit_code(status);
    if snapshots.is_empty() {
        let command = words[0].clone();
        return Err(LiveError::NeverOnLarder { command, code }.into());
    }
    Ok((snapshots, code))
}
