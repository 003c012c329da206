//! The command line of `larder leaks`, and its check.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_analysis::reading::lookup::{RawDebuginfod, RawSource};
use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::subject::RawCharging;
use larder_analysis::reading::suppressions::{RawBuiltIn, Suppressions};
use larder_base::failure::Result;

use super::command::SUPPRESSIONS_VARIABLE;
use super::suppressions::read;

pub const EXAMPLES: &str = "\
Examples:
  larder leaks -- ./server --once
      Run it on Larder; at its end, show what it has leaked, by source line.
  larder leaks --mode strict --suppressions known.txt -- make test
      Check every program that make runs; leave out the leaks in known.txt.
  larder leaks 4711
      A running process on Larder. Its threads are stopped during the check.

The processes of a command keep their exit codes; a leak shows in the tool's own.

Exit codes: 1 (or --exit-code) if anything leaked, else 0; with -- else the command's own; 125 the
tool failed; 126 the command cannot be executed or reached; 127 the command was not found.";

#[derive(Debug, Args)]
pub struct RawLeaks {
    /// A running process
    #[arg(
        value_name = "PID",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    process: Option<u32>,
    /// When the command's processes are checked, and what counts [default: normal]
    #[arg(long, value_enum, value_name = "MODE", requires = "command")]
    mode: Option<Mode>,
    /// Leave out what this suppression file, in LeakSanitizer's format, names
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    #[command(flatten)]
    built_in: RawBuiltIn,
    /// The exit code if anything leaked
    #[arg(long, value_name = "N", default_value = "1")]
    exit_code: u8,
    /// Sites in the ranking, 0 for all [default: 20; with --json all]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top: Option<usize>,
    #[command(flatten)]
    charging: RawCharging,
    #[command(flatten)]
    debuginfod: RawDebuginfod,
    #[command(flatten)]
    source: RawSource,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The values of `HEAPCHECK`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Like normal, but objects that were allocated before main are no leaks
    Minimal,
    /// At exit, before destructors of global objects run
    #[default]
    Normal,
    /// After destructors of global objects have run
    Strict,
    /// Like strict, and every object that was not freed is a leak
    Draconian,
    /// What the HEAP_CHECK_ variables set
    AsIs,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Minimal => "minimal",
            Mode::Normal => "normal",
            Mode::Strict => "strict",
            Mode::Draconian => "draconian",
            Mode::AsIs => "as-is",
        }
    }
}

#[derive(Debug)]
pub enum Source {
    Process(u32),
    /// At least one word.
    Command {
        words: Vec<OsString>,
        mode: Mode,
    },
}

#[derive(Debug)]
pub struct LeaksPlan {
    pub source: Source,
    pub suppressions: Suppressions,
    pub exit_code: u8,
    /// Of sites; `usize::MAX`: all.
    pub top: usize,
    pub charging: Charging,
    pub json: bool,
}

/// The same as the default of `HEAP_CHECK_MAX_LEAKS`.
const DEFAULT_TOP: usize = 20;

impl RawLeaks {
    /// The user's, then those that are built in. The processes of a command are given one file of all.
    fn suppressions(&self) -> Result<Suppressions> {
        let variable = |name| {
            let value = env::var_os(name).filter(|_| self.process.is_none());
            value.filter(|value| !value.is_empty())
        };
        let of_library = variable(SUPPRESSIONS_VARIABLE).map(PathBuf::from);
        let mut list = match self.suppressions.clone().or(of_library) {
            Some(file) => read(&file)?,
            None => Suppressions::default(),
        };
        let of_sanitizer = variable("LSAN_OPTIONS").filter(|_| list.0.is_empty());
        // The file would take the place of the one that is named there.
        if !of_sanitizer.is_some_and(|it| it.to_string_lossy().contains("suppressions=")) {
            list.0.extend(self.built_in.check().0);
        }
        Ok(list)
    }

    pub fn check(self) -> Result<LeaksPlan> {
        let suppressions = self.suppressions()?;
        let mut charging = self.charging.check()?;
        self.debuginfod.check(&mut charging.lookup)?;
        self.source.check(&mut charging.lookup)?;
        Ok(LeaksPlan {
            source: match self.process {
                Some(process) => Source::Process(process),
                None => Source::Command {
                    words: self.command,
                    mode: self.mode.unwrap_or_default(),
                },
            },
            suppressions,
            exit_code: self.exit_code,
            top: match (self.top, self.json) {
                (Some(0), _) | (None, true) => usize::MAX,
                (Some(top), _) => top,
                (None, false) => DEFAULT_TOP,
            },
            charging,
            json: self.json,
        })
    }
}
