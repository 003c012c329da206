//! What ends a command that reads processes. What one module alone refuses is beside its code.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use larder_base::error::BaseError;
use larder_base::failure::{ExitStatus, Fatal};
use larder_base::printable::name;
use larder_base::target::reason;

use crate::process::Obstacle;
#[cfg(target_arch = "x86_64")]
use crate::process::attach::Refusal;
use crate::profile::NoProfile;
use crate::serve::TOKEN_VARIABLE;

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Arguments that clap takes and the command does not.
    #[error("{0}")]
    Usage(&'static str),
    #[error("{}: --seconds and --growing need a process: name one by its number", name(.0))]
    NoProcess(PathBuf),
    #[error("{}: line {line}: it has to be NAME: VALUE", name(path))]
    HeaderLine { path: PathBuf, line: usize },
    #[error(
        "{origin}: a port takes a token of 16 to 255 characters, without spaces: make one by \
         `openssl rand -hex 16`, and name it with --token-file or {TOKEN_VARIABLE}"
    )]
    Token { origin: String },
    #[error("{}: has more than 1 MiB: name a file of lines leak:PATTERN", name(.0))]
    LongSuppressions(PathBuf),
    #[error("process {id}: {obstacle}")]
    Obstacle { id: u32, obstacle: Obstacle },
    #[cfg(target_arch = "x86_64")]
    #[error("process {id}: {refusal}")]
    Refusal { id: u32, refusal: Refusal },
    #[error("process {0}: takes no samples: start it without LARDER_PROFILE_BYTES=0")]
    NoSamples(u32),
    #[error("{}: {cause}", name(path))]
    NoProfile { path: PathBuf, cause: NoProfile },
    #[error(
        "{0} processes have written profiles, and a heap profile has one process: choose another \
         --format"
    )]
    SeveralProfiles(usize),
    #[error("{title}: has no {unit} for this key: choose another --sort")]
    NothingToDraw { title: String, unit: &'static str },
    #[error("{}: cannot be executed or traced: {}", name(program), reason(source))]
    NotTraced { program: PathBuf, source: io::Error },
    #[error(
        "{}: ended with {code}, and none of its processes ran on Larder: `larder doctor PROGRAM` \
         says more",
        name(command)
    )]
    NeverOnLarder { command: OsString, code: u8 },
    #[error(
        "{}: ended with {code} and {none}; `larder doctor PROGRAM` says more",
        name(command)
    )]
    NothingWritten {
        command: OsString,
        code: u8,
        none: &'static str,
    },
    #[error(transparent)]
    Base(#[from] BaseError),
}

impl Fatal for LiveError {
    fn status(&self) -> ExitStatus {
        match self {
            Self::NotTraced { .. } => ExitStatus::Unfit,
            _ => ExitStatus::Failed,
        }
    }
}

pub type Result<T> = std::result::Result<T, LiveError>;
