//! What the end-to-end tests share: the built tool with the staged libraries, and compilers.
//!
//! `LARDER_OUT` names the staged tree (default: `out` at the root of the repository). A missing
//! tool or library fails the test that needs it.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod browser;
pub mod clock;
pub mod diff;
pub mod http;
pub mod running;
pub mod written;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use tempfile::TempDir;

/// The staged libraries' directory.
pub fn library_directory() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let out = std::env::var_os("LARDER_OUT").unwrap_or_else(|| "out".into());
    let out = root.join(out);
    let lib = out.join("lib");
    for name in ["liblarder.so", "liblarder_record.so"] {
        assert!(
            lib.join(name).is_file(),
            "{name} is not in {}: run `make build`, or set LARDER_OUT to a staged tree",
            lib.display()
        );
    }
    lib.canonicalize().expect("the library directory")
}

/// Whether all is built: `make test` has staged the libraries, and its cargo builds the programs before
/// it runs a test.
fn is_built(folder: &Path) -> bool {
    folder.ends_with("release")
}

/// Builds what plain `cargo test` does not build for a test, since it links none of it.
fn build(what: &[&str]) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).args(what);
    assert_success(&output(&mut cargo));
}

/// Builds the programs that the test of this name starts, as `cargo test --workspace` does: with the
/// same features, so that nothing is built twice.
fn build_for_test(name: &str, folder: &Path) {
    if !is_built(folder) {
        build(&["--workspace", "--test", name]);
    }
}

/// The tool; for tests of another package it is built now.
pub fn tool() -> &'static Path {
    static TOOL: LazyLock<PathBuf> = LazyLock::new(|| {
        let own = option_env!("CARGO_BIN_EXE_larder");
        let lab = option_env!("CARGO_BIN_EXE_larder-lab");
        match (own, lab) {
            (Some(tool), _) => tool.into(),
            (None, Some(lab)) => {
                let folder = Path::new(lab).parent().expect("a directory");
                build_for_test("commands", folder);
                folder.join("larder")
            }
            (None, None) => panic!("a package with neither program"),
        }
    });
    &TOOL
}

/// `larder-lab` beside the tool, for `larder bench` and its like; built now.
pub fn build_lab() {
    build_for_test("lab", tool().parent().expect("a directory"));
}

/// A directory with the staged allocator and the preloaded Rust libraries: the staged ones as well, or
/// for plain `cargo test` built now.
pub fn built_libraries() -> TempDir {
    let mut folder = tool().parent().expect("a directory").to_owned();
    if is_built(&folder) {
        folder = library_directory();
    } else {
        build(&[
            "-p",
            "larder-record",
            "-p",
            "larder-record-io",
            "-p",
            "larder-record-copies",
            "-p",
            "larder-record-cpu",
            "-p",
            "larder-fail",
        ]);
    }
    let directory = temporary();
    let link = |name: &str, from: &Path| {
        std::os::unix::fs::symlink(from.join(name), directory.path().join(name)).expect("a link");
    };
    link("liblarder.so", &library_directory());
    for name in [
        "liblarder_record.so",
        "liblarder_record_io.so",
        "liblarder_record_copies.so",
        "liblarder_record_cpu.so",
        "liblarder_fail.so",
    ] {
        link(name, &folder);
    }
    directory
}

/// The tool, with the libraries found and nothing else of Larder in the environment.
pub fn larder() -> Command {
    let mut command = bare_larder();
    command.env("LARDER_LIB", library_directory());
    command
}

/// The tool without libraries.
pub fn bare_larder() -> Command {
    let mut command = Command::new(tool());
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        let others = ["LD_PRELOAD", "DEBUGINFOD_URLS"];
        if name_text.starts_with("LARDER_") || others.contains(&&*name_text) {
            command.env_remove(&name);
        }
    }
    command
}

