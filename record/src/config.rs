//! The configuration, from the environment:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `LARDER_TRACE_DIR` | none: do not record | the folder that the trace files go to |
//! | `LARDER_RECORD_FORK` | `1` | record the children of fork, too: `1` or `0` |
//! | `LARDER_RECORD_AGGREGATE` | `0` | count by stack instead of writing each call: `1` or `0` |
//! | `LARDER_RECORD_CONTENTS` | `0` | record the contents of blocks when they end: `1` or `0`; not while counting |
//! | `LARDER_RECORD_LEAKS` | none: do not ask | the abstract socket of the tool that finds lost blocks; not while counting |
//!
//! An invalid value is reported in one line on stderr, and the default applies.

use std::ffi::CStr;

use crate::state::InitialStack;

pub struct Config {
    pub folder: &'static [u8],
    pub follow_fork: bool,
    pub counters_only: bool,
    pub contents: bool,
    pub leaks: Option<&'static [u8]>,
}

/// `None`: do not record.
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
