//! Are Larder's libraries there, do they load, and can they record? The tool tries it: it starts itself
//! with them preloaded.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_base::libraries::{LIBRARY_VARIABLE, Library, LibraryNotFound, LibraryPath};
use larder_base::preload::TRACE_DIRECTORY_VARIABLE;
use larder_base::preload::{PRELOAD_VARIABLE, preload_value};
use larder_base::printable;
use larder_base::target::reason;
use larder_trace::{Trace, trace_files};

use super::{Finding, Health};

pub fn findings() -> Vec<Finding> {
    let path = LibraryPath::from_environment();
    let allocator = path.find(Library::Allocator);
    let recorder = path.find(Library::Recorder);
    let mut findings = vec![
        library("allocator", &allocator),
        library("recorder", &recorder),
    ];
    if let Ok(recorder) = &recorder {
        findings.push(trial_recording(recorder));
    }
    findings.extend(library_variable());
    findings.extend(existing_preload());
    findings
}

fn library(check: &'static str, found: &Result<PathBuf, LibraryNotFound>) -> Finding {
    let path = match found {
        Ok(path) => path,
        Err(error) => {
            let message = error.to_string();
            let (what, remedy) = message.split_once(": ").unwrap_or((&message, ""));
            return Finding::new(check, Health::Missing, what, remedy);
        }
    };
    let name = printable::name(path);
    match loads(path) {
        Ok(()) => Finding::ok(check, format!("{name}, loads")),
        Err(why) => Finding::new(
            check,
            Health::Missing,
            format!("{name} does not load: {why}"),
            "build Larder on this machine: `make build`",
        ),
    }
}

/// Starts this tool with the library preloaded and looks for it in the memory map.
fn loads(library: &Path) -> Result<(), String> {
    let preload = preload_value(&[library.to_owned()]).map_err(|failure| failure.message)?;
    let output = probe(&preload)?.output().map_err(|error| reason(&error))?;
    let maps = String::from_utf8_lossy(&output.stdout);
    // A package has a link to it here, and the map has the file.
    let file = fs::canonicalize(library).map_err(|error| reason(&error))?;
    if maps.contains(&*file.to_string_lossy()) {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    match complaint.lines().next() {
        Some(line) => Err(printable::escape(line).into_owned()),
        None if output.status.success() => Err("the loader ignored it".to_owned()),
        None => Err(format!("the program ended with {}", output.status)),
    }
}

fn probe(preload: &OsStr) -> Result<Command, String> {
    let own = env::current_exe().map_err(|error| reason(&error))?;
    let mut command = Command::new(own);
    command
        .args(["doctor", "--print-maps"])
        .env(PRELOAD_VARIABLE, preload)
        .stdin(Stdio::null());
    Ok(command)
}

/// Records a short run of this tool and reads the trace.
fn trial_recording(recorder: &Path) -> Finding {
    const CHECK: &str = "trial recording";
    let directory = env::temp_dir().join(format!("larder-doctor-{}", std::process::id()));
    let result = fs::create_dir(&directory)
        .map_err(|error| format!("{}: {}", printable::name(&directory), reason(&error)))
        .and_then(|()| record_probe(recorder, &directory));
    let _ = fs::remove_dir_all(&directory);
    match result {
        Ok(0) => Finding::new(
            CHECK,
            Health::Missing,
            "a trace was written, but no call is in it",
            "the findings below may name the cause",
        ),
        Ok(events) => Finding::ok(CHECK, format!("{events} events recorded and read")),
        Err(why) => Finding::new(
            CHECK,
            Health::Missing,
            why,
            "the findings below may name the cause",
        ),
    }
}

fn record_probe(recorder: &Path, directory: &Path) -> Result<u64, String> {
    let preload = preload_value(&[recorder.to_owned()]).map_err(|failure| failure.message)?;
    let output = probe(&preload)?
        .env(TRACE_DIRECTORY_VARIABLE, directory)
        .output()
        .map_err(|error| reason(&error))?;
    if !output.status.success() {
        return Err(format!("the recorded program ended with {}", output.status));
    }
    let describe =
        |error: larder_trace::TraceError| printable::escape(&error.to_string()).into_owned();
    let files = trace_files(directory).map_err(describe)?;
    files.iter().try_fold(0, |sum, file| {
        Ok(sum + Trace::open(file).map_err(describe)?.event_count())
    })
}

fn library_variable() -> Option<Finding> {
    let value = env::var_os(LIBRARY_VARIABLE)?;
    let name = printable::name(&value);
    if Path::new(&value).is_dir() {
        return Some(Finding::ok(LIBRARY_VARIABLE, name));
    }
    Some(Finding::new(
        LIBRARY_VARIABLE,
        Health::Warning,
        format!("{name} is not a directory"),
        format!("unset {LIBRARY_VARIABLE}, or set it to the directory that holds liblarder.so"),
    ))
}

fn existing_preload() -> Option<Finding> {
    let value = env::var_os(PRELOAD_VARIABLE).filter(|value| !value.is_empty())?;
    Some(Finding::new(
        PRELOAD_VARIABLE,
        Health::Note,
        format!(
            "{} is preloaded already; it is kept, behind Larder",
            printable::name(&value)
        ),
        "",
    ))
}
