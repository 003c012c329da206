//! Counts an allocator's system calls by strace while the threads run on all processors. A filter in the
//! kernel stops the program only at these calls, so that contention does not change.

use larder_base::failure::Result;
use larder_base::printable;
use serde_json::{Map, Value};

use super::programs::{Launch, Programs};
use crate::error::LabError;

pub const COMMAND: &str = "strace";
pub const PACKAGE: &str = "strace";

const MEMORY: [&str; 6] = ["mmap", "munmap", "mremap", "madvise", "mprotect", "brk"];
/// Calls of a thread that waits for another one, or wakes it.
const WAITING: [&str; 4] = ["futex", "sched_yield", "nanosleep", "clock_nanosleep"];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    pub memory: u64,
    pub waiting: u64,
    /// The program's output.
    pub printed: Map<String, Value>,
}

pub fn count(programs: &Programs, mut launch: Launch) -> Result<Calls> {
    let folder = programs.scratch_folder()?;
    let output = folder.join("calls");
    let set = format!("trace={},{}", MEMORY.join(","), WAITING.join(","));
    let options = [
        COMMAND,
        "-f",
        "-c",
        "-qq",
        "--seccomp-bpf",
        "-e",
        &set,
        "-o",
    ];
    launch.wrapper = options.map(Into::into).to_vec();
    launch.wrapper.push(output.clone().into());
    let printed = programs.run(&launch)?;
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    let mut calls = parse(&text).ok_or_else(|| {
        let end = printable::escape(text.lines().last().unwrap_or("nothing")).into_owned();
        LabError::NotUnderstood(format!(
            "strace -c ended with '{end}', not with a total: check that strace may trace here"
        ))
    })?;
    calls.printed = printed;
    Ok(calls)
}

/// Columns: % time, seconds, usecs/call, calls, errors (may be blank), syscall.
fn parse(text: &str) -> Option<Calls> {
    let mut calls = Calls::default();
    // Without any call strace prints no table at all.
    let mut ended = text.trim().is_empty();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(count)) = (words.last(), words.get(3)) else {
            continue;
        };
        ended |= *name == "total";
        let count = count.parse::<u64>().ok();
        if MEMORY.contains(name) {
            calls.memory += count?;
        } else if WAITING.contains(name) {
            calls.waiting += count?;
        }
    }
    ended.then_some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 52.11    0.179239         114      1568       232 futex
 29.09    0.100067          20      5000           madvise
  0.00    0.000000           0         1           brk
------ ----------- ----------- --------- --------- ----------------
100.00    0.343945          24     14117       232 total
";

    #[test]
    fn calls_are_summed_by_purpose() {
        let calls = parse(TEXT).unwrap();
        assert_eq!((calls.memory, calls.waiting), (5001, 1568));
        assert_eq!(parse("").unwrap(), Calls::default());
    }

    #[test]
    fn a_truncated_table_is_reported() {
        assert_eq!(parse(TEXT.split(" total").next().unwrap()), None);
    }
}
