//! What all measured programs share: how they are started, and how their output is read.

use std::ffi::OsStr;
use std::io;
use std::process::Command;

use serde_json::{Map, Value};

use crate::error::system;
use crate::failure::Failure;
use crate::printable;

/// Variables that affect a loader or an allocator.
const STEERING: [&str; 9] = [
    "LD_",
    "LARDER_",
    "BENCH_",
    "MALLOC_",
    "GLIBC_",
    "MIMALLOC_",
    "TCMALLOC_",
    "RPMALLOC_",
    "SNMALLOC_",
];

/// Messages show up to this much of a program's output.
const MOST_SHOWN: usize = 200;

/// A command without the variables of the caller's environment that affect a loader or an allocator.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if STEERING.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// The last line of the output that is a JSON object; empty if there is none.
pub fn last_object(printed: &[u8]) -> Map<String, Value> {
    let lines = printed.rsplit(|byte| *byte == b'\n');
    let mut objects = lines
        .filter(|line| line.first() == Some(&b'{'))
        .filter_map(|line| serde_json::from_slice(line).ok());
    objects.next().unwrap_or_default()
}

/// The end of a program's output, as much as fits a message.
pub fn last_line(said: &[u8]) -> String {
    let lines = said.rsplit(|byte| *byte == b'\n');
    let line = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    printable::escape_bytes(&line[..line.len().min(MOST_SHOWN)])
}

/// `what` a run writes cannot be written.
pub fn scratch_failure(what: &str, error: io::Error) -> Failure {
    system(what, "check $TMPDIR and its free space")(error).into()
}
