//! `larder report --syscalls`: every call of a program whose calls are known, by function and by caller.

use std::fs;
use std::path::Path;

use crate::common::*;
use serde_json::{Value, json};

/// Two threads that wake each other through a pipe one byte at a time, and one of each other kind.
const WAKES: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int to[2], from[2];
static void wake(int fd) {
  if (write(fd, "x", 1) != 1) exit(1);  // @wake
}
static void sleep_until(int fd) {
  char byte;
  if (read(fd, &byte, 1) != 1) exit(2);  // @sleep
}
static void *other(void *unused) {
  for (int i = 0; i < 1000; i++) {
    sleep_until(to[0]);
    wake(from[1]);
  }
  return unused;
}
static void drain(int fd) {
  char buffer[4096];
  while (read(fd, buffer, sizeof buffer) > 0) {  // @drain
  }
  if (errno != EAGAIN) exit(3);
}
int main(void) {
  pthread_t thread;
  char text[5000];
  memset(text, 'a', sizeof text);
  signal(SIGPIPE, SIG_IGN);
  if (pipe(to) != 0 || pipe(from) != 0) return 4;
  if (pthread_create(&thread, 0, other, 0) != 0) return 5;
  for (int i = 0; i < 1000; i++) {
    wake(to[1]);
    sleep_until(from[0]);
  }
  pthread_join(thread, 0);
  for (int i = 0; i < 5; i++) {
    char buffer[4096];
    if (write(to[1], text, 20) != 20) return 10;
    if (read(to[0], buffer, sizeof buffer) != 20) return 11;  // @unfilled
  }
  fcntl(to[0], F_SETFL, O_NONBLOCK);
  for (int i = 0; i < 50; i++) {
    struct iovec two[2] = {{text, 2000}, {text, 3000}};
    if (writev(to[1], two, 2) != 5000) return 6;
    drain(to[0]);
  }
  struct pollfd wanted = {to[0], POLLIN, 0};
  for (int i = 0; i < 30; i++)
    if (poll(&wanted, 1, 0) != 0) return 7;  // @poll
  wake(to[1]);
  if (poll(&wanted, 1, 0) != 1) return 8;
  close(to[0]);
  for (int i = 0; i < 7; i++)
    if (write(to[1], text, 100) != -1 || errno != EPIPE) return 9;  // @broken
  return 0;
}
"#;

fn of<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let found = list.as_array().expect("a list");
    let found = found.iter().find(|entry| entry[key] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

fn recorded(directory: &Path, options: &[&str]) -> std::path::PathBuf {
    let program = compile(directory, "wakes.c", WAKES, &["-g", "-O1", "-pthread"]);
    record(directory, &program, &[], options)
}

#[test]
fn every_call_is_counted_by_function() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--syscalls"]);
    let report = report_json(&trace, &["--syscalls"]);
    let calls = &report["system_calls"];
    let functions = &calls["functions"];
    let read = of(functions, "function", "read");
    assert_eq!(
        (&read["calls"], &read["bytes"]),
        (&json!(2155), &json!(252_100))
    );
    assert_eq!(read["errors"], json!({"EAGAIN": 50}));
    // 50 times 4,096 and 904 bytes.
    let results = json!([
        {"from": 1, "to": 1, "calls": 2000},
        {"from": 16, "to": 31, "calls": 5},
        {"from": 512, "to": 1023, "calls": 50},
        {"from": 4096, "to": 8191, "calls": 50},
    ]);
    assert_eq!(read["results"], results);
    let write = of(functions, "function", "write");
    assert_eq!(
        (&write["calls"], &write["bytes"]),
        (&json!(2013), &json!(2101))
    );
    assert_eq!(
        (&write["errors"], &write["tiny"]),
        (&json!({"EPIPE": 7}), &json!(2001))
    );
    let writev = of(functions, "function", "writev");
    assert_eq!(
        (&writev["calls"], &writev["bytes"]),
        (&json!(50), &json!(250_000))
    );
    assert_eq!((&writev["tiny"], &writev["failed"]), (&json!(0), &json!(0)));
    let poll = of(functions, "function", "poll");
    assert_eq!(
        (&poll["calls"], &poll["nothing_ready"]),
        (&json!(31), &json!(30))
    );
    // And fcntl, close and two pipes.
    assert_eq!(calls["calls"], json!(2155 + 2013 + 50 + 31 + 4));
    assert_eq!(functions.as_array().expect("a list").len(), 7);
    for function in functions.as_array().expect("a list") {
        let time = function["time_ns"].as_f64().expect("a number");
        assert!(time > 0.0 && time < 1e11, "{function}");
    }
}

#[test]
fn the_needless_ones_are_charged_to_their_lines() {
    for option in ["--syscalls", "--syscalls=kernel"] {
        assert_charged(option);
    }
}

