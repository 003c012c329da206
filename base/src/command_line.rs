//! What the tool's programs share: errors of the command line, help, exit codes.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind as Wrong;

use crate::failure::{Fatal, Result};
use crate::output::{self, Content};
use crate::printable;

/// The exit code of a program. Reports a failure on stderr.
pub fn exit_code(end: Result<ExitCode>) -> ExitCode {
    end.unwrap_or_else(|failure| {
        // There is nowhere to report a closed stderr.
        let _ = writeln!(std::io::stderr(), "larder: error: {failure}");
        ExitCode::from(failure.status as u8)
    })
}

/// Prints help or the version.
pub fn show(text: &str) -> Result<ExitCode> {
    output::write(None, Content::Text, |out| {
        writeln!(out, "{}", text.trim_end())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Words that clap refuses; `command` is the one whose help says more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    #[error("no subcommand given: `{command} --help` lists them, with examples")]
    NoSubcommand { command: &'static str },
    /// The cause is clap's first paragraph, in one line.
    #[error("{cause}: see `{command} --help`")]
    Refused {
        cause: String,
        command: &'static str,
    },
}

impl UsageError {
    pub fn new(error: &clap::Error, command: &'static str) -> Self {
        if error.kind() == Wrong::MissingSubcommand {
            return Self::NoSubcommand { command };
        }
        let text = error.render().to_string();
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        let cause = printable::escape(line.strip_prefix("error: ").unwrap_or(&line)).into_owned();
        Self::Refused { cause, command }
    }
}

impl Fatal for UsageError {}
