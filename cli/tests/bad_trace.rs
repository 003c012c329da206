//! Traces that are missing, empty, cut, flipped, of a later version, or not to be read: one line
//! that says what and where, never a panic, and what is whole is still analysed.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::running::ended_if_it_hangs;
use crate::common::*;
use larder_trace::AllocCall;
use larder_trace::call::Call;
use larder_trace::codec::Class;
use larder_trace::writer::{About, Stack, Writer, WrittenCall};
use tempfile::TempDir;

const SOURCE: &str = r#"
#include <pthread.h>
#include <stdlib.h>
static void *work(void *unused) {
    for (int i = 0; i < 15000; i++) free(malloc(i % 100 + 1));
    return unused;
}
int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
"#;

/// One recorded process image: its directory, its file, and the file's bytes.
fn recorded() -> (TempDir, PathBuf, Vec<u8>) {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "two.c",
        SOURCE,
        &["-g", "-O0", "-pthread"],
    );
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let file = fs::read_dir(&trace)
        .unwrap()
        .next()
        .expect("a file")
        .unwrap()
        .path();
    assert_eq!(file.extension().unwrap(), "ltrace");
    let bytes = fs::read(&file).unwrap();
    (directory, file, bytes)
}

fn report(path: &Path) -> std::process::Output {
    output(larder().arg("report").arg(path).arg("--json"))
}

#[test]
fn what_is_not_there_or_holds_nothing() {
    let directory = temporary();
    assert_fails(
        &report(&directory.path().join("gone")),
        125,
        &["no such file", "check the path"],
    );
    assert_fails(&report(directory.path()), 125, &["no .ltrace file"]);
}

/// Many sites at the end of one deep stack: a chain of its own for each would take gigabytes.
#[test]
fn deep_stacks_take_memory_once() {
    const DEPTH: u64 = 6000;
    const SITES: u64 = 6000;
    let directory = temporary();
    let path = directory.path().join("1-0.ltrace");
    let about = About {
        pid: 1,
        executable: b"/bin/deep",
        argv: &[b"deep"],
        start_wall_ns: 1,
    };
    let mut writer = Writer::new(File::create(&path).unwrap(), &about).unwrap();
    let callers = (0..DEPTH).map(|frame| 0x10_0000 + 16 * frame);
    let deep = callers.fold(Stack::EMPTY, |stack, at| writer.stack(stack, at));
    for site in 0..SITES {
        let call = WrittenCall {
            call: Call::Alloc(AllocCall::Malloc),
            class: Class::Alloc,
            stack: writer.stack(deep, 0x1000_0000 + 16 * site),
            time: site + 1,
            address: 64 * (site + 1),
            size: 8,
            extra: 0,
            old: 0,
        };
        writer.call(&call).unwrap();
    }
    writer.finish().unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    let limited = output(
        Command::new("bash")
            .args(["-c", "ulimit -v 1000000; exec \"$0\" report \"$1\""])
            .arg(env!("CARGO_BIN_EXE_larder"))
            .arg(&path),
    );
    assert_success(&limited);
    let text = stdout(&limited);
    assert!(text.contains("Mallocs: 6000\n"), "{text}");
}

#[test]
fn an_empty_file() {
    let directory = temporary();
    let file = directory.path().join("1-0.ltrace");
    fs::write(&file, b"").unwrap();
    assert_fails(&report(&file), 125, &["1-0.ltrace", "empty"]);
    assert_fails(&report(directory.path()), 125, &["1-0.ltrace", "empty"]);
}

#[test]
fn what_is_no_trace() {
    let directory = temporary();
    let file = directory.path().join("1-0.ltrace");
    fs::write(&file, "a text that has nothing to do with it\n".repeat(300)).unwrap();
    assert_fails(&report(&file), 125, &["not a trace", "offset 0"]);
    let odd = directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"\x1b]0;title\x07\xff.ltrace"));
    fs::write(&odd, "no").unwrap();
    let refused = report(&odd);
    assert_fails(&refused, 125, &["not a trace", "\\x1b]0;title\\x07"]);
}

#[test]
fn a_later_version() {
    let (_directory, file, mut bytes) = recorded();
    bytes[8..10].copy_from_slice(&99u16.to_le_bytes());
    fs::write(&file, &bytes).unwrap();
    assert_fails(&report(&file), 125, &["format 99", "later"]);
}

#[test]
fn a_header_that_is_damaged() {
    let (_directory, file, mut bytes) = recorded();
    bytes[41] ^= 0x10;
    fs::write(&file, &bytes).unwrap();
    assert_fails(&report(&file), 125, &["header", "offset"]);
}

