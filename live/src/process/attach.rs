//! Loads the recorder into a running process, and has it begin and end a recording. The process is one of any
//! allocator, dynamically linked with glibc.
//!
//! Invariant: what is refused is refused before the process is touched, as far as it can be known from outside.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_base::failure::Failure;
use larder_trace::attach::{BUSY, TAKEN, UNFIT};

use super::Obstacle;
use super::code::{Code, Loaded};
use super::find;
use super::held::{Held, Purpose};
use super::memory::{Fields, Memory};
use crate::error::LiveError;

/// Why a process cannot be recorded from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Obstacle(Obstacle),
    /// It is the tool itself.
    Own,
    NotDynamic,
    NotGlibc,
    OldLibc,
    Privileged,
    Filtered,
    /// It does not see this file, or sees another one.
    Elsewhere(PathBuf),
    /// By a recorder of another build.
    OtherRecorder,
    Taken,
    /// A signal has stopped all of it.
    Standing,
    NeverSafe,
    /// A call in this thread does not return.
    Hangs(i32),
    Crashed,
    /// With the loader's words.
    NotLoaded(String),
    /// The recorder cannot write: the error's number.
    NotWritten(i32),
    Unfit,
}

/// A process that the recorder was told to record.
pub struct Attached {
    id: u32,
    library: PathBuf,
    /// How long its one thread stood.
    pub pause: Duration,
}

/// For paths and the stack of the calls: the recorder's start takes less than a tenth.
const AREA_BYTES: u64 = 512 << 10;

/// How long a thread at a safe place is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before another try, if the thread was in the recorder.
const PAUSE: Duration = Duration::from_millis(1);

/// Begins to record into the directory. REQUIRES: absolute paths.
pub fn attach(id: u32, library: &Path, directory: &Path) -> Result<Attached, Refusal> {
    if id == std::process::id() {
        return Err(Refusal::Own);
    }
    let memory = Memory::open(id)?;
    check(&memory, &[library, directory])?;
    let code = Code::read(&memory, library)?;
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::ZERO;
    loop {
        let mut held = Held::stop(&memory, &code, Purpose::Load, until)?;
        let answer = begin(&memory, &code, &mut held, library, directory);
        pause = pause.max(held.pause());
        drop(held);
        match answer? {
            0 => break,
            BUSY => std::thread::sleep(PAUSE),
            TAKEN => return Err(Refusal::Taken),
            UNFIT => return Err(Refusal::Unfit),
            errno => return Err(Refusal::NotWritten(errno)),
        }
    }
    Ok(Attached {
        id,
        library: library.to_owned(),
        pause,
    })
}

impl Attached {
    /// What an earlier tool has left, if its recorder is this file.
    pub fn left_behind(id: u32, library: &Path) -> Self {
        Self {
            id,
            library: library.to_owned(),
            pause: Duration::ZERO,
        }
    }

    /// Ends the recording. `None`: the process has ended, or become another program.
    pub fn detach(&self) -> Result<Option<Duration>, Refusal> {
        match self.end() {
            Err(Refusal::Obstacle(Obstacle::Ended | Obstacle::NoProcess)) => Ok(None),
            other => other,
        }
    }

