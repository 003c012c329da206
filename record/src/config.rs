//! The configuration, from the environment:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `LARDER_TRACE_DIR` | none: do not record | the folder that the trace files go to |
//! | `LARDER_RECORD_FORK` | `1` | record the children of fork, too: `1` or `0` |
//! | `LARDER_RECORD_AGGREGATE` | `0` | count by stack instead of writing each call: `1` or `0` |
//! | `LARDER_RECORD_CONTENTS` | `0` | record the contents of blocks when they end: `1` or `0`; not while counting |
//! | `LARDER_RECORD_COPIES` | none: do not | record copies: `0` all, else samples, with so many bytes between two on average; not while counting |
//! | `LARDER_RECORD_KERNEL` | `0` | record every system call, also those made without libc: `1` or `0`; not while counting |
//! | `LARDER_RECORD_CPU` | none: do not sample | samples a second of each thread's processor time: 1 to 10000; not while counting |
//! | `LARDER_RECORD_LEAKS` | none: do not ask | the abstract socket of the tool that finds lost blocks; not while counting |
//!
//! An invalid value is reported in one line on stderr, and the default applies.

use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::state::InitialStack;

/// The kernel looks at timers of processor time at its tick, 100 to 1,000 times a second.
const MAX_CPU_HZ: u32 = 10_000;

/// So that a rate and a code fit into a word.
pub const MAX_COPY_RATE: i64 = 1 << 40;

pub struct Config {
    pub folder: &'static [u8],
    pub follow_fork: bool,
    pub counters_only: bool,
    pub contents: bool,
    pub copies: bool,
    /// Every system call, also those made without libc.
    pub kernel: bool,
    /// 0: processor time is not sampled.
    pub cpu_hz: u32,
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
        copies: copy_rate(environment) >= 0,
        kernel: switch(environment, c"LARDER_RECORD_KERNEL", false),
        cpu_hz: cpu_hz(environment),
        leaks: environment
            .variable(b"LARDER_RECORD_LEAKS")
            .filter(|name| !name.is_empty()),
    })
}

/// The mean number of bytes between two copies that are recorded, 0 for all; -1: record none.
pub fn copy_rate(environment: &InitialStack) -> i64 {
    let (wanted, otherwise) = (
        b"no number of bytes up to 2^40: ",
        b"copies are not recorded",
    );
    number(
        environment,
        c"LARDER_RECORD_COPIES",
        0..=MAX_COPY_RATE,
        wanted,
        otherwise,
    )
    .unwrap_or(-1)
}

/// Samples a second; 0: processor time is not sampled.
fn cpu_hz(environment: &InitialStack) -> u32 {
    let (wanted, otherwise) = (
        b"no number from 1 to 10000: ",
        b"processor time is not sampled",
    );
    number(
        environment,
        c"LARDER_RECORD_CPU",
        1..=MAX_CPU_HZ,
        wanted,
        otherwise,
    )
    .unwrap_or(0)
}

/// The number in a variable; `None` if there is none, or, with a warning, if it is not `wanted`.
fn number<T: FromStr + PartialOrd>(
    environment: &InitialStack,
    name: &CStr,
    range: RangeInclusive<T>,
    wanted: &[u8],
    otherwise: &[u8],
) -> Option<T> {
    let value = environment.variable(name.to_bytes());
    let value = value.filter(|value| !value.is_empty())?;
    let number = std::str::from_utf8(value)
        .ok()
        .and_then(|value| value.parse().ok());
    let number = number.filter(|number| range.contains(number));
    if number.is_none() {
        crate::file::warn(wanted, name, None, otherwise);
    }
    number
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
