//! What the tool's programs share: errors of the command line, help, exit codes.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Command;
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
    NoSubcommand { command: String },
    /// The cause is clap's first paragraph and its tips, in one line.
    #[error("{cause}: see `{command} --help`")]
    Refused { cause: String, command: String },
}

impl UsageError {
    /// Of these words, the first of which is the tool's name.
    pub fn new(error: &clap::Error, tool: &Command, words: &[OsString]) -> Self {
        let command = named(tool, words);
        if error.kind() == Wrong::MissingSubcommand {
            return Self::NoSubcommand { command };
        }
        let text = error.render().to_string();
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut cause = line.strip_prefix("error: ").unwrap_or(&line).to_owned();
        for tip in text.lines().filter_map(|line| line.strip_prefix("  tip: ")) {
            cause = cause + "; " + tip;
        }
        let cause = printable::escape(&cause).into_owned();
        Self::Refused { cause, command }
    }
}

/// The tool and the subcommands that the words begin with.
fn named(tool: &Command, words: &[OsString]) -> String {
    let (mut name, mut command) = (tool.get_name().to_owned(), tool);
    for word in words.iter().skip(1) {
        let Some(subcommand) = command.find_subcommand(word) else {
            break;
        };
        command = subcommand;
        name = name + " " + command.get_name();
    }
    name
}

impl Fatal for UsageError {}
