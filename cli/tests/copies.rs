//! `larder report --copies`: every copy of a program whose copies are known, by function, size and caller.

use std::fs;

use crate::common::*;
use serde_json::{Value, json};

/// Four threads, each of which copies in known sizes at known lines; a wrapper with two callers.
const COPIES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char from[100000];
static volatile size_t none = 0;
static void *duplicate(const void *data, size_t bytes) {
  char *made = malloc(bytes);
  memcpy(made, data, bytes);  // @duplicate
  __asm__ volatile("" ::: "memory");
  return made;
}
static void first(void) {
  free(duplicate(from, 1000));
  __asm__ volatile("");
}
static void second(void) {
  free(duplicate(from, 10));
  __asm__ volatile("");
}
static void *work(void *unused) {
  char *to = malloc(sizeof from), number[40];
  for (int i = 0; i < 1000; i++) {
    memcpy(to, from, 64 + none);  // @small
    if (i % 100 == 0) memmove(to, from, sizeof from - none);  // @large
    memset(to, i, 500 + none);  // @fill
    snprintf(number, sizeof number, "%d", 10000 + i);  // @format
    first();
    if (i % 2 == 0) second();
  }
  memcpy(to, from, none);  // @nothing
  free(to);
  return unused;
}
int main(void) {
  pthread_t threads[4];
  char text[100];
  memset(from, 'x', 50);  // @text
  strcpy(text, from);  // @string
  for (int i = 0; i < 4; i++)
    if (pthread_create(&threads[i], 0, work, 0) != 0) return 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
  free(strdup(text));  // @strdup
  return 0;
}
"#;

fn recorded(directory: &std::path::Path, options: &[&str]) -> std::path::PathBuf {
    let options_of_gcc = ["-g", "-O1", "-fno-builtin", "-fno-inline", "-pthread"];
    let program = compile(directory, "copies.c", COPIES, &options_of_gcc);
    record(directory, &program, &[], options)
}

fn of<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let found = list.as_array().expect("a list");
    let found = found.iter().find(|entry| entry[key] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

#[test]
fn every_copy_is_counted_by_function_and_size() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--copies"]);
    let report = report_json(&trace, &["--copies"]);
    let copies = &report["copies"];
    let functions = &copies["functions"];
    let memcpy = of(functions, "function", "memcpy");
    // Small, of both duplicates, and one of nothing a thread.
    assert_eq!(
        (&memcpy["calls"], &memcpy["bytes"]),
        (&json!(10_004), &json!(4000 * 64 + 4000 * 1000 + 2000 * 10))
    );
    let sizes = json!([
        {"from": 0, "to": 0, "calls": 4},
        {"from": 8, "to": 15, "calls": 2000},
        {"from": 64, "to": 127, "calls": 4000},
        {"from": 512, "to": 1023, "calls": 4000},
    ]);
    assert_eq!(memcpy["sizes"], sizes);
    for (function, calls, bytes) in [
        ("memmove", 40, 4_000_000),
        ("memset", 4001, 2_000_050),
        ("snprintf", 4000, 20_000),
        ("strcpy", 1, 51),
        ("strdup", 1, 51),
    ] {
        let found = of(functions, "function", function);
        assert_eq!(
            (&found["calls"], &found["bytes"]),
            (&json!(calls), &json!(bytes)),
            "{function}"
        );
    }
    assert_eq!(functions.as_array().map(Vec::len), Some(6));
    assert_eq!(copies["calls"], json!(10_004 + 40 + 4001 + 4000 + 1 + 1));
    assert_eq!(copies["rate"], json!(0));
}

