//! What can fail anywhere in the tool. An error of one module is beside its code.

use std::io;
use std::path::PathBuf;

use crate::failure::{ExitStatus, Fatal};
use crate::printable;
use crate::target::reason;

#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error("the current directory cannot be found: {}", reason(.0))]
    NoCurrentDirectory(io::Error),
    #[error(
        "{}: LD_PRELOAD cannot carry a path with a space, a colon or a dollar sign, and no private \
         directory for a link could be made in $XDG_RUNTIME_DIR or /tmp: install Larder in a path \
         without them",
        printable::name(library)
    )]
    NotLoadable { library: PathBuf },
    #[error("{}: cannot be executed: {}", printable::name(program), reason(source))]
    NotExecuted { program: PathBuf, source: io::Error },
    /// A file, a thread, a terminal.
    #[error("{what}: {}: {remedy}", reason(source))]
    System {
        what: String,
        source: io::Error,
        remedy: &'static str,
    },
}

/// For `map_err`: the system refuses `what`.
pub fn system(what: impl Into<String>, remedy: &'static str) -> impl Fn(io::Error) -> BaseError {
    let what = what.into();
    move |source| BaseError::System {
        what: what.clone(),
        source,
        remedy,
    }
}

impl Fatal for BaseError {
    fn status(&self) -> ExitStatus {
        match self {
            Self::NotExecuted { .. } => ExitStatus::Unfit,
            _ => ExitStatus::Failed,
        }
    }
}
