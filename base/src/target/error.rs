//! Why a command cannot be started, or not be reached by preloading.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::elf::ElfError;
use super::{MAX_INTERPRETERS, reason};
use crate::failure::{ExitStatus, Fatal};
use crate::printable;

#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("the command is an empty word: name a program to run")]
    Empty,
    #[error(
        "{}: command not found in $PATH: install it, or give its path",
        printable::name(command)
    )]
    NotInPath { command: OsString },
    #[error("{}: no such file: check the path", printable::name(path))]
    NoSuchFile { path: PathBuf },
    #[error("{}: cannot be examined: {}", printable::name(path), reason(source))]
    Inaccessible { path: PathBuf, source: io::Error },
    #[error(
        "{}: is a directory, not a program: name a program in it",
        printable::name(path)
    )]
    Directory { path: PathBuf },
    #[error(
        "{}: is not a regular file, so not a program: name a program",
        printable::name(path)
    )]
    NotRegular { path: PathBuf },
    #[error(
        "{}: is not executable by this user: `chmod +x` it",
        printable::name(path)
    )]
    NotExecutable { path: PathBuf },
    #[error("{}: cannot be read: {}", printable::name(path), reason(source))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{}: is neither an ELF program nor a script with a #! line: add one, or run it as `sh {0}`",
        printable::name(path)
    )]
    NotAProgram { path: PathBuf },
    #[error(
        "{}: its #! line names an interpreter that cannot be run: {cause}",
        printable::name(script)
    )]
    Interpreter {
        script: PathBuf,
        cause: Box<TargetError>,
    },
    #[error(
        "{}: its #! lines name more than {MAX_INTERPRETERS} interpreters in a row: name the last \
         one directly",
        printable::name(path)
    )]
    TooManyInterpreters { path: PathBuf },
    #[error(
        "{}: {privilege}, and the loader drops preloads in such programs: run a copy without the \
         privilege (cp {0} COPY; cp drops it)",
        printable::name(path)
    )]
    Privileged { path: PathBuf, privilege: Privilege },
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// What makes the loader ignore a preload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Privilege {
    #[error("is setuid")]
    Setuid,
    #[error("is setgid")]
    Setgid,
    #[error("has file capabilities")]
    Capabilities,
}

impl Fatal for TargetError {
    /// The exit code of a shell for the same.
    fn status(&self) -> ExitStatus {
        match self {
            Self::Empty | Self::NotInPath { .. } | Self::NoSuchFile { .. } => ExitStatus::NotFound,
            _ => ExitStatus::Unfit,
        }
    }
}