#[test]
fn copies_are_charged_to_their_lines_and_stacks() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--copies", "--no-larder"]);
    let report = report_json(&trace, &["--copies", "--no-wrappers"]);
    let ranked = |key: &str| -> Vec<Value> {
        let list = report["copies"]["callers"][key].as_array().expect("a list");
        list.iter()
            .map(|c| json!([c["call"], c["function"], c["line"], c[key]]))
            .collect()
    };
    let line = |mark| line_of(COPIES, mark);
    let by_bytes = ranked("bytes");
    let duplicate = json!(["memcpy", "duplicate", line("duplicate"), 4_020_000]);
    assert_eq!(by_bytes[0], duplicate);
    assert_eq!(
        by_bytes[1],
        json!(["memmove", "work", line("large"), 4_000_000])
    );
    assert_eq!(
        by_bytes[2],
        json!(["memset", "work", line("fill"), 2_000_000])
    );
    assert_eq!(
        by_bytes[3],
        json!(["memcpy", "work", line("small"), 256_000])
    );
    assert_eq!(
        by_bytes[4],
        json!(["snprintf", "work", line("format"), 20_000])
    );
    let by_calls = ranked("calls");
    assert_eq!(
        by_calls[0],
        json!(["memcpy", "duplicate", line("duplicate"), 6000])
    );
    assert_eq!(by_calls.len(), 9);
    // The heaviest stack of the wrapper is the one of most calls.
    let stack = &report["copies"]["callers"]["calls"][0]["stack"];
    assert_eq!(stack[1]["function"], json!("first"));
    let first = report_json(&trace, &["--copies", "--top", "1"]);
    let callers = &first["copies"]["callers"];
    assert_eq!(callers["calls"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_text_has_the_same_figures() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--copies"]);
    let text = report_text(&trace, &["--copies"]);
    for expected in [
        "Copies (6 functions; 18,047 calls; ",
        "Not seen: what the compiler inlined",
        "\nmemcpy by bytes\n",
        "\nCallers by bytes (8 callers)\n",
        "\nCallers by calls (9 callers)\n",
        "memcpy by ",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert!(!text.contains("Estimated"), "{text}");
}

#[test]
fn other_tools_can_show_the_copied_bytes() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--copies"]);
    let made = |name: &str, words: &[&str]| {
        let file = directory.path().join(name);
        let mut command = larder();
        command.args(words).arg("-o").arg(&file).arg(&trace);
        assert_success(&output(&mut command));
        fs::read(file).expect(name)
    };
    let folded = String::from_utf8(made("c.folded", &["report", "--copies"])).expect("UTF-8");
    let sum = |lines: &str| -> u64 {
        let values = lines.lines().filter_map(|line| line.rsplit_once(' '));
        values
            .map(|(_, value)| value.parse::<u64>().expect("a number"))
            .sum()
    };
    // As in `every_copy_is_counted_by_function_and_size`.
    let all = 4_276_000 + 4_000_000 + 2_000_050 + 20_000 + 51 + 51;
    assert_eq!(sum(&folded), all);
    assert!(folded.contains("work;first;duplicate 4000000"), "{folded}");
    let calls = made("calls.folded", &["export", "--value", "copies"]);
    assert_eq!(sum(&String::from_utf8(calls).expect("UTF-8")), 18_047);
    let svg = String::from_utf8(made("c.svg", &["report", "--copies"])).expect("UTF-8");
    assert!(svg.contains("Bytes copied and formatted"), "{svg}");
    assert!(made("c.pb.gz", &["report", "--copies"]).starts_with(&[0x1f, 0x8b]));
    let speedscope = made("c.speedscope.json", &["report", "--copies"]);
    let profile: Value = serde_json::from_slice(&speedscope).expect("JSON");
    assert_eq!(profile["profiles"].as_array().map(Vec::len), Some(1));
    assert_eq!(profile["profiles"][0]["endValue"], json!(all));
    let mut command = larder();
    command.args(["flamegraph", "--value", "cpu"]).arg(&trace);
    assert_fails(
        &output(&mut command),
        125,
        &["has no ns of this measure: record with --cpu"],
    );
}

/// Which is an allocation, too.
#[test]
fn a_duplicate_is_one_call() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--copies"]);
    let callers = output(larder().args(["callers", "strdup", "--json"]).arg(&trace));
    assert_success(&callers);
    let found: Value = serde_json::from_str(&stdout(&callers)).expect("JSON");
    assert_eq!(
        (&found["calls"], &found["bytes"]),
        (&json!(1.0), &json!(51.0))
    );
}

