//! What the environment asks for. All of it is in this table:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `LARDER_TRACE_DIR` | none: do not record | the folder that the trace files go to |
//! | `LARDER_RECORD_FORK` | `1` | record the children of fork too: `1` or `0` |
//! | `LARDER_RECORD_AGGREGATE` | `0` | count by stack instead of writing each call: `1` or `0` |
//! | `LARDER_RECORD_CONTENTS` | `0` | say what blocks hold when they end: `1` or `0`; not while counting |
//! | `LARDER_RECORD_LEAKS` | none: do not ask | the abstract socket of who looks which blocks are lost; not while counting |
//!
//! Nonsense is answered by one line on the standard error, and the default holds.

use std::ffi::CStr;

use crate::state::InitialStack;

pub struct Config {
    pub folder: &'static [u8],
    pub follow_fork: bool,
    pub counters_only: bool,
    pub contents: bool,
    pub leaks: Option<&'static [u8]>,
}

/// `None`: nothing is to be recorded.
pub fn read(environment: &InitialStack) -> Option<Config> {
    let folder = environment
        .variable(b"LARDER_TRACE_DIR")
        .filter(|folder| !folder.is_empty())?;
    Some(Config {
        folder,
        follow_fork: switch(environment, c"LARDER_RECORD_FORK", true),
        counters_only: switch(environment, c"LARDER_RECORD_AGGREGATE", false),
        contents: switch(environment, c"LARDER_RECORD_CONTENTS", false),
        leaks: environment
            .variable(b"LARDER_RECORD_LEAKS")
            .filter(|name| !name.is_empty()),
    })
}

fn switch(environment: &InitialStack, name: &CStr, default: bool) -> bool {
    match environment.variable(name.to_bytes()) {
        None => default,
        Some(b"1") => true,
        Some(b"0") => false,
        Some(_) => {
            crate::file::warn(b"neither 0 nor 1: ", name, None, b"the default holds");
            default
        }
    }
}
