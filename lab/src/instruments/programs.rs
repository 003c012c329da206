//! Starts the instruments' programs: where they are, on which allocator, for how long.
//!
//! Variables of the caller's environment that affect a loader or an allocator do not reach a program. The
//! files of a run are in a scratch folder that is removed with `Programs`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use larder_base::failure::{Failure, Result};
use larder_base::installed::{self, PROGRAMS_VARIABLE};
use larder_base::measured::{self, last_line, last_object, scratch_failure};
use larder_base::preload::{PRELOAD_VARIABLE, loadable_path};
use larder_base::printable;
use serde_json::{Map, Value};
use std::cell::Cell;
use tempfile::TempDir;

use crate::bench::allocators::Allocator;

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

/// The folder of programs, and the time limit of a run.
pub struct Programs {
    directory: PathBuf,
    scratch: TempDir,
    limit: Duration,
    folders: Cell<u32>,
}

impl Programs {
    /// `$LARDER_LIBEXEC/bench`, or the one beside the tool; it must hold `needed`.
    pub fn find(needed: &[&str], limit_seconds: u64) -> Result<Programs> {
        let directory = installed::programs().join("bench");
        if let Some(missing) = needed.iter().find(|name| !directory.join(name).is_file()) {
            return Err(Failure::failed(format!(
                "{missing} is not in {}: run `make peers` and use out/bin/larder, or set \
                 {PROGRAMS_VARIABLE} to the directory that holds bench/{missing}",
                printable::name(&directory)
            )));
        }
        let scratch = tempfile::Builder::new().prefix("larder-").tempdir();
        Ok(Programs {
            directory,
            scratch: scratch.map_err(|error| scratch_failure("a temporary folder", &error))?,
            limit: Duration::from_secs(limit_seconds),
            folders: Cell::new(0),
        })
    }

    /// An empty folder, which is removed with this process.
    pub fn scratch_folder(&self) -> Result<PathBuf> {
        self.folders.set(self.folders.get() + 1);
        let folder = self.scratch.path().join(self.folders.get().to_string());
        fs::create_dir(&folder)
            .map_err(|error| scratch_failure(&printable::name(&folder), &error))?;
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
            Err(Failure::failed(format!(
                "{} failed with {}{}{said}",
                launch.describe(),
                describe(status),
                if said.is_empty() { "" } else { ": " }
            )))
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
        let status = child.wait().map_err(|error| lost(launch, &error))?;
        let time = start.elapsed();
        if status.success() {
            return Ok(time);
        }
        Err(Failure::failed(format!(
            "{} failed with {}",
            launch.describe(),
            describe(status)
        )))
    }

    fn start(&self, launch: &Launch, out: &Path, err: &Path) -> Result<Child> {
        let mut command = self.command(launch)?;
        let create = |path: &Path| {
            File::create(path).map_err(|error| scratch_failure(&printable::name(path), &error))
        };
        start_child(command.stdout(create(out)?).stderr(create(err)?))
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

    fn wait(&self, mut child: Child, launch: &Launch) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            let ended = child.try_wait().map_err(|error| lost(launch, &error))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            if start.elapsed() > self.limit {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::failed(format!(
                    "{} takes more than {} s: give it longer with --run-limit",
                    launch.describe(),
                    self.limit.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn start_child(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| {
        Failure::failed(format!(
            "{}: {}: check that it is installed and executable",
            printable::name(command.get_program()),
            larder_base::target::reason(&error)
        ))
    })
}

fn lost(launch: &Launch, error: &io::Error) -> Failure {
    Failure::failed(format!(
        "{}: {}: try again",
        launch.describe(),
        larder_base::target::reason(error)
    ))
}

/// A number that the program should have printed.
pub fn number(printed: &Map<String, Value>, name: &str, program: &str) -> Result<f64> {
    printed.get(name).and_then(Value::as_f64).ok_or_else(|| {
        Failure::failed(format!(
            "{program} printed no {name}: it is of another version; stage the programs again with \
             `make peers`"
        ))
    })
}

/// The path of a command that an instrument needs; called before anything is run.
pub fn require(command: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(command));
    let found = places.find(|place| place.is_file());
    found.ok_or_else(|| missing(command, package))
}

pub fn missing(command: &str, package: &str) -> Failure {
    Failure::failed(format!(
        "{command} is not installed: apt-get install {package}"
    ))
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or(-1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_counts() {
        let printed = last_object(b"{\"a\": 1}\nnoise\n{\"a\": 2}\nend\n");
        assert_eq!(number(&printed, "a", "p").unwrap(), 2.0);
        assert!(number(&printed, "b", "p").is_err());
        assert!(last_object(b"{broken\n").is_empty());
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = Programs::find(&["bench_of_nothing"], 1).err().unwrap();
        assert!(failure.message.contains("bench_of_nothing"), "{failure}");
        assert!(require("no-such-command", "a-package").is_err());
    }
}
