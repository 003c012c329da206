//! Builds small programs, runs them under the recorder and reads the traces back.

#![allow(dead_code)] // Each test file uses a part.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use larder_trace::{
    Action, DamageCause, Event, Frame, Losses, ProcessInfo, StackId, Trace, trace_files,
};

/// The processor that programs are compiled for, and run on by qemu, if it is another one: see `tests/machines`. The
/// libraries for it are built.
fn machine() -> Option<String> {
    std::env::var("LARDER_TEST_MACHINE").ok()
}

/// Builds the recorder: for a test, cargo does not build a library that the test does not link.
pub fn recorder() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_recorder).clone()
}

fn build_recorder() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let folder = test
        .parent()
        .and_then(Path::parent)
        .expect("the test lies in target/*/deps");
    let shipped = machine().map(|m| folder.join(format!("../{m}-unknown-linux-gnu/release")));
    let folder = shipped.as_deref().unwrap_or(folder);
    // In release mode this is the shipped library.
    if !folder.ends_with("release") {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "larder-record"]);
        cargo.args([
            "--package",
            "larder-record-io",
            "--package",
            "larder-record-copies",
            "--package",
            "larder-record-cpu",
        ]);
        let built = cargo.output().expect("cargo runs");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
    }
    let library = folder.join("liblarder_record.so");
    let is_there = library.exists();
    assert!(is_there, "no {}: run `make build`", library.display());
    library
}

/// The library of wrappers, built with the recorder.
pub fn io_library() -> PathBuf {
    recorder().with_file_name("liblarder_record_io.so")
}

/// The library of wrappers of copying functions, built with the recorder.
pub fn copies_library() -> PathBuf {
    recorder().with_file_name("liblarder_record_copies.so")
}

/// The library of wrappers of functions for threads and signals, built with the recorder.
pub fn cpu_library() -> PathBuf {
    recorder().with_file_name("liblarder_record_cpu.so")
}

pub struct Bench {
    folder: tempfile::TempDir,
}

pub struct Run {
    pub output: Output,
    pub traces: Vec<Recorded>,
    pub folder: PathBuf,
}

/// A trace file, read to its end.
pub struct Recorded {
    pub process: ProcessInfo,
    pub losses: Losses,
    pub damage: Vec<DamageCause>,
    pub calls: Vec<Recording>,
    /// The names of the marks, in order, with their threads.
    pub marks: Vec<(Vec<u8>, u32)>,
    pub modules: Vec<(String, bool)>,
    pub length: u64,
    pub ns_per_tick: f64,
    /// Times never decreased.
    pub ordered: bool,
}

/// The module's file name, and the address in it to look up; innermost first.
type Frames = Rc<[(String, u64)]>;

/// A call and its stack.
#[derive(Clone, Debug)]
pub struct Recording {
    pub event: Event,
    pub frames: Frames,
    /// The same in memory, return addresses.
    pub addresses: Rc<[u64]>,
    pub complete: bool,
}

