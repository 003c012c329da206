//! What the environment asks for. All of it is in this table:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `LARDER_TRACE_DIR` | none: do not record | the folder that the trace files go to |
//! | `LARDER_RECORD_FORK` | `1` | record the children of fork too: `1` or `0` |
//!
//! Nonsense is answered by one line on the standard error, and the default holds.

use crate::state::InitialStack;

pub struct Config {
    pub folder: &'static [u8],
    pub follow_fork: bool,
}

/// `None`: nothing is to be recorded.
pub fn read(environment: &InitialStack) -> Option<Config> {
    let folder = environment
        .variable(b"LARDER_TRACE_DIR")
        .filter(|folder| !folder.is_empty())?;
    let follow_fork = match environment.variable(b"LARDER_RECORD_FORK") {
        None | Some(b"1") => true,
        Some(b"0") => false,
        Some(_) => {
            crate::file::warn(
                b"LARDER_RECORD_FORK is neither 0 nor 1",
                c"",
                None,
                b"recording the children of fork, as by default",
            );
            true
        }
    };
    Some(Config {
        folder,
        follow_fork,
    })
}
