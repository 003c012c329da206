//! A hidden command of the tool: finds which blocks, of those live in a process's trace, the process has
//! lost while it waits at its end. The answer goes to stdout, encoded by `larder_trace::lost`.
//!
//! It is a process of its own because the recording tool waits for its child, and would be notified when
//! the child's threads are stopped.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use larder_base::failure::{Failure, Result};
use larder_live::process::Standing;
use larder_trace::{Trace, lost};

/// The command's name, which is not for users.
pub const HIDDEN_COMMAND: &str = "look-at-end";

#[derive(Debug, Args)]
pub struct LookPlan {
    pub process: u32,
    /// The time of the question, in ticks of the trace.
    pub time: u64,
    pub file: PathBuf,
}

/// Prints each payload after its length; a length of 0 is the end.
pub fn look(plan: &LookPlan) -> Result<()> {
    let failure = |obstacle: larder_live::process::Obstacle| Failure::failed(obstacle.to_string());
    let standing = Standing::stop(plan.process).map_err(failure)?;
    let trace = Trace::open(&plan.file).map_err(|error| Failure::failed(error.to_string()))?;
    let found = standing.lost(&trace).map_err(failure)?;
    drop(standing);
    let addresses =
        found.ok_or_else(|| Failure::failed("calls are missing from its trace".to_owned()))?;
    let mut answer = Vec::new();
    for payload in lost::encode(plan.time, &addresses) {
        answer.extend((payload.len() as u32).to_le_bytes());
        answer.extend(payload);
    }
    answer.extend([0; 4]);
    // The process may be gone.
    let _ = io::stdout().write_all(&answer);
    Ok(())
}
