//! Starts the instruments' programs: where they are, on which allocator, for how long.
//!
//! Variables of the caller's environment that affect a loader or an allocator do not reach a program. The
//! files of a run are in a scratch folder that is removed with `Programs`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use larder_base::installed;
use larder_base::measured::{self, last_line, last_object, scratch_failure};
use larder_base::preload::{PRELOAD_VARIABLE, loadable_path};
use larder_base::printable;
use serde_json::{Map, Value};
use std::cell::Cell;
use tempfile::TempDir;

use crate::bench::allocators::Allocator;
use crate::error::{self, LabError};

const LOOK_EVERY: Duration = Duration::from_millis(2);

/// One run of one program.
pub struct Launch<'a> {
    /// Words before the program: valgrind, strace, and their options.
    pub wrapper: Vec<OsString>,
    /// The program, by name, and its arguments.
    pub words: Vec<String>,
    pub allocator: Option<&'a Allocator>,
    pub environment: Vec<(String, OsString)>,
}

impl<'a> Launch<'a> {
    pub fn new(words: &[impl AsRef<str>], allocator: Option<&'a Allocator>) -> Launch<'a> {
        Launch {
            wrapper: Vec::new(),
            words: words.iter().map(|word| word.as_ref().to_owned()).collect(),
            allocator,
            environment: Vec::new(),
        }
    }

    pub fn scaled(mut self, scale: f64) -> Launch<'a> {
        let scale = scale.to_string().into();
        self.environment.push(("BENCH_SCALE".to_owned(), scale));
        self
    }

    /// Its name in messages.
    fn describe(&self) -> String {
        let words = printable::escape(&self.words.join(" ")).into_owned();
        match self.allocator {
            Some(allocator) => format!("{words} on {}", allocator.name),
            None => words,
        }
    }
}

/// `$LARDER_LIBEXEC/bench`, or the one beside the tool; it must hold `needed`.
fn directory_with(needed: &[&str]) -> error::Result<PathBuf> {
    let directory = installed::programs().join("bench");
    match needed.iter().find(|name| !directory.join(name).is_file()) {
        None => Ok(directory),
        Some(missing) => Err(LabError::NoPeers {
            file: (*missing).to_owned(),
            directory,
        }),
    }
}

/// The folder of programs, and what limits a run.
pub struct Programs {
    directory: PathBuf,
    scratch: TempDir,
    limit: Duration,
    folders: Cell<u32>,
}

impl Programs {
    /// In a folder that holds `needed`.
    pub fn find(needed: &[&str], limit_seconds: u64) -> Result<Programs> {
        let directory = directory_with(needed)?;
        let scratch = tempfile::Builder::new().prefix("larder-").tempdir();
        Ok(Programs {
            directory,
            scratch: scratch.map_err(|error| scratch_failure("a temporary folder", error))?,
            limit: Duration::from_secs(limit_seconds),
            folders: Cell::new(0),
        })
    }

    /// An empty folder, which is removed with this process.
    pub fn scratch_folder(&self) -> Result<PathBuf> {
        self.folders.set(self.folders.get() + 1);
        let folder = self.scratch.path().join(self.folders.get().to_string());
        fs::create_dir(&folder)
            .map_err(|error| scratch_failure(&printable::name(&folder), error))?;
        Ok(folder)
    }

