//! The command that is to be run: found as `execvp` would find it, and examined before it is
//! started, so that what preloading cannot reach is refused with a reason.
//!
//! Read-only: nothing here starts or changes anything.

mod elf;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::printable;

pub use elf::{check_allocator_library, program_loader};

/// Interpreters of interpreters that the kernel follows (`BINPRM` in `fs/exec.c`).
const MAX_INTERPRETERS: usize = 5;
/// What the kernel reads of a file to find its `#!` line.
const HEAD_BYTES: usize = 256;

const MODE_SETUID: u32 = 0o4000;
const MODE_SETGID: u32 = 0o2000;
const MODE_GROUP_EXECUTE: u32 = 0o010;

/// A command that can be started and that preloading reaches.
#[derive(Debug)]
pub struct Target {
    /// The file to execute.
    pub path: PathBuf,
    /// The program behind it: the file itself, or the interpreter of a script.
    pub program: PathBuf,
}

impl Target {
    /// Finds `command` and examines it and its interpreters.
    pub fn resolve(command: &OsStr) -> Result<Self> {
        let path = find(command)?;
        let program = examine(&path)?;
        Ok(Self { path, program })
    }
}

/// The file that `execvp` would execute for `command`.
fn find(command: &OsStr) -> Result<PathBuf> {
    if command.is_empty() {
        return Err(Failure::not_found(
            "the command is an empty word: name a program to run",
        ));
    }
    if command.as_bytes().contains(&b'/') {
        check_is_program(Path::new(command))?;
        return Ok(command.into());
    }
    let search = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut refused = None;
    for directory in env::split_paths(&search) {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &directory
        };
        let candidate = directory.join(command);
        match check_is_program(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(failure) if failure.status == crate::failure::ExitStatus::NotFound => {}
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        Failure::not_found(format!(
            "{}: command not found: it is in no directory of $PATH; install it, or give its path",
            printable::name(command)
        ))
    }))
}

fn check_is_program(path: &Path) -> Result<()> {
    let name = printable::name(path);
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::not_found(format!("{name}: no such file: check the path"))
        }
        _ => Failure::unfit(format!("{name}: cannot be looked at: {}", reason(&error))),
    })?;
    if metadata.is_dir() {
        return Err(Failure::unfit(format!(
            "{name}: is a directory, not a program: name a program in it"
        )));
    }
    if !metadata.is_file() {
        return Err(Failure::unfit(format!(
            "{name}: is not a regular file, so not a program: name a program"
        )));
    }
    let access = rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        rustix::fs::Access::EXEC_OK,
        rustix::fs::AtFlags::EACCESS,
    );
    access.map_err(|_| {
        Failure::unfit(format!(
            "{name}: is not executable by this user: `chmod +x` it"
        ))
    })
}

/// Follows the chain of interpreters to the program, checking every file of it.
fn examine(path: &Path) -> Result<PathBuf> {
    let mut current = path.to_owned();
    for _ in 0..=MAX_INTERPRETERS {
        check_privileges(&current)?;
        let head = match read_head(&current)? {
            Some(head) => head,
            // Executable but not readable: the kernel can run it, nobody can examine it.
            None => return Ok(current),
        };
        if head.starts_with(b"\x7fELF") {
            elf::check_program(&current)?;
            return Ok(current);
        }
        let interpreter = script_interpreter(&head).ok_or_else(|| {
            Failure::unfit(format!(
                "{}: is neither an ELF program nor a script with a #! line: add one, \
                 or run it as `sh {0}`",
                printable::name(&current)
            ))
        })?;
        check_is_program(&interpreter).map_err(|failure| {
            Failure::unfit(format!(
                "{}: its #! line names an interpreter that cannot be run: {failure}",
                printable::name(&current)
            ))
        })?;
        current = interpreter;
    }
    Err(Failure::unfit(format!(
        "{}: its #! lines name more than {MAX_INTERPRETERS} interpreters in a row: \
         name the last one directly",
        printable::name(path)
    )))
}

fn read_head(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => {
            return Err(Failure::unfit(format!(
                "{}: cannot be read: {}",
                printable::name(path),
                reason(&error)
            )));
        }
    };
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.take(HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(|error| {
            Failure::unfit(format!(
                "{}: cannot be read: {}",
                printable::name(path),
                reason(&error)
            ))
        })?;
    Ok(Some(head))
}

