//! Programs that run beside a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{compile, library_directory};

/// Keeps 40 MiB; then, in each round, drops 100 MiB and keeps 4 MiB more.
const WORKER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void* keep(size_t size) { return memset(malloc(size), 1, size); }
__attribute__((noinline)) void* more(size_t size) { return memset(malloc(size), 1, size); }
__attribute__((noinline)) void drop(void) { void* volatile p = malloc(1 << 20); free(p); }
int main(void) {
  static void* volatile kept;
  for (int i = 0; i < 40; ++i) kept = keep(1 << 20);
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
    for (int i = 0; i < 100; ++i) drop();
    for (int i = 0; i < 64; ++i) kept = more(64 << 10);
    puts("done");
    fflush(stdout);
  }
  return kept == NULL;
}
"#;

/// It says `ready` when it has what it keeps.
#[track_caller]
pub fn worker(directory: &Path, name: &str) -> PathBuf {
    let flags = ["-g", "-O1", "-fno-builtin"];
    compile(directory, &format!("{name}.c"), WORKER, &flags)
}

/// The program, on the staged allocator.
pub fn preloaded(program: impl AsRef<Path>) -> Command {
    preloaded_with("liblarder.so", program)
}

pub fn preloaded_with(library: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env("LD_PRELOAD", library_directory().join(library));
    command
}

/// What takes so long hangs. The one limit of these tests, far from what they take on a busy machine.
pub const HANG: Duration = Duration::from_secs(600);

/// When what has not come will not.
pub fn failure_at() -> Instant {
    Instant::now() + HANG
}

/// Looks again and again until it is so.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = failure_at();
    while !is_so() {
        assert!(Instant::now() < deadline, "not {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A command that is ended, with exit code 124, if it hangs.
pub fn ended_if_it_hangs(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg(HANG.as_secs().to_string())
        .arg(program.as_ref());
    command
}

/// A child process: ended, and waited for, when this goes.
pub struct Running(Child);

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// When it has written what ends in `ready`, a whole line; its stdin and stdout are pipes.
    #[track_caller]
    pub fn once_it_says(ready: &str, command: &mut Command) -> Self {
        Self::with_first_words(ready, command).0
    }

    /// As `once_it_says`, and what it has written by then.
    #[track_caller]
    pub fn with_first_words(ready: &str, command: &mut Command) -> (Self, String) {
        let mut running = Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let words = first_words(ready, running.stdout.as_mut().expect("a pipe"));
        (running, words)
    }

    /// A program that works in rounds has one for each byte of its stdin, and says when it is done.
    #[track_caller]
    pub fn round(&mut self) {
        let stdin = self.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"\n").expect("it reads");
        first_words("done\n", self.stdout.as_mut().expect("a pipe"));
    }

    /// Its end, which comes.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait_until("at its end", || self.try_wait().expect("a child").is_some());
        self.0.wait().expect("a child")
    }

    pub fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is written up to a line that has this. What follows it must not have been written yet.
#[track_caller]
pub fn first_words(ready: &str, from: impl Read) -> String {
    let mut words = String::new();
    let mut lines = BufReader::new(from);
    let mut line = 0;
    while !words[line..].contains(ready) {
        line = words.len();
        let length = lines.read_line(&mut words).expect("a line");
        assert!(length > 0, "it ended without {ready:?}: {words}");
    }
    words
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
