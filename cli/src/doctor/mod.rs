//! `larder doctor`: what is missing, or in the way, on this machine and for one program, with the
//! remedy of each.
//!
//! Each check is a function from the machine to `Finding`s. It changes nothing, except that the trial
//! recording makes a temporary directory and removes it.

mod command;
mod lab;
mod libraries;
mod machine;

use std::ffi::OsString;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use clap::Args;
use larder_base::failure::{ExitStatus, Failure, Result};
use larder_base::format::Format;
use larder_base::output;
use serde::Serialize;
use serde_json::json;

#[derive(Debug, Args)]
pub struct DoctorPlan {
    /// A program to examine too
    #[arg(value_name = "COMMAND")]
    command: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print this process's memory map, for the preload checks
    #[arg(long, hide = true)]
    print_maps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Ok,
    /// Worth knowing; nothing is lost.
    Note,
    /// Something will be slower or incomplete.
    Warning,
    /// Running or recording will fail.
    Missing,
}

/// What one check found.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub health: Health,
    pub found: String,
    /// What to do; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Of a `Missing`: the exit code that `record` would have.
    #[serde(skip)]
    pub status: Option<ExitStatus>,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Health::Ok, found, "")
    }

    pub fn new(
        check: &'static str,
        health: Health,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            health,
            found: found.into(),
            remedy: remedy.into(),
            status: None,
        }
    }

    /// From a failure's "cause: remedy".
    pub fn from_failure(check: &'static str, failure: Failure) -> Self {
        let (found, remedy) = match failure.message.rsplit_once(": ") {
            Some((found, remedy)) => (found.to_owned(), remedy.to_owned()),
            None => (failure.message, String::new()),
        };
        Self {
            status: Some(failure.status),
            ..Self::new(check, Health::Missing, found, remedy)
        }
    }
}

/// Prints the findings; 0, or the exit code that `record` would have.
pub fn doctor(plan: &DoctorPlan) -> Result<u8> {
    if plan.print_maps {
        return print_maps();
    }
    let mut findings = libraries::findings();
    findings.push(lab::finding());
    findings.extend(machine::findings());
    if let Some(command) = &plan.command {
        findings.extend(command::findings(command));
    }
    let format = Format::printed(plan.json);
    output::write(None, format.content(), |out| match format {
        Format::Json => print_json(&findings, out),
        _ => print_table(&findings, out),
    })?;
    Ok(exit_code(&findings))
}

fn print_maps() -> Result<u8> {
    let maps = std::fs::read("/proc/self/maps");
    let written = maps.and_then(|maps| io::stdout().write_all(&maps));
    written.map(|()| 0).map_err(|error| {
        let reason = larder_base::target::reason(&error);
        Failure::failed(format!("/proc/self/maps: {reason}: mount /proc"))
    })
}

/// A command that cannot be run outranks the rest: its code is the most specific.
fn exit_code(findings: &[Finding]) -> u8 {
    let missing = findings
        .iter()
        .filter(|finding| finding.health == Health::Missing);
    let codes = missing.map(|finding| finding.status.unwrap_or(ExitStatus::Failed) as u8);
    codes.max().unwrap_or(0)
}

fn print_table(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let width = findings
        .iter()
        .map(|finding| finding.check.len())
        .max()
        .unwrap_or(0);
    for finding in findings {
        let (style, word) = match finding.health {
            Health::Ok => (AnsiColor::Green.on_default(), "ok"),
            Health::Note => (Style::new(), "note"),
            Health::Warning => (AnsiColor::Yellow.on_default(), "warning"),
            Health::Missing => (AnsiColor::Red.on_default().bold(), "missing"),
        };
        writeln!(
            out,
            "{style}{word:<7}{style:#}  {:<width$}  {}",
            finding.check, finding.found
        )?;
        if !finding.remedy.is_empty() {
            writeln!(out, "{:7}  {:<width$}  → {}", "", "", finding.remedy)?;
        }
    }
    let worst = findings
        .iter()
        .map(|finding| finding.health)
        .max()
        .unwrap_or(Health::Ok);
    writeln!(out, "\n{}", conclusion(worst))
}

fn conclusion(worst: Health) -> &'static str {
    match worst {
        Health::Ok | Health::Note => "Everything needed is there.",
        Health::Warning => "Running and recording work; each warning names a limitation.",
        Health::Missing => "Something needed is missing.",
    }
}

fn print_json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let document = json!({ "exit_code": exit_code(findings), "findings": findings });
    output::write_json(&document, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_falls_into_finding_and_remedy() {
        let failure = Failure::unfit("/bin/x: is a directory: name a file");
        let finding = Finding::from_failure("command", failure);
        assert_eq!(finding.found, "/bin/x: is a directory");
        assert_eq!(finding.remedy, "name a file");
        assert_eq!(exit_code(&[finding]), 126);
    }

    #[test]
    fn warnings_do_not_fail() {
        let finding = Finding::new("x", Health::Warning, "slow", "buy another");
        assert_eq!(exit_code(&[finding, Finding::ok("y", "fine")]), 0);
    }
}