fn assert_charged(option: &str) {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--no-larder", option]);
    let report = report_json(&trace, &["--syscalls"]);
    let callers = &report["system_calls"]["callers"];
    let lines = |kind: &str| -> Vec<Value> {
        let list = callers[kind].as_array().expect("a list");
        list.iter()
            .map(|c| json!([c["call"], c["function"], c["line"], c[kind]]))
            .collect()
    };
    let line = |mark| line_of(WAKES, mark);
    let tiny = lines("tiny");
    assert_eq!(tiny[0], json!(["write", "wake", line("wake"), 2001]));
    assert_eq!(tiny[1], json!(["read", "sleep_until", line("sleep"), 2000]));
    assert_eq!(tiny.len(), 2);
    let drain = json!(["read", "drain", line("drain"), 50]);
    let broken = json!(["write", "main", line("broken"), 7]);
    assert_eq!(lines("failed"), [drain, broken]);
    let poll = json!(["poll", "main", line("poll"), 30]);
    assert_eq!(lines("nothing_ready"), [poll]);
    let unfilled = json!(["read", "main", line("unfilled"), 5]);
    assert_eq!(lines("unfilled"), [unfilled]);
    let first = report_json(&trace, &["--syscalls", "--top", "1"]);
    assert_eq!(
        first["system_calls"]["callers"]["tiny"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

/// Calls that libc makes for itself, and one without libc.
const WITHIN: &str = r#"
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
  unsigned word = 0;
  for (int i = 0; i < 25; i++)
    if (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) != 0) return 5;  // @futex
  FILE *file = fopen("/dev/null", "w");
  if (!file) return 1;
  for (int i = 0; i < 400; i++) {
    if (fprintf(file, "%d\n", 100 + i) != 4) return 2;
    if (fflush(file)) return 3;  // @flush
  }
  for (int i = 0; i < 30; i++) {
    long id;
    __asm__ volatile("syscall" : "=a"(id) : "a"(186L) : "rcx", "r11", "memory");  // @bare
    if (id <= 0) return 4;
  }
  return 0;
}
"#;

#[test]
fn calls_are_seen_whoever_makes_them() {
    let directory = temporary();
    let program = compile(directory.path(), "within.c", WITHIN, &["-g", "-O1"]);
    for (option, seen) in [("--syscalls", false), ("--syscalls=kernel", true)] {
        let folder = directory.path().join(option);
        fs::create_dir(&folder).expect("a folder");
        let trace = record(&folder, &program, &[], &[option]);
        let report = report_json(&trace, &["--syscalls"]);
        let functions = &report["system_calls"]["functions"];
        let calls = |name: &str| {
            let list = functions.as_array().expect("a list");
            let found = list.iter().find(|function| function["function"] == name);
            found.map(|function| function["calls"].as_u64().expect("a number"))
        };
        assert_eq!(calls("gettid"), seen.then_some(30));
        assert_eq!(calls("write"), seen.then_some(400));
        assert_eq!(calls("execve"), seen.then_some(1));
        assert_eq!(calls("exit_group"), seen.then_some(1));
        let futex = &report["system_calls"]["callers"]["futex"];
        let line = line_of(WITHIN, "futex");
        assert_eq!(
            (futex[0]["line"].clone(), &futex[0]["futex"]),
            (json!(line), &json!(25))
        );
        assert_eq!(futex.as_array().map(Vec::len), Some(1));
        if seen {
            assert_eq!(of(functions, "function", "write")["bytes"], json!(1600));
            let tiny = &report["system_calls"]["callers"]["tiny"][0];
            let line = line_of(WITHIN, "flush");
            assert_eq!(
                (&tiny["function"], &tiny["line"], &tiny["tiny"]),
                (&json!("main"), &json!(line), &json!(400))
            );
        }
    }
}

#[test]
fn the_text_has_the_same_figures() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--syscalls"]);
    let text = report_text(&trace, &["--syscalls"]);
    for expected in [
        "System calls (7 functions; 4,253 calls)",
        "(EAGAIN 50)",
        "(EPIPE 7)",
        "\nread by bytes\n",
        "\npoll by descriptors\n",
        "Callers of tiny ones, of 0 to 16 bytes (2 callers; 4,001 calls)",
        "write by wake  ",
        "Callers of failed ones (2 callers; 57 calls)",
        "Callers of waits with nothing ready (1 caller; 30 calls)",
        "Callers of reads that fill less than 1/100 of their buffer (1 caller; 5 calls)",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    let file = directory.path().join("calls.txt");
    let words = ["report", "--syscalls", "-o"];
    assert_success(&output(larder().args(words).arg(&file).arg(&trace)));
    assert_eq!(fs::read_to_string(&file).expect("the report"), text);
}

#[test]
fn a_trace_without_system_calls_names_the_option_that_records_them() {
    let directory = temporary();
    let trace = recorded(directory.path(), &[]);
    let text = report_text(&trace, &["--syscalls"]);
    assert!(
        text.contains("System calls: none (larder record --syscalls records them)"),
        "{text}"
    );
    let report = report_json(&trace, &["--syscalls"]);
    assert_eq!(report["system_calls"]["calls"], json!(0));
    for (words, why) in [
        (&["--sort", "bytes"][..], "--sort"),
        (&["-o", "calls.dhat"], "calls.dhat"),
    ] {
        let mut command = larder();
        command
            .args(["report", "--syscalls"])
            .args(words)
            .arg(&trace);
        assert_fails(&output(&mut command), 125, &[why]);
    }
}
