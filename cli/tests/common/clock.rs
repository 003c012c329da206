//! Time for a program that runs beside a test: it stands still until the test passes some (clock.c).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::compile;
use super::running::wait_until;

pub struct Clock {
    library: PathBuf,
    path: PathBuf,
    /// What has passed, then until when each wait lasts: nanoseconds, of eight bytes each.
    state: File,
}

const STATE_BYTES: usize = 256 * 8;

impl Clock {
    pub fn new(directory: &Path) -> Self {
        let flags = ["-shared", "-fPIC"];
        let library = compile(directory, "clock.c", include_str!("clock.c"), &flags);
        let path = directory.join("clock.state");
        let mut options = File::options();
        let state = options.read(true).write(true).create_new(true).open(&path);
        let state = state.expect("a file");
        state.set_len(STATE_BYTES as u64).expect("its length");
        Self {
            library,
            path,
            state,
        }
    }

    /// The program that this starts has the clock.
    pub fn drive<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.library)
            .env("TEST_CLOCK", &self.path)
    }

    /// What has passed, and how long each wait goes on, the shortest first.
    fn read(&self) -> (u64, Vec<Duration>) {
        let mut bytes = [0; STATE_BYTES];
        self.state.read_exact_at(&mut bytes, 0).expect("the clock");
        let (numbers, _) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let passed = numbers.next().expect("the clock");
        let left = numbers.filter(|until| *until > passed);
        let mut left: Vec<_> = left
            .map(|until| Duration::from_nanos(until - passed))
            .collect();
        left.sort();
        (passed, left)
    }

    pub fn pass(&self, length: Duration) {
        let passed = self.read().0 + length.as_nanos() as u64;
        let written = self.state.write_all_at(&passed.to_ne_bytes(), 0);
        written.expect("the clock");
    }

    /// Until so many threads wait for so many seconds, and none for another time.
    #[track_caller]
    pub fn wait_for(&self, seconds: f64, threads: usize) {
        let wanted = vec![Duration::from_secs_f64(seconds); threads];
        wait_until(&format!("waiting for {wanted:?}"), || {
            self.read().1 == wanted
        });
    }

    /// As `wait_for`; then as much passes.
    #[track_caller]
    pub fn wait_and_pass(&self, seconds: f64) {
        self.wait_for(seconds, 1);
        self.pass(Duration::from_secs_f64(seconds));
    }

    /// Ends one wait of the program after the other, until it is so.
    #[track_caller]
    pub fn pass_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        wait_until(what, || {
            if is_so() {
                return true;
            }
            if let Some(next) = self.read().1.first() {
                self.pass(*next);
            }
            false
        });
    }
}
