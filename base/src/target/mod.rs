//! The command that is to be run: found as `execvp` would find it, and examined before it is
//! started, so that what preloading cannot reach is refused with a reason.
//!
//! Read-only: nothing here starts or changes anything.

mod elf;
mod error;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{ExitStatus, Fatal};
use crate::libraries::{Libc, LibraryPath};

pub use elf::{ElfError, check_allocator_library, program_loader};
pub use error::{Privilege, TargetError};

type Result<T> = std::result::Result<T, TargetError>;

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
    /// The C library of that program.
    pub libc: Libc,
}

impl Target {
    /// Finds `command` and examines it and its interpreters.
    pub fn resolve(command: &OsStr) -> Result<Self> {
        let path = find(command)?;
        let (program, libc) = examine(&path)?;
        Ok(Self {
            path,
            program,
            libc,
        })
    }

    /// Where the libraries are that can be preloaded into it.
    pub fn libraries(&self) -> LibraryPath {
        LibraryPath::from_environment().built_for(self.libc)
    }
}

/// The file that `execvp` would execute for `command`.
fn find(command: &OsStr) -> Result<PathBuf> {
    if command.is_empty() {
        return Err(TargetError::Empty);
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
            Err(error) if error.status() == ExitStatus::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| TargetError::NotInPath {
        command: command.to_owned(),
    }))
}

fn check_is_program(path: &Path) -> Result<()> {
    let owned = || path.to_owned();
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            TargetError::NoSuchFile { path: owned() }
        }
        _ => TargetError::Inaccessible {
            path: owned(),
            source,
        },
    })?;
    if metadata.is_dir() {
        return Err(TargetError::Directory { path: owned() });
    }
    if !metadata.is_file() {
        return Err(TargetError::NotRegular { path: owned() });
    }
    let access = rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        rustix::fs::Access::EXEC_OK,
        rustix::fs::AtFlags::EACCESS,
    );
    access.map_err(|_| TargetError::NotExecutable { path: owned() })
}

/// Follows the chain of interpreters to the program, checking every file of it.
fn examine(path: &Path) -> Result<(PathBuf, Libc)> {
    let mut current = path.to_owned();
    for _ in 0..=MAX_INTERPRETERS {
        check_privileges(&current)?;
        let head = match read_head(&current)? {
            Some(head) => head,
            // Executable but not readable: the kernel can run it, but no tool can examine it.
            None => return Ok((current, Libc::Glibc)),
        };
        if head.starts_with(b"\x7fELF") {
            let libc = elf::check_program(&current)?;
            return Ok((current, libc));
        }
        let Some(interpreter) = script_interpreter(&head) else {
            return Err(TargetError::NotAProgram { path: current });
        };
        check_is_program(&interpreter).map_err(|cause| TargetError::Interpreter {
            script: current,
            cause: Box::new(cause),
        })?;
        current = interpreter;
    }
    let path = path.to_owned();
    Err(TargetError::TooManyInterpreters { path })
}

fn read_head(path: &Path) -> Result<Option<Vec<u8>>> {
    let cannot = |source| TargetError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.take(HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(cannot)?;
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
    let privilege = if metadata.mode() & MODE_SETUID != 0 {
        Privilege::Setuid
    } else if is_setgid(&metadata) {
        Privilege::Setgid
    } else if has_file_capabilities(path) {
        Privilege::Capabilities
    } else {
        return Ok(());
    };
    let path = path.to_owned();
    Err(TargetError::Privileged { path, privilege })
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
        let error = Target::resolve(path.as_os_str()).unwrap_err();
        assert_eq!(error.status(), ExitStatus::Unfit);
        assert!(
            matches!(error, TargetError::TooManyInterpreters { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_script_without_interpreter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let gone = file(directory.path(), "gone", b"#!/no/such/interpreter\n", 0o755);
        let error = Target::resolve(gone.as_os_str()).unwrap_err();
        assert_eq!(error.status(), ExitStatus::Unfit);
        let TargetError::Interpreter { cause, .. } = error else {
            panic!("{error}")
        };
        assert!(matches!(*cause, TargetError::NoSuchFile { .. }), "{cause}");
        let plain = file(directory.path(), "plain", b"echo hello\n", 0o755);
        let error = Target::resolve(plain.as_os_str()).unwrap_err();
        assert!(matches!(error, TargetError::NotAProgram { .. }), "{error}");
    }

    #[test]
    fn directories_and_plain_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = Target::resolve(directory.path().as_os_str()).unwrap_err();
        assert_eq!(error.status(), ExitStatus::Unfit);
        assert!(matches!(error, TargetError::Directory { .. }), "{error}");
        let plain = file(directory.path(), "plain", b"#!/bin/sh\n", 0o644);
        let error = Target::resolve(plain.as_os_str()).unwrap_err();
        assert_eq!(error.status(), ExitStatus::Unfit);
        assert!(
            matches!(error, TargetError::NotExecutable { .. }),
            "{error}"
        );
    }

    #[test]
    fn what_is_nowhere_is_not_found() {
        for command in ["no-such-command-of-larder", "/no/such/file", ""] {
            let error = Target::resolve(OsStr::new(command)).unwrap_err();
            assert_eq!(error.status(), ExitStatus::NotFound, "{command}");
        }
    }

    #[test]
    fn setuid_and_setgid_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o4755, Privilege::Setuid), (0o2755, Privilege::Setgid)] {
            let path = directory.path().join(format!("{mode:o}"));
            fs::copy("/bin/true", &path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Target::resolve(path.as_os_str()).unwrap_err();
            assert_eq!(error.status(), ExitStatus::Unfit);
            let TargetError::Privileged { privilege, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(privilege, expected);
        }
    }
}