/// Exit 0 with at least this many allocations, or 125 with one line: nothing else may happen.
#[track_caller]
fn assert_survives(file: &Path, what: &str) -> Option<serde_json::Value> {
    let reported = report(file);
    let text = stderr(&reported);
    assert!(text.lines().count() <= 1, "{what}: {text}");
    match code(&reported) {
        0 => {
            Some(serde_json::from_slice(&reported.stdout).unwrap_or_else(|e| panic!("{what}: {e}")))
        }
        125 => None,
        other => panic!("{what}: exit code {other}: {text}"),
    }
}

#[test]
fn a_cut_trace_is_read_to_the_last_whole_chunk_and_the_loss_is_reported() {
    let (_directory, file, bytes) = recorded();
    let whole = report_json(&file, &[])["counters"]["allocations"]
        .as_u64()
        .unwrap();
    let mut last = 0;
    for step in 1..12 {
        let length = bytes.len() * step / 12;
        fs::write(&file, &bytes[..length]).unwrap();
        let Some(report) = assert_survives(&file, &format!("cut at {length}")) else {
            continue;
        };
        let allocations = report["counters"]["allocations"].as_u64().unwrap();
        assert!(
            allocations >= last,
            "a longer piece of the trace gave less at {length}"
        );
        assert!(allocations <= whole);
        if allocations < whole {
            let losses = &report["losses"];
            let reported =
                losses["complete"] == false || report["processes"][0]["end"] == "not seen";
            assert!(reported, "{length}: {losses:#}");
        }
        last = allocations;
    }
    assert!(last > 0, "no cut left anything to read");
}

#[test]
fn a_flipped_byte_costs_a_chunk_at_most_and_is_reported_with_file_and_offset() {
    let (_directory, file, bytes) = recorded();
    let mut reported = 0;
    // All over the file, much of which may be unused, and within a chunk.
    let chunk = bytes.windows(4).position(|w| w == b"LCHK").unwrap();
    let places = (0..16).map(|step| bytes.len() * step / 16);
    for at in places.chain([8, 24, 100].map(|offset| chunk + offset)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        fs::write(&file, &flipped).unwrap();
        let Some(report) = assert_survives(&file, &format!("flipped at {at}")) else {
            continue;
        };
        if report["losses"]["damaged_parts"].as_u64().unwrap() > 0 {
            reported += 1;
            let message = report["losses"]["messages"][0].as_str().unwrap();
            assert!(
                message.contains(".ltrace") && message.contains("offset"),
                "{message}"
            );
        }
    }
    assert!(reported > 0, "no flip was noticed");
}

#[test]
fn the_warning_of_a_loss_is_one_line_on_stderr_and_at_the_top_of_the_report() {
    let (_directory, file, bytes) = recorded();
    // In the middle of the file lie the chunks of the calls.
    let mut found = false;
    for at in (bytes.len() / 4..bytes.len() * 3 / 4).step_by(bytes.len() / 40 + 1) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xff;
        fs::write(&file, &flipped).unwrap();
        let reported = output(larder().arg("report").arg(&file));
        if code(&reported) != 0 || stderr(&reported).is_empty() {
            continue;
        }
        found = true;
        let warning = stderr(&reported);
        assert!(warning.starts_with("larder: warning: "), "{warning}");
        let text = stdout(&reported);
        let top = text.split("Mallocs:").next().unwrap();
        assert!(top.contains("warning: "), "{top}");
    }
    assert!(found, "no flip led to a warning");
}

/// Where the header counts lost calls (of handlers) and incomplete stacks.
const LOST_SLOT: usize = 256 + 7 * 8;
const INCOMPLETE_SLOT: usize = 256 + 9 * 8;

#[test]
fn every_command_tells_of_lost_calls_and_incomplete_stacks() {
    let (directory, file, mut bytes) = recorded();
    bytes[LOST_SLOT..LOST_SLOT + 8].copy_from_slice(&3u64.to_le_bytes());
    bytes[INCOMPLETE_SLOT..INCOMPLETE_SLOT + 8].copy_from_slice(&7u64.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let trace = file.to_str().unwrap();
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["report"],
        vec!["report", "--json"],
        vec!["advise"],
        vec!["advise", "--json"],
        vec!["diff", trace],
        vec!["diff", "--json", trace],
        vec!["html"],
        vec!["flamegraph"],
        vec!["timeline"],
    ];
    let formats = [
        "pprof",
        "collapsed",
        "speedscope",
        "dhat",
        "parquet",
        "json",
        "memdebug",
    ];
    commands.extend(formats.map(|format| vec!["export", "--format", format]));
    for (number, words) in commands.iter().enumerate() {
        let out = directory.path().join(format!("out-{number}"));
        let mut command = larder();
        command.args(words).arg(trace);
        if ["html", "flamegraph", "timeline", "export"].contains(&words[0]) {
            command.arg("-o").arg(out);
        }
        let done = output(&mut command);
        assert_success(&done);
        let said = stderr(&done);
        for reported in ["3 calls not recorded", "7 calls whose stack is incomplete"] {
            assert_eq!(
                said.matches(reported).count(),
                if words[0] == "diff" { 2 } else { 1 },
                "{words:?}: {said}"
            );
        }
    }
}

