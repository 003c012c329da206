//! Exact counts of executed instructions, by valgrind's callgrind: the total, or by address, which is how
//! often a given instruction ran.
//!
//! valgrind runs one thread at a time, so the counts do not depend on the number of processors. Callgrind
//! does not replace malloc, so a preloaded allocator serves the program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use larder_base::failure::Result;
use serde_json::{Map, Value};

use super::programs::{Launch, Programs};
use crate::error::LabError;

pub const COMMAND: &str = "valgrind";
pub const PACKAGE: &str = "valgrind";

/// The counts of one run.
#[derive(Debug, Default)]
pub struct Profile {
    pub instructions: u64,
    /// By file and address in it. Empty if only totals were requested.
    pub by_address: BTreeMap<PathBuf, BTreeMap<u64, u64>>,
    /// Calls by the callee's name, without a symbol version.
    pub calls: BTreeMap<String, u64>,
    /// The program's output.
    pub printed: Map<String, Value>,
}

/// Why callgrind's output gives no counts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("{0}")]
    Unreadable(String),
    #[error("line {number}: '{line}'")]
    Line { number: usize, line: String },
    #[error("no line 'summary:'")]
    NoSummary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Total,
    Addresses,
}

/// Runs the program of `launch` under callgrind. REQUIRES: up to `threads` run at the same time.
pub fn profile(
    programs: &Programs,
    mut launch: Launch,
    threads: usize,
    detail: Detail,
) -> Result<Profile> {
    let folder = programs.scratch_folder()?;
    let output = folder.join("profile");
    let mut file = std::ffi::OsString::from("--callgrind-out-file=");
    file.push(&output);
    launch.wrapper = vec![
        COMMAND.into(),
        "--tool=callgrind".into(),
        "--fair-sched=yes".into(),
        file,
    ];
    // valgrind counts its own and main.
    let threads = format!("--max-threads={}", (threads + 50).max(500));
    launch.wrapper.push(threads.into());
    if detail == Detail::Addresses {
        let options = [
            "--dump-instr=yes",
            "--dump-line=no",
            "--compress-pos=no",
            "--compress-strings=no",
        ];
        launch.wrapper.extend(options.map(Into::into));
    }
    let printed = programs.run(&launch)?;
    let text = std::fs::read(&output);
    let _ = std::fs::remove_dir_all(&folder);
    let profile = text
        .map_err(|error| ProfileError::Unreadable(larder_base::target::reason(&error)))
        .and_then(|text| parse(&String::from_utf8_lossy(&text)));
    let mut profile = profile.map_err(|cause| LabError::Profile {
        path: output,
        cause,
    })?;
    profile.printed = printed;
    Ok(profile)
}

/// The format is specified in valgrind's manual; with our options an address is absolute in its
/// file, the only cost is that of instructions, and names are not abbreviated.
fn parse(text: &str) -> std::result::Result<Profile, ProfileError> {
    let mut profile = Profile::default();
    let mut object = PathBuf::new();
    let mut callee = "";
    let mut total = None;
    // The line behind `calls=` has the callee's cost, which is counted there.
    let mut skip = false;
    for (number, line) in text.lines().enumerate() {
        let wrong = || ProfileError::Line {
            number: number + 1,
            line: line.to_owned(),
        };
        if let Some(name) = line.strip_prefix("ob=") {
            object = PathBuf::from(name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = name;
        } else if let Some(counts) = line.strip_prefix("calls=") {
            let count = counts
                .split(' ')
                .next()
                .and_then(|count| count.parse::<u64>().ok());
            let name = callee.split('@').next().unwrap_or(callee);
            *profile.calls.entry(name.to_owned()).or_default() += count.ok_or_else(wrong)?;
            skip = true;
        } else if let Some(sum) = line
            .strip_prefix("summary:")
            .or_else(|| line.strip_prefix("totals:"))
        {
            total = Some(sum.trim().parse::<u64>().map_err(|_| wrong())?);
        } else if let Some(rest) = line.strip_prefix("0x") {
            if std::mem::take(&mut skip) {
                continue;
            }
            let (address, cost) = rest.split_once(' ').ok_or_else(wrong)?;
            let address = u64::from_str_radix(address, 16).map_err(|_| wrong())?;
            let cost: u64 = cost.trim().parse().map_err(|_| wrong())?;
            let file = match profile.by_address.get_mut(&object) {
                Some(file) => file,
                None => profile.by_address.entry(object.clone()).or_default(),
            };
            *file.entry(address).or_default() += cost;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            // A line number instead of an address: only totals were requested.
            skip = false;
        }
    }
    profile.instructions = total.ok_or(ProfileError::NoSummary)?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &str = "\
# callgrind format
version: 1
positions: instr
events: Ir
summary: 1113


ob=/l/liblarder.so
fl=/s/entry.cc
fn=malloc
0xad10 100
0xad14 100
cob=/l/libc.so.6
cfi=???
cfn=pthread_mutex_lock@@GLIBC_2.2.5
calls=7 0x855b0
0xad14 777
0xad18 6
fn=larder::Lock::acquire()
0xad10 5

ob=/l/libc.so.6
fn=pthread_mutex_lock@@GLIBC_2.2.5
0x855b0 7

totals: 1113
";

    #[test]
    fn executions_are_summed_by_address_and_calls_by_name() {
        let profile = parse(TEXT).unwrap();
        assert_eq!(profile.instructions, 1113);
        let larder = &profile.by_address[Path::new("/l/liblarder.so")];
        assert_eq!(larder[&0xad10], 105);
        assert_eq!(
            larder[&0xad14], 100,
            "the callee's cost is not the caller's"
        );
        assert_eq!(profile.by_address[Path::new("/l/libc.so.6")][&0x855b0], 7);
        assert_eq!(profile.calls["pthread_mutex_lock"], 7);
    }

    #[test]
    fn damage_is_reported() {
        assert_eq!(parse("").unwrap_err(), ProfileError::NoSummary);
        for line in ["summary: x", "0xzz 1", "calls=x 0x1"] {
            let error = ProfileError::Line {
                number: 2,
                line: line.to_owned(),
            };
            assert_eq!(parse(&format!("summary: 1\n{line}")).unwrap_err(), error);
        }
    }
}