#[test]
fn samples_give_estimates_and_the_report_says_so() {
    let directory = temporary();
    let trace = recorded(directory.path(), &["--copies=2048"]);
    let text = report_text(&trace, &["--copies"]);
    let said = "Estimated from samples, one in 2 KiB on average.";
    assert!(text.contains(said), "{text}");
    let report = report_json(&trace, &["--copies"]);
    let copies = &report["copies"];
    assert_eq!(copies["rate"], json!(2048));
    let within = |name: &str, key: &str, expected: f64, most: f64| {
        let found = of(&copies["functions"], "function", name)[key].as_f64();
        let error = found.expect("a number") / expected - 1.0;
        assert!(error.abs() < most, "{name} {key}: {error}");
    };
    // Six standard errors: of 4,000 calls with a chance of 0.217, and of 40 that are all chosen.
    within("memset", "calls", 4001.0, 0.19);
    within("memset", "bytes", 2_000_050.0, 0.19);
    within("memmove", "calls", 40.0, 1e-6);
}

/// stdio copies what it is given into its buffer.
const BUFFERED: &str = r#"
#include <stdio.h>
#include <string.h>
static char from[4096], to[1 << 20], buffer[1 << 20];
int main(void) {
  FILE *file = fopen("/dev/null", "w");
  if (file == 0 || setvbuf(file, buffer, _IOFBF, sizeof buffer) != 0) return 1;
  memcpy(to, from, sizeof from);
  for (int i = 0; i < 3000000; i++)
    if (fwrite_unlocked(from, 1, sizeof from, file) != sizeof from) return 2;
  return fclose(file);
}
"#;

#[test]
fn samples_say_how_much_libc_copies_by_itself() {
    let directory = temporary();
    let source = format!("#define _GNU_SOURCE\n{BUFFERED}");
    let options = ["-g", "-O1", "-fno-builtin"];
    let program = compile(directory.path(), "buffered.c", &source, &options);
    let trace = record(directory.path(), &program, &[], &["--copies", "--cpu"]);
    let report = report_json(&trace, &["--copies"]);
    let copies = &report["copies"];
    assert_eq!(copies["calls"], json!(1));
    let figure = |key: &str| copies["by_libc"][key].as_u64().expect("a count");
    assert!(figure("of_samples") > 20, "{copies}");
    assert!(2 * figure("samples") > figure("of_samples"), "{copies}");
    let text = report_text(&trace, &["--copies"]);
    assert!(
        text.contains("and what libc copies by itself, the latter "),
        "{text}"
    );
    let directory = temporary();
    let other = recorded(directory.path(), &["--copies"]);
    let report = report_json(&other, &["--copies"]);
    assert_eq!(report["copies"]["by_libc"], json!(null));
}

#[test]
fn a_trace_without_copies_names_the_option_that_records_them() {
    let directory = temporary();
    let trace = recorded(directory.path(), &[]);
    let text = report_text(&trace, &["--copies"]);
    assert!(
        text.contains("Copies: none (larder record --copies records them)"),
        "{text}"
    );
    for (words, why) in [
        (&["--sort", "bytes"][..], "--sort"),
        (&["--syscalls"], "--syscalls"),
        (&["-o", "copies.dhat"], "copies.dhat"),
    ] {
        let mut command = larder();
        command.args(["report", "--copies"]).args(words).arg(&trace);
        assert_fails(&output(&mut command), 125, &[why]);
    }
    for rate in ["--copies=-1", "--copies=x", "--copies=1099511627777"] {
        let mut command = larder();
        command.args(["record", rate, "--", "true"]);
        assert_fails(&output(&mut command), 125, &["--copies"]);
    }
}
