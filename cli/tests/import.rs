//! What other tools recorded, imported: the trace says what the source says, and bad input leaves
//! nothing behind.

use std::fs;
use std::path::Path;

use crate::common::*;
use serde_json::Value;

const LOG: &str = "\
MEM lib/a.c:10 malloc(40) = 0x55d0
MEM lib/a.c:20 calloc(2,8) = 0x55e0
MEM lib/b.c:30 realloc(0x55d0, 100) = 0x55f0
MEM lib/b.c:31 malloc(7) = (nil)
FD lib/b.c:31 socket() = 5
MEM lib/b.c:33 strdup(0x7ff1) (6) = 0x55d0
MEM lib/b.c:40 free(0x55e0)
MEM lib/b.c:41 free(0x99)
";

/// Imports a file with these options; the output, and the report on the trace if there is one.
fn import(
    directory: &Path,
    text: impl AsRef<[u8]>,
    options: &[&str],
) -> (std::process::Output, Value) {
    let (input, trace) = (directory.join("input"), directory.join("t.trace"));
    fs::write(&input, text).unwrap();
    let done = output(
        bare_larder()
            .arg("import")
            .arg(input)
            .args(options)
            .arg("-o")
            .arg(&trace),
    );
    if !trace.exists() {
        return (done, Value::Null);
    }
    let report = output(bare_larder().arg("report").arg(&trace).arg("--json"));
    assert_eq!((code(&report), stderr(&report).as_str()), (0, ""));
    (done, serde_json::from_slice(&report.stdout).unwrap())
}

#[test]
fn a_memory_debug_log_has_its_counters_and_source_lines() {
    let directory = temporary();
    let (done, report) = import(directory.path(), LOG, &[]);
    assert_eq!(code(&done), 0);
    assert!(
        stderr(&done).contains(": 7 calls; see it"),
        "{}",
        stderr(&done)
    );
    let counters = &report["counters"];
    for (name, value) in [
        ("mallocs", 1),
        ("callocs", 1),
        ("reallocs", 1),
        ("strdups", 1),
        ("allocations", 4),
        ("peak_bytes", 122),
        ("total_bytes", 162),
        ("live_bytes", 106),
        ("failed", 1),
        ("unknown_frees", 1),
    ] {
        assert_eq!(counters[name], value, "{name}");
    }
    let sites = report["sites"].as_array().unwrap();
    let bytes = |file: &str, line: u64| {
        let site = sites
            .iter()
            .find(|site| site["file"] == file && site["line"] == line);
        site.unwrap_or_else(|| panic!("no site {file}:{line}"))["bytes"].clone()
    };
    assert_eq!(bytes("lib/b.c", 30), 100);
    assert_eq!(bytes("lib/a.c", 20), 16);
    assert_eq!(report["losses"]["complete"], true);
}

#[test]
fn collapsed_stacks_keep_their_order_and_counts() {
    let directory = temporary();
    let text = "main;parse;alloc node 3\nmain;parse 2\n\nrubbish\n";
    let (done, report) = import(directory.path(), text, &["--format", "collapsed"]);
    assert_eq!(code(&done), 0);
    assert!(
        stderr(&done).contains("1 line not understood"),
        "{}",
        stderr(&done)
    );
    assert_eq!(report["counters"]["mallocs"], 5);
    assert_eq!(report["sites"][0]["function"], "alloc node");
    assert_eq!(report["sites"][0]["calls"], 3);
}

#[test]
fn what_cannot_be_imported_leaves_nothing_behind() {
    let many = format!("main {}\n", u64::MAX);
    for (text, options, words) in [
        ("#!/bin/sh\n", &[][..], "not a memory-debug log"),
        ("", &["--format", "collapsed"], "holds no collapsed stack"),
        (
            many.as_str(),
            &["--format", "collapsed"],
            "divide the counts",
        ),
    ] {
        let directory = temporary();
        let (done, _) = import(directory.path(), text, options);
        assert_fails(&done, 125, &[words]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{text}");
    }
}

#[test]
fn a_directory_that_exists_is_left_alone() {
    let directory = temporary();
    fs::create_dir(directory.path().join("t.trace")).unwrap();
    fs::write(directory.path().join("input"), LOG).unwrap();
    let done = output(
        bare_larder()
            .current_dir(directory.path())
            .args(["import", "input", "-o", "t.trace"]),
    );
    assert_fails(&done, 125, &["t.trace", "exists"]);
}

#[test]
fn hostile_names_are_shown_not_sent() {
    let directory = temporary();
    let log = format!("{LOG}MEM \u{1b}[2J.c:1 malloc(10000) = 0x9\n");
    import(directory.path(), log, &[]);
    let report = output(
        bare_larder()
            .arg("report")
            .arg(directory.path().join("t.trace")),
    );
    assert!(stdout(&report).contains("x1b[2J.c:1") && !stdout(&report).contains('\u{1b}'));
}

const HEAPTRACK: &str = "\
v 10400 3
X ./app
s 8 /bin/app
s 4 main
s 6 /a/a.c
s 5 g() x
i 401000 1 2 3 9
i 402000 1 4 3 5 2 3 a
i 403000 1
t 1 0
t 2 1
t 3 1
a 20 2
a 5 3
+ 0
+ 0
c 1f
- 0
+ 1
R 100
- 1
- 1
? what
# strings: 4
";

#[test]
fn a_file_of_heaptrack_has_its_stacks_counts_and_peak() {
    let directory = temporary();
    let (done, report) = import(directory.path(), HEAPTRACK, &["--format", "heaptrack"]);
    assert_eq!(code(&done), 0, "{}", stderr(&done));
    assert!(
        stderr(&done).contains("2 lines not understood"),
        "{}",
        stderr(&done)
    );
    let counters = &report["counters"];
    for (name, value) in [
        ("allocations", 3),
        ("frees", 2),
        ("peak_bytes", 64),
        ("total_bytes", 69),
        ("live_bytes", 32),
    ] {
        assert_eq!(counters[name], value, "{name}");
    }
    let site = &report["sites"][0];
    assert_eq!(
        (&site["function"], &site["line"], &site["calls"]),
        (&"g() x".into(), &5.into(), &2.into())
    );
    let stack = site["stack"].as_array().unwrap();
    let names: Vec<&str> = stack
        .iter()
        .filter_map(|frame| frame["function"].as_str())
        .collect();
    assert_eq!(names, ["g() x", "main", "main"]);
}

#[test]
fn what_is_no_file_of_heaptrack_is_refused() {
    for (text, words) in [
        ("", "not a file of heaptrack"),
        ("MEM a.c:1 free(0x1)\n", "not a file of heaptrack"),
        ("v 10200 2\n", "version 2"),
        ("\u{1f}", "not a file of heaptrack"),
    ] {
        let directory = temporary();
        let (done, _) = import(directory.path(), text, &["--format", "heaptrack"]);
        assert_fails(&done, 125, &[words]);
    }
}