    /// The absolute path of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        path.canonicalize().unwrap_or(path)
    }

    /// Runs it to its end; returns the object that the program printed last.
    pub fn run(&self, launch: &Launch) -> Result<Map<String, Value>> {
        Ok(last_object(&self.printed_by(launch)?))
    }

    /// Runs it to its end; returns its output.
    pub fn printed_by(&self, launch: &Launch) -> Result<Vec<u8>> {
        let folder = self.scratch_folder()?;
        let [out, err] = ["stdout", "stderr"].map(|name| folder.join(name));
        let outcome = self.start(launch, &out, &err).and_then(|child| {
            let status = self.wait(child, launch)?;
            if status.success() {
                return Ok(fs::read(&out).unwrap_or_default());
            }
            let said = last_line(&fs::read(&err).unwrap_or_default());
            let colon = if said.is_empty() { "" } else { ": " };
            Err(LabError::Failed {
                launch: launch.describe(),
                status,
                said: format!("{colon}{said}"),
            }
            .into())
        });
        let _ = fs::remove_dir_all(&folder);
        outcome
    }

    /// Runs it without a time limit; returns the time from its start to its end.
    pub fn time(&self, launch: &Launch) -> Result<Duration> {
        let mut command = self.command(launch)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let mut child = start_child(&mut command)?;
        let status = child.wait().map_err(|error| lost(launch, error))?;
        let time = start.elapsed();
        if status.success() {
            return Ok(time);
        }
        Err(LabError::Failed {
            launch: launch.describe(),
            status,
            said: String::new(),
        }
        .into())
    }

    fn start(&self, launch: &Launch, out: &Path, err: &Path) -> Result<Child> {
        let mut command = self.command(launch)?;
        let create = |path: &Path| {
            File::create(path).map_err(|error| scratch_failure(&printable::name(path), error))
        };
        let child = start_child(command.stdout(create(out)?).stderr(create(err)?));
        Ok(child?)
    }

    fn command(&self, launch: &Launch) -> Result<Command> {
        let program = self.path(&launch.words[0]);
        let mut words = launch
            .wrapper
            .iter()
            .map(OsString::as_os_str)
            .collect::<Vec<_>>();
        words.push(program.as_os_str());
        words.extend(launch.words[1..].iter().map(OsStr::new));
        let mut command = measured::command(words[0]);
        command.args(&words[1..]);
        if let Some(allocator) = launch.allocator {
            command.env(PRELOAD_VARIABLE, loadable_path(&allocator.library)?);
            command.envs(&allocator.environment);
        }
        command
            .env("LC_ALL", "C")
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        Ok(command)
    }

    fn wait(&self, mut child: Child, launch: &Launch) -> error::Result<ExitStatus> {
        let start = Instant::now();
        loop {
            let ended = child.try_wait().map_err(|error| lost(launch, error))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            if start.elapsed() > self.limit {
                let _ = child.kill();
                let _ = child.wait();
                return Err(LabError::Late {
                    launch: launch.describe(),
                    limit: self.limit,
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn start_child(command: &mut Command) -> std::result::Result<Child, BaseError> {
    command.spawn().map_err(system(
        printable::name(command.get_program()),
        "is it installed and executable?",
    ))
}

fn lost(launch: &Launch, error: io::Error) -> BaseError {
    system(launch.describe(), "try again")(error)
}

/// A number that the program should have printed.
pub fn number(printed: &Map<String, Value>, name: &str, program: &str) -> error::Result<f64> {
    let number = printed.get(name).and_then(Value::as_f64);
    number.ok_or_else(|| LabError::NoFigure {
        program: program.to_owned(),
        figure: name.to_owned(),
    })
}

/// Where a command is that an instrument needs: it must be there before anything is run.
pub fn require(command: &'static str, package: &'static str) -> error::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(command));
    let found = places.find(|place| place.is_file());
    found.ok_or_else(|| missing(command, package))
}

pub fn missing(command: &'static str, package: &'static str) -> LabError {
    LabError::NotInstalled { command, package }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_counts() {
        let printed = last_object(b"{\"a\": 1}\nnoise\n{\"a\": 2}\nend\n");
        assert_eq!(number(&printed, "a", "p").unwrap(), 2.0);
        let missing = number(&printed, "b", "p");
        assert!(matches!(missing, Err(LabError::NoFigure { .. })));
        assert!(last_object(b"{broken\n").is_empty());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = directory_with(&["bench_of_nothing"]).unwrap_err();
        let LabError::NoPeers { file, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(file, "bench_of_nothing");
        let required = require("no-such-command", "a-package");
        assert!(matches!(required, Err(LabError::NotInstalled { .. })));
    }
}
