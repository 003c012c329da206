//! What ends a command that reads a trace. What one module alone refuses is beside its code.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use larder_base::failure::Fatal;
use larder_base::printable::{escape, name};
use larder_trace::TraceError;

use crate::reading::subject::describe;

#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// Arguments that clap takes and the command does not.
    #[error("{0}")]
    Usage(Cow<'static, str>),
    #[error("{}", describe(.0))]
    Unreadable(TraceError),
    /// The trace, or what is to be imported, has not what the command needs.
    #[error("{}: {lack}", name(path))]
    Unfit {
        path: PathBuf,
        lack: Cow<'static, str>,
    },
    #[error(
        "'{}': no such function on a stack of {}: {remedy}",
        escape(function),
        name(trace)
    )]
    NoFunction {
        function: String,
        trace: PathBuf,
        remedy: String,
    },
    #[error("{}: exists: name another directory with -o, or remove it", name(.0))]
    Exists(PathBuf),
}

impl AnalysisError {
    pub fn usage(fault: impl Into<Cow<'static, str>>) -> Self {
        Self::Usage(fault.into())
    }

    pub fn unfit(path: &Path, lack: impl Into<Cow<'static, str>>) -> Self {
        Self::Unfit {
            path: path.to_owned(),
            lack: lack.into(),
        }
    }
}

impl Fatal for AnalysisError {}