impl Bench {
    pub fn new() -> Self {
        Bench {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles with `cc` or `c++`, by the source's ending.
    pub fn build(&self, source_name: &str, source: &str, options: &[&str]) -> PathBuf {
        let file = self.path(source_name);
        std::fs::write(&file, source.trim_start()).expect("the source is written");
        let out = file.with_extension(if options.contains(&"-shared") {
            "so"
        } else {
            "bin"
        });
        let compiler = match (machine(), source_name.ends_with(".c")) {
            (None, true) => "cc".to_owned(),
            (None, false) => "c++".to_owned(),
            (Some(machine), true) => format!("{machine}-linux-gnu-gcc"),
            (Some(machine), false) => format!("{machine}-linux-gnu-g++"),
        };
        let built = Command::new(&compiler)
            .args(["-g", "-O1", "-Wall", "-pthread", "-o"])
            .args([&out, &file])
            .args(options)
            .output()
            .unwrap_or_else(|e| panic!("{compiler} cannot be run ({e}); install gcc and g++"));
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        out
    }

    pub fn run(&self, program: &Path, arguments: &[&str]) -> Run {
        self.run_with(program, arguments, |_| {})
    }

    /// Runs under the recorder, for up to a minute.
    pub fn run_with(
        &self,
        program: &Path,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Run {
        let traces = self.path("trace");
        let _ = std::fs::remove_dir_all(&traces);
        std::fs::create_dir(&traces).expect("a folder for the trace");
        self.run_into(&traces, program, arguments, prepare)
    }

    pub fn run_into(
        &self,
        traces: &Path,
        program: &Path,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Run {
        let mut command = match machine() {
            None => Command::new(program),
            Some(machine) => {
                let mut emulator = Command::new(format!("qemu-{machine}"));
                emulator.arg(program);
                emulator
            }
        };
        command
            .args(arguments)
            .env("LARDER_TRACE_DIR", traces)
            .env("LD_PRELOAD", recorder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        prepare(&mut command);
        if machine().is_some() {
            preload_in_emulator(&mut command);
        }
        let output = finish(command);
        let files = trace_files(traces).unwrap_or_default();
        let traces_read = files.iter().map(|file| read(file)).collect();
        Run {
            output,
            traces: traces_read,
            folder: traces.to_owned(),
        }
    }
}

/// Has the emulator preload what it would be given itself.
fn preload_in_emulator(command: &mut Command) {
    let preload = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
    let Some((name, Some(libraries))) = preload else {
        return;
    };
    let setting = [name, libraries].join(OsStr::new("="));
    command.env_remove("LD_PRELOAD");
    command.env("QEMU_SET_ENV", setting);
}

/// The time limit of these tests, far above what they take on a busy machine.
const HANG: Duration = Duration::from_secs(600);

/// Waits for a command, and fails the test if it hangs.
pub fn finish(mut command: Command) -> Output {
    let mut child = command.spawn().expect("the program starts");
    let id = child.id();
    let mut out = child.stdout.take().expect("piped");
    let mut err = child.stderr.take().expect("piped");
    let out = std::thread::spawn(move || drain(&mut out));
    let err = std::thread::spawn(move || drain(&mut err));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the program can be waited for") {
            break status;
        }
        if start.elapsed() > HANG {
            let stacks = Command::new("gdb")
                .args([
                    "-p",
                    &id.to_string(),
                    "-batch",
                    "-ex",
                    "thread apply all bt",
                ])
                .output();
            let _ = child.kill();
            let stacks = stacks.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
            panic!("the program hangs: {stacks:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let stdout = out.join().expect("read");
    let stderr = err.join().expect("read");
    Output {
        status,
        stdout,
        stderr,
    }
}

fn drain(from: &mut impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    bytes
}

/// The contents of one file.
pub fn read(file: &Path) -> Recorded {
    let trace = Trace::open(file).unwrap_or_else(|error| panic!("{error}"));
    let mut events = trace.events();
    let mut calls = Vec::new();
    // The calls of a stack share its names, so that a trace of millions of calls fits in memory.
    let mut named: HashMap<StackId, (Frames, Rc<[u64]>)> = HashMap::new();
    let mut marks = Vec::new();
    let mut last = 0;
    let mut ordered = true;
    while let Some(event) = events.next() {
        ordered &= event.time >= last;
        last = event.time;
        if let Action::Mark { name } = event.action {
            marks.push((events.mark_name(name).to_vec(), event.thread));
        }
        let stack = stack_of(&event);
        let stacks = events.stacks();
        let (frames, addresses) = named.entry(stack).or_insert_with(|| {
            let name = |frame: &Frame| {
                let module = frame.module.and_then(|id| trace.module(id));
                let path = module.map_or("".into(), |module| String::from_utf8_lossy(&module.path));
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                let bias = module.map_or(0, |module| module.bias);
                (name, frame.lookup_address().wrapping_sub(bias))
            };
            let addresses = stacks.frames(stack).map(|frame| frame.address);
            (
                stacks.frames(stack).map(name).collect(),
                addresses.collect(),
            )
        });
        let complete = stacks.root(stack) == StackId::COMPLETE_ROOT;
        calls.push(Recording {
            event,
            frames: Rc::clone(frames),
            addresses: Rc::clone(addresses),
            complete,
        });
    }
    Recorded {
        process: trace.process().clone(),
        losses: trace.losses(),
        damage: events.damage().iter().map(|damage| damage.cause).collect(),
        calls,
        marks,
        modules: trace
            .modules()
            .iter()
            .map(|m| {
                (
                    String::from_utf8_lossy(&m.path).into_owned(),
                    m.unloaded.is_some(),
                )
            })
            .collect(),
        length: trace.length(),
        ns_per_tick: trace.clock().ns_per_tick,
        ordered,
    }
}

fn stack_of(event: &Event) -> StackId {
    event.action.stack().unwrap_or(StackId::COMPLETE_ROOT)
}

impl Run {
    /// The trace of the only process.
    pub fn only(&self) -> &Recorded {
        assert_eq!(self.traces.len(), 1, "one process, {}", self.stderr());
        &self.traces[0]
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn succeeded(&self) -> &Self {
        let (status, stderr) = (self.output.status, self.stderr());
        assert!(status.success(), "{status}: {}{stderr}", self.stdout());
        self
    }
}

impl Recorded {
    /// Checks what every trace of a complete run has.
    pub fn assert_whole(&self) -> &Self {
        assert_eq!(self.damage, [], "damage");
        assert_eq!(self.losses.calls(), 0, "{:?}", self.losses);
        assert!(self.ordered, "times go back");
        self.assert_addresses_make_sense()
    }

    /// No block is allocated where one is live, and only live ones are freed.
    pub fn assert_addresses_make_sense(&self) -> &Self {
        let mut live = BTreeMap::new();
        for call in &self.calls {
            match call.event.action {
                Action::Alloc { address, .. } if address != 0 => {
                    let before = live.insert(address, call.event);
                    assert_eq!(before, None, "made twice: {:?}", call.event);
                }
                Action::Free { address, .. } if address != 0 => {
                    assert!(
                        live.remove(&address).is_some(),
                        "not live: {:?}",
                        call.event
                    );
                }
                Action::ReallocStart { old, .. } if old != 0 => {
                    assert!(live.remove(&old).is_some(), "not live: {:?}", call.event);
                }
                Action::ReallocEnd {
                    address, old, size, ..
                } => {
                    let lives = if address == 0 && size > 0 {
                        old
                    } else {
                        address
                    };
                    if lives != 0 {
                        let before = live.insert(lives, call.event);
                        assert_eq!(before, None, "made twice: {:?}", call.event);
                    }
                }
                _ => {}
            }
        }
        self
    }

    /// Calls whose innermost frame lies in a module of this name.
    pub fn calls_from<'a>(&'a self, module: &'a str) -> impl Iterator<Item = &'a Recording> {
        self.calls
            .iter()
            .filter(move |c| c.frames.first().is_some_and(|f| f.0 == module))
    }

    /// Calls by kind of those whose innermost frame lies in this module; of a realloc, its end.
    pub fn counts(&self, module: &str) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls_from(module) {
            let name = match call.event.action {
                Action::Alloc { call, .. } | Action::ReallocEnd { call, .. } => call.name(),
                Action::Free { call, .. } => call.name(),
                _ => continue,
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

/// Functions and lines of addresses, by binutils.
pub fn lines(program: &Path, addresses: impl IntoIterator<Item = u64>) -> Vec<(String, u32)> {
    let list: Vec<String> = addresses.into_iter().map(|a| format!("{a:#x}")).collect();
    let output = Command::new("addr2line")
        .arg("-f")
        .arg("-e")
        .arg(program)
        .args(&list)
        .output()
        .expect("addr2line cannot be run; install binutils");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<&str> = text.lines().collect();
    rows.chunks(2)
        .map(|pair| {
            let line = pair[1].rsplit(':').next().unwrap_or("");
            let digits: String = line.chars().take_while(char::is_ascii_digit).collect();
            (pair[0].to_owned(), digits.parse().unwrap_or(0))
        })
        .collect()
}

/// A preload list: the recorder and the allocator below it.
pub fn preload(below: &Path) -> OsString {
    let mut list = recorder().into_os_string();
    list.push(OsStr::new(":"));
    list.push(below);
    list
}