/// The interpreter of a `#!` line, as the kernel cuts it out: the first word.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let word = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\0'))
        .find(|word| !word.is_empty())?;
    Some(OsString::from_vec(word.to_vec()).into())
}

/// Refuses what makes the loader ignore a preload: setuid, setgid, file capabilities.
///
/// The answer is the same for every user, root included, though for root some of them would work.
fn check_privileges(path: &Path) -> Result<()> {
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(());
    };
    let what = if metadata.mode() & MODE_SETUID != 0 {
        "is setuid"
    } else if is_setgid(&metadata) {
        "is setgid"
    } else if has_file_capabilities(path) {
        "has file capabilities"
    } else {
        return Ok(());
    };
    Err(Failure::unfit(format!(
        "{}: {what}, and the loader drops preloads in such programs: run a copy without the \
         privilege (cp {0} COPY; cp drops it)",
        printable::name(path)
    )))
}

/// Without group execution the bit means mandatory locking.
fn is_setgid(metadata: &Metadata) -> bool {
    metadata.mode() & MODE_SETGID != 0 && metadata.mode() & MODE_GROUP_EXECUTE != 0
}

fn has_file_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|length| length > 0)
}

/// An I/O error without Rust's "(os error N)".
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ExitStatus;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_first_word_of_a_hash_bang_line_is_the_interpreter() {
        assert_eq!(
            script_interpreter(b"#! /bin/sh -e\nx"),
            Some("/bin/sh".into())
        );
        assert_eq!(
            script_interpreter(b"#!/usr/bin/env\tpython3\n"),
            Some("/usr/bin/env".into())
        );
        assert_eq!(script_interpreter(b"#!\n"), None);
        assert_eq!(script_interpreter(b"echo"), None);
    }

    #[test]
    fn a_script_is_followed_to_its_program() {
        let directory = tempfile::tempdir().unwrap();
        let inner = file(directory.path(), "inner", b"#!/bin/sh\nexit 0\n", 0o755);
        let line = format!("#!{}\n", inner.display());
        let outer = file(directory.path(), "outer", line.as_bytes(), 0o755);
        let target = Target::resolve(outer.as_os_str()).unwrap();
        assert_eq!(target.path, outer);
        assert_eq!(target.program, Path::new("/bin/sh"));
    }

    #[test]
    fn a_script_that_interprets_itself_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("loop");
        let line = format!("#!{}\n", path.display());
        file(directory.path(), "loop", line.as_bytes(), 0o755);
        let failure = Target::resolve(path.as_os_str()).unwrap_err();
        assert_eq!(failure.status, ExitStatus::Unfit);
        assert!(
            failure.message.contains("interpreters in a row"),
            "{failure}"
        );
    }

    #[test]
    fn a_script_without_interpreter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let gone = file(directory.path(), "gone", b"#!/no/such/interpreter\n", 0o755);
        let failure = Target::resolve(gone.as_os_str()).unwrap_err();
        assert_eq!(failure.status, ExitStatus::Unfit);
        let plain = file(directory.path(), "plain", b"echo hello\n", 0o755);
        let failure = Target::resolve(plain.as_os_str()).unwrap_err();
        assert!(
            failure.message.contains("neither an ELF program nor"),
            "{failure}"
        );
    }

    #[test]
    fn directories_and_plain_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let failure = Target::resolve(directory.path().as_os_str()).unwrap_err();
        assert_eq!(failure.status, ExitStatus::Unfit);
        let plain = file(directory.path(), "plain", b"#!/bin/sh\n", 0o644);
        let failure = Target::resolve(plain.as_os_str()).unwrap_err();
        assert_eq!(failure.status, ExitStatus::Unfit);
        assert!(failure.message.contains("chmod +x"), "{failure}");
    }

    #[test]
    fn what_is_nowhere_is_not_found() {
        for command in ["no-such-command-of-larder", "/no/such/file", ""] {
            let failure = Target::resolve(OsStr::new(command)).unwrap_err();
            assert_eq!(failure.status, ExitStatus::NotFound, "{command}");
        }
    }

    #[test]
    fn setuid_and_setgid_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
            let path = directory.path().join(word);
            fs::copy("/bin/true", &path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let failure = Target::resolve(path.as_os_str()).unwrap_err();
            assert_eq!(failure.status, ExitStatus::Unfit);
            assert!(failure.message.contains(word), "{failure}");
        }
    }
}
