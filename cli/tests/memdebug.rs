//! `larder memdebug` on logs that are whole, faulty, cut, hostile and none: what it prints, and
//! how it ends. That its counters are those of curl's own analyser is asserted by tests/memdebug.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::*;
use tempfile::TempDir;

const WHOLE: &str = "\
MEM lib/a.c:10 malloc(40) = 0x55d0
MEM lib/a.c:20 calloc(2,8) = 0x55e0
MEM lib/b.c:30 realloc(0x55d0, 100) = 0x55f0
FD lib/b.c:31 socket() = 5
FD lib/b.c:32 sclose(5)
MEM lib/b.c:40 free(0x55e0)
MEM lib/b.c:41 free(0x55f0)
";

const COUNTERS: &str = "\
Mallocs: 1
Reallocs: 1
Callocs: 1
Strdups: 0
Wcsdups: 0
Frees: 2
Sockets: 1
Allocations: 3
Operations: 4
Maximum allocated: 116
Total allocated: 156
";

fn log(text: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let directory = temporary();
    let path = directory.path().join("curl.log");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn memdebug(text: impl AsRef<[u8]>, options: &[&str]) -> std::process::Output {
    let (_directory, path) = log(text);
    output(bare_larder().arg("memdebug").arg(path).args(options))
}

#[test]
fn a_log_without_faults_is_counted() {
    let done = memdebug(WHOLE, &[]);
    assert_eq!((code(&done), stdout(&done).as_str()), (0, COUNTERS));
    assert_eq!(stderr(&done), "");
    let done = memdebug(WHOLE, &["--quiet"]);
    assert_eq!((code(&done), stdout(&done).as_str()), (0, ""));
    let done = memdebug("", &[]);
    assert_eq!(code(&done), 0);
    assert!(stdout(&done).ends_with("\nTotal allocated: 0\n"));
}

#[test]
fn faults_are_reported_before_the_counters_and_have_an_exit_code() {
    let faulty = WHOLE.replace("MEM lib/b.c:40 free(0x55e0)", "MEM lib/b.c:40 free(0x55d1)");
    let done = memdebug(&faulty, &[]);
    assert_eq!(code(&done), 1);
    let expected = "FREE ERROR: No memory allocated: MEM lib/b.c:40 free(0x55d1)\n\
        Leak detected: memory still allocated: 16 bytes\n\
        At 55e0, there is 16 bytes.\n allocated by lib/a.c:20\nMallocs: 1\n";
    assert!(stdout(&done).starts_with(expected), "{}", stdout(&done));
    let done = memdebug(&faulty, &["--style", "2017", "--quiet"]);
    assert!(stdout(&done).contains("At 55e0, there's 16 bytes.\n"));
}

#[test]
fn a_cut_last_line_is_left_out_and_reported() {
    let done = memdebug(&WHOLE[..WHOLE.len() - 4], &["--quiet"]);
    assert_eq!(code(&done), 1);
    let offset = WHOLE.find("MEM lib/b.c:41").unwrap();
    assert!(
        stderr(&done).contains(&format!("at offset {offset},")),
        "{}",
        stderr(&done)
    );
    assert!(stdout(&done).contains("there is 100 bytes"));
}

#[test]
fn a_line_cut_at_curls_length_leaves_the_next_one_whole() {
    let long = format!("FILE lib/a.c:1 fopen(\"{}", "x".repeat(2000));
    let done = memdebug(format!("{}{WHOLE}", &long[..1023]), &[]);
    assert_eq!((code(&done), stdout(&done).as_str()), (0, COUNTERS));
    assert!(
        stderr(&done).contains("1 line cut at 1023 bytes"),
        "{}",
        stderr(&done)
    );
}

#[test]
fn the_refused_allocation_is_found() {
    let limited = format!("{WHOLE}LIMIT lib/c.c:9 strdup reached memlimit\n");
    let done = memdebug(limited, &["--limit"]);
    assert_eq!(code(&done), 0);
    assert_eq!(stdout(&done), "LIMIT lib/c.c:9 strdup reached memlimit\n");
}

#[test]
fn source_lines_are_ranked() {
    let done = memdebug(WHOLE, &["--sites", "--sort", "bytes", "--top", "1"]);
    let text = stdout(&done);
    let table = text.strip_prefix(COUNTERS).expect("the counters first");
    assert!(
        table.contains(
            "           1              100            100          100          100  lib/b.c:30\n"
        ),
        "{table}"
    );
    assert!(
        !table.contains("lib/a.c:10") && table.contains("2 more"),
        "{table}"
    );
}

#[test]
fn json_has_counters_messages_and_sites() {
    let done = memdebug(WHOLE.replace("free(0x55e0)", "free(0x1)"), &["--json"]);
    assert_eq!(code(&done), 1);
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["counters"]["maximum_allocated"], 116);
    assert_eq!(document["leaked_bytes"], 16);
    assert_eq!(document["message_count"], 3);
    assert_eq!(document["sites"][0]["file"], "lib/a.c");
    assert_eq!(document["sites"][0]["line"], 10);
}

#[test]
fn names_reach_no_terminal_as_commands() {
    let hostile = format!("{WHOLE}MEM \u{1b}[2J:1 malloc(1) = 0x9\n\u{1b}]0;x\u{7}\n");
    for options in [&[][..], &["--json"], &["--sites"]] {
        let done = memdebug(&hostile, options);
        assert_eq!(code(&done), 1);
        assert!(!stdout(&done).contains('\u{1b}') && stdout(&done).contains("x1b[2J:1"));
    }
}

#[test]
fn what_is_no_log_is_refused_in_one_line() {
    assert_fails(
        &memdebug("#!/bin/sh\necho hello\n", &[]),
        125,
        &["not a memory-debug log"],
    );
    assert_fails(
        &memdebug([0u8; 5000], &[]),
        125,
        &["not a memory-debug log"],
    );
    let directory = temporary();
    let done = output(bare_larder().arg("memdebug").arg(directory.path()));
    assert_fails(&done, 125, &["directory"]);
    let done = output(
        bare_larder()
            .arg("memdebug")
            .arg(directory.path().join("none")),
    );
    assert_fails(&done, 125, &["none", "readable log"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (_directory, path) = log("MEM a.c:1 free(0x1)\n".repeat(50_000));
    let mut child = bare_larder()
        .arg("memdebug")
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert_eq!((code(&done), stderr(&done).as_str()), (1, ""));
}
