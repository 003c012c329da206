//! What the tool's programs have in common between their words and their exit code.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::error::ErrorKind as Wrong;

use crate::failure::{Failure, Result};
use crate::printable;
use crate::target::reason;

/// Of a program's end; a failure is told on stderr.
pub fn exit_code(end: Result<ExitCode>) -> ExitCode {
    end.unwrap_or_else(|failure| {
        // A closed stderr leaves nobody to tell.
        let _ = writeln!(std::io::stderr(), "larder: error: {failure}");
        ExitCode::from(failure.status as u8)
    })
}

/// Prints help or the version.
pub fn show(text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "the help cannot be written: {}: name another place for it",
            reason(&error)
        ))),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// clap's first paragraph, in one line; `command` is the one whose help says more.
pub fn usage_failure(error: &clap::Error, command: &str) -> Failure {
    if error.kind() == Wrong::MissingSubcommand {
        return Failure::failed(format!(
            "no subcommand given: `{command} --help` lists them, with examples"
        ));
    }
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let cause = printable::escape(line.strip_prefix("error: ").unwrap_or(&line)).into_owned();
    Failure::failed(format!("{cause}: see `{command} --help`"))
}
