//! The trace of a recorded run.

use std::path::Path;

use larder_trace::{Trace, trace_files};

use crate::error::{LabError, Result};

/// The recorder's own counts, over all processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub events: u64,
    pub truncated_stacks: u64,
}

impl Counted {
    pub fn of(folder: &Path) -> Result<Counted> {
        let mut counted = Counted::default();
        for trace in all(folder)? {
            counted.events += trace.event_count();
            counted.truncated_stacks += trace.losses().truncated_stacks;
        }
        Ok(counted)
    }
}

pub fn all(folder: &Path) -> Result<Vec<Trace>> {
    let files = trace_files(folder).map_err(LabError::Recording)?;
    files
        .iter()
        .map(|file| Trace::open(file).map_err(LabError::Recording))
        .collect()
}