    fn end(&self) -> Result<Option<Duration>, Refusal> {
        let memory = Memory::open(self.id)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let Some(loaded) = Loaded::find(&memory, &self.library)? else {
                return Ok(None);
            };
            let code = Code::read(&memory, &self.library)?;
            let mut held = Held::stop(&memory, &code, Purpose::Call, until)?;
            let answer = held.call(loaded.detach, &[])? as i32;
            let pause = held.pause();
            drop(held);
            if answer != BUSY {
                return Ok(Some(pause));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// What can be known from outside.
fn check(memory: &Memory, needed: &[&Path]) -> Result<(), Refusal> {
    if find::is_narrow(memory) {
        return Err(Obstacle::Narrow.into());
    }
    let status = memory.text("status")?;
    let filter = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Seccomp:"));
    if filter.is_some_and(|mode| mode.trim_ascii() != b"0") {
        return Err(Refusal::Filtered);
    }
    if is_privileged(&memory.text("auxv")?) {
        return Err(Refusal::Privileged);
    }
    for path in needed {
        let inside = memory
            .proc_path("root")
            .join(path.strip_prefix("/").unwrap_or(path));
        let which = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
        if which(path).is_none() || which(path) != which(&inside) {
            return Err(Refusal::Elsewhere((*path).to_owned()));
        }
    }
    Ok(())
}

fn is_privileged(auxiliary: &[u8]) -> bool {
    auxiliary.chunks_exact(16).any(|entry| {
        let entry = Fields(entry);
        entry.u64(0) == libc::AT_SECURE && entry.u64(8) != 0
    })
}

/// The recorder's answer.
fn begin(
    memory: &Memory,
    code: &Code,
    held: &mut Held<'_>,
    library: &Path,
    directory: &Path,
) -> Result<i32, Refusal> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let area = held.call(
        code.libc.mmap,
        &[0, AREA_BYTES, protection, flags, u64::MAX, 0],
    )?;
    if area > u64::MAX - 4096 {
        return Err(Refusal::Unfit);
    }
    held.stack = area + AREA_BYTES;
    let answer = load(memory, code, held, library, area).and_then(|loaded| {
        write_path(memory, area, directory)?;
        Ok(held.call(loaded.attach, &[area])? as i32)
    });
    held.stack = 0;
    held.call(code.libc.munmap, &[area, AREA_BYTES])?;
    answer
}

fn load(
    memory: &Memory,
    code: &Code,
    held: &mut Held<'_>,
    library: &Path,
    area: u64,
) -> Result<Loaded, Refusal> {
    if let Some(loaded) = code.recorder {
        return Ok(loaded);
    }
    write_path(memory, area, library)?;
    if held.call(code.libc.dlopen, &[area, libc::RTLD_NOW as u64])? == 0 {
        let words = held.call(code.libc.dlerror, &[])?;
        return Err(Refusal::NotLoaded(text(memory, words)));
    }
    let loaded = Loaded::find(memory, library)?;
    loaded.ok_or_else(|| Refusal::NotLoaded("it is another file there".to_owned()))
}

fn write_path(memory: &Memory, at: u64, path: &Path) -> Result<(), Refusal> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    bytes.push(0);
    Ok(memory.write(at, &bytes)?)
}

/// A C string of the process's.
fn text(memory: &Memory, at: u64) -> String {
    const MOST: u64 = 500;
    let bytes = (at..at + MOST).map_while(|at| {
        let mut byte = [0];
        memory.read(at, &mut byte).ok()?;
        (byte[0] != 0).then_some(byte[0])
    });
    larder_base::printable::escape_bytes(&bytes.collect::<Vec<u8>>())
}

impl From<Obstacle> for Refusal {
    fn from(obstacle: Obstacle) -> Self {
        Self::Obstacle(obstacle)
    }
}

impl Refusal {
    pub fn failure(self, id: u32) -> Failure {
        LiveError::Refusal { id, refusal: self }.into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Obstacle(obstacle) => return obstacle.fmt(f),
            Self::Own => "it is this tool: name another",
            Self::NotDynamic => {
                "it is statically linked, or not a program: record it from its start, dynamically linked"
            }
            Self::NotGlibc => "its libc is not glibc, or was replaced since it started: restart it",
            Self::OldLibc => {
                "its glibc is older than 2.34: record it from its start by `larder record -- COMMAND`"
            }
            Self::Privileged => "it runs with more rights than its user: the recorder stays out",
            Self::Filtered => {
                "it filters its system calls, and might be ended by one of the recorder's: record it from its start"
            }
            Self::Elsewhere(path) => {
                let path = larder_base::printable::name(path);
                return write!(
                    f,
                    "{path} is not there in its file system: run the tool in its container"
                );
            }
            Self::OtherRecorder => {
                "the recorder of another build is loaded in it: use the larder of that build"
            }
            Self::Taken => "it is recorded already",
            Self::Standing => "it is stopped by a signal: let it go on by `kill -CONT`",
            Self::NeverSafe => {
                "no thread of it came to a place where the recorder can be loaded, within 10 seconds: try again"
            }
            Self::Hangs(thread) => {
                return write!(f, "its thread {thread} did not load the recorder within 20 seconds");
            }
            Self::Crashed => "a fault ended the loading of the recorder; the process goes on without",
            Self::NotLoaded(words) => {
                return write!(f, "its loader does not load the recorder: {words}");
            }
            Self::NotWritten(errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                let reason = larder_base::target::reason(&error);
                return write!(
                    f,
                    "it cannot write into the trace directory: {reason}: name one with -o that its user can write"
                );
            }
            Self::Unfit => "the recorder cannot start in it: it is privileged, or out of memory",
        })
    }
}