#[test]
fn calls_in_a_damaged_part_are_reported_once_and_not_as_not_recorded() {
    let (_directory, file, bytes) = recorded();
    // Much of a short trace is holes, where damage costs nothing.
    let in_use: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    let mut losses = 0;
    for step in 0..10 {
        let mut damaged = bytes.clone();
        match step {
            0 => damaged.truncate(bytes.len() - 1),
            _ => damaged[in_use[in_use.len() * step / 10]] ^= 0x55,
        }
        fs::write(&file, &damaged).unwrap();
        let reported = report(&file);
        let text = stderr(&reported);
        assert!(!text.contains("not recorded"), "{step}: {text}");
        if code(&reported) != 0 || !text.contains("events lost") {
            continue;
        }
        losses += 1;
        let report: serde_json::Value = serde_json::from_slice(&reported.stdout).unwrap();
        assert!(report["losses"]["calls"].as_u64().unwrap() > 0);
        assert!(
            !report["losses"]["messages"]
                .to_string()
                .contains("not recorded")
        );
    }
    assert!(losses > 0, "no damage cost a call");
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let (_directory, file, _) = recorded();
    let bad = file.with_file_name("77-0.ltrace");
    fs::write(&bad, b"").unwrap();
    let reported = report(file.parent().unwrap());
    assert_success(&reported);
    assert!(
        stderr(&reported).contains("77-0.ltrace: empty"),
        "{}",
        stderr(&reported)
    );
    let report: serde_json::Value = serde_json::from_slice(&reported.stdout).unwrap();
    assert_eq!(
        report["losses"]["unreadable_files"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert!(report["counters"]["mallocs"].as_u64().unwrap() >= 30_000);
}

#[test]
fn a_trace_that_may_not_be_read() {
    let (directory, file, _) = recorded();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = directory.path().join("larder");
    copy_program(env!("CARGO_BIN_EXE_larder"), &tool);
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let refused = output(without_rights(&tool).arg("report").arg(&file));
    assert_fails(&refused, 125, &["ermission denied"]);
}

#[test]
fn a_process_that_is_not_in_the_trace() {
    let (_directory, file, _) = recorded();
    let refused = output(larder().arg("report").arg(&file).args(["--pid", "1"]));
    assert_fails(&refused, 125, &["no process 1", "it has"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_directory, file, _) = recorded();
    let script = "\"$0\" report \"$1\" --json | head -n 1";
    let reported = output(
        std::process::Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_larder")])
            .arg(&file),
    );
    assert_success(&reported);
    assert_eq!(stdout(&reported), "{\n");
    assert_eq!(stderr(&reported), "");
}

/// A report that is ended, with exit code 124, if it hangs.
fn report_in_time(path: &Path) -> std::process::Output {
    let tool = env!("CARGO_BIN_EXE_larder");
    output(ended_if_it_hangs(tool).args(["report", "--json"]).arg(path))
}

fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let (_directory, file, _) = recorded();
    let fifo = file.with_file_name("95-0.ltrace");
    make_fifo(&fifo);
    fs::create_dir(file.with_file_name("96-0.ltrace")).unwrap();
    for path in [&fifo, Path::new("/dev/zero"), Path::new("/dev/null")] {
        assert_fails(&report_in_time(path), 125, &["not a regular file; give"]);
    }
    let reported = report_in_time(file.parent().unwrap());
    assert_success(&reported);
    let report: serde_json::Value = serde_json::from_slice(&reported.stdout).unwrap();
    let unreadable = report["losses"]["unreadable_files"].as_array().unwrap();
    assert_eq!(unreadable.len(), 2, "{unreadable:?}");
    for (found, name) in unreadable.iter().zip(["95-0.ltrace", "96-0.ltrace"]) {
        let found = found.as_str().unwrap();
        assert!(
            found.contains(name) && found.contains("not a regular file"),
            "{found}"
        );
    }
}

#[test]
fn a_module_whose_path_is_a_fifo_now_has_no_symbols() {
    let (directory, file, _) = recorded();
    let program = directory.path().join("two");
    fs::remove_file(&program).unwrap();
    make_fifo(&program);
    let reported = report_in_time(&file);
    assert_success(&reported);
    let report: serde_json::Value = serde_json::from_slice(&reported.stdout).unwrap();
    let problems = report["symbols"].as_array().unwrap();
    let found = problems.iter().find(|problem| {
        problem["module"]
            .as_str()
            .is_some_and(|path| path.ends_with("/two"))
    });
    assert_eq!(found.unwrap()["problem"], "file not found", "{problems:?}");
}