pub fn output(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The exit code, or 128 + the signal.
pub fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the tool's failure: this code, one line that has all the words, nothing on stdout.
#[track_caller]
pub fn assert_fails(output: &Output, expected: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(code(output), expected, "{text}");
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    assert!(text.starts_with("larder: error: "), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    assert_eq!(stdout(output), "");
}

#[track_caller]
pub fn assert_success(output: &Output) {
    assert_eq!(
        code(output),
        0,
        "stdout: {}\nstderr: {}",
        stdout(output),
        stderr(output)
    );
}

pub fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A copy that can be run at once. Made by a process of its own: what this one has open for writing, a
/// child that another test is starting has open as well, and no file is run that is open for writing.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to).status();
    assert!(copied.expect("cp").success(), "{}", to.display());
}

/// A program, or what is to be taken for one, that can be run at once.
#[track_caller]
pub fn write_program(path: &Path, content: &[u8]) {
    let plain = tempfile::NamedTempFile::new().expect("a file");
    fs::write(plain.path(), content).expect("written");
    copy_program(plain.path(), path);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// Compiles with gcc or g++, by the source's name.
#[track_caller]
pub fn compile(directory: &Path, source: &str, text: &str, flags: &[&str]) -> PathBuf {
    let path = directory.join(source);
    fs::write(&path, text).expect("the source");
    let program = path.with_extension("");
    let compiler = if source.ends_with(".cc") {
        "g++"
    } else {
        "gcc"
    };
    let built = Command::new(compiler)
        .args(
            ["-std=gnu++17", "-std=gnu11"]
                .iter()
                .filter(|flag| flag.contains("++") == source.ends_with(".cc")),
        )
        .arg("-o")
        .arg(&program)
        .arg(&path)
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{compiler} is needed for this test: {error}"));
    assert!(built.status.success(), "{compiler}: {}", stderr(&built));
    program
}

/// Records a program into `directory`; the trace's path.
#[track_caller]
pub fn record(directory: &Path, program: &Path, arguments: &[&str], options: &[&str]) -> PathBuf {
    let trace = directory.join("test.trace");
    let recorded = output(
        larder()
            .arg("record")
            .arg("-o")
            .arg(&trace)
            .args(options)
            .arg("--")
            .arg(program)
            .args(arguments),
    );
    assert_success(&recorded);
    trace
}

/// `larder report --json`, parsed.
#[track_caller]
pub fn report_json(trace: &Path, options: &[&str]) -> serde_json::Value {
    let reported = output(
        larder()
            .arg("report")
            .arg(trace)
            .arg("--json")
            .args(options),
    );
    assert_success(&reported);
    serde_json::from_slice(&reported.stdout).expect("JSON")
}

#[track_caller]
pub fn report_text(trace: &Path, options: &[&str]) -> String {
    let reported = output(larder().arg("report").arg(trace).args(options));
    assert_success(&reported);
    stdout(&reported)
}

/// The number of the only line that ends in `// @mark`.
#[track_caller]
pub fn line_of(source: &str, mark: &str) -> u64 {
    let end = format!("// @{mark}");
    let mut lines = source
        .lines()
        .enumerate()
        .filter(|(_, line)| line.ends_with(&end));
    let (index, _) = lines
        .next()
        .unwrap_or_else(|| panic!("no line is marked {mark}"));
    assert!(lines.next().is_none(), "several lines are marked {mark}");
    index as u64 + 1
}

/// The site of this line; there must be one at most.
#[track_caller]
pub fn site_at(report: &serde_json::Value, file: &str, line: u64) -> serde_json::Value {
    let sites = report["sites"].as_array().expect("sites");
    let mut found = sites.iter().filter(|site| {
        site["line"] == line
            && site["file"]
                .as_str()
                .is_some_and(|path| path.ends_with(file))
    });
    let site = found
        .next()
        .unwrap_or_else(|| panic!("no site at {file}:{line} in {report:#}"));
    assert!(found.next().is_none(), "two sites at {file}:{line}");
    site.clone()
}

/// Runs a command as a user without rights: as root through `setpriv`, else as we are.
pub fn without_rights(program: impl AsRef<OsStr>) -> Command {
    let root = fs::read_to_string("/proc/self/status")
        .expect("/proc")
        .lines()
        .any(|line| line.starts_with("Uid:\t0\t"));
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
    ]);
    command.arg(program);
    command
}
