//! The tool's failures: a message of one line, and an exit code.
//!
//! Invariant: a message is one printable line; its maker escapes names from outside (see `printable`).
//!
//! What a caller or a test tells apart is an enum of its crate, which becomes a failure by `Fatal`. The
//! commands of cli, where nothing does, make theirs of text.

use std::fmt;

/// Exit codes of the tool, beside a recorded command's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The tool itself failed: usage, an unreadable trace, no permission, a library not found.
    Failed = 125,
    /// The command was found but cannot be executed or reached by preloading.
    Unfit = 126,
    /// The command was not found.
    NotFound = 127,
}

/// A failure, with cause and remedy in one line.
#[derive(Debug)]
pub struct Failure {
    pub status: ExitStatus,
    pub message: String,
}

impl Failure {
    pub fn new(status: ExitStatus, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// The tool's own failure (125).
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Failed, message)
    }

    /// A command that cannot be run or reached (126).
    pub fn unfit(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Unfit, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error that ends the tool: its sentence is the failure's message.
pub trait Fatal: std::error::Error {
    fn status(&self) -> ExitStatus {
        ExitStatus::Failed
    }
}

impl<E: Fatal> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.status(), error.to_string())
    }
}

pub type Result<T> = std::result::Result<T, Failure>;
