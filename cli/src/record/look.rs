//! The tool itself as a process that looks at another one, which waits for it at its end: which blocks
//! that are live in its trace it has lost. What `larder_trace::lost` makes of that goes to stdout.
//!
//! It is a process of its own since the recording tool waits for its child, and would be told of the
//! stops of its threads.

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
    /// In ticks of its trace.
    pub time: u64,
    pub file: PathBuf,
}

/// Each payload behind its length; a length of 0 is the end.
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
