//! `larder record --cpu`, `report --cpu`, `callers` and `callees`, of programs whose shares are known.

use std::path::{Path, PathBuf};

use crate::common::*;
use serde_json::{Value, json};

/// Three quarters of the time in `three`, a quarter in `one`, which a recursion of up to four calls leads to.
const SPIN: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#define OWN __attribute__((noinline, noclone))
#define KEEP_FRAME __asm__ volatile("" ::: "memory")
static volatile unsigned long sink;
OWN double used(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  KEEP_FRAME;
  return now.tv_sec + now.tv_nsec / 1e9;
}
static inline __attribute__((always_inline)) void inner_loop(void) {
  for (int i = 0; i < 100000; i++) sink += i;
}
OWN void spin(double seconds) {
  double end = used() + seconds;
  do {
    inner_loop();
  } while (used() < end);
}
OWN void three(void) { spin(0.9); KEEP_FRAME; }
OWN void one(int more) {
  if (more > 0) one(more - 1);
  else spin(0.3);
  KEEP_FRAME;
}
static void *work(void *unused) {
  one(3);
  return unused;
}
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, work, 0)) return 1;
  three();
  return pthread_join(thread, 0);
}
"#;

const COPIES: &str = r#"
#include <stdlib.h>
#include <string.h>
#define OWN __attribute__((noinline, noclone))
#define KEEP_FRAME __asm__ volatile("" ::: "memory")
static char from[1000];
OWN void parse(char *to) { memcpy(to, from, 100); KEEP_FRAME; }
OWN void write_out(char *to) { memcpy(to, from, 500); KEEP_FRAME; }
OWN void again(char *to, int more) {
  if (more > 0) again(to, more - 1);
  else parse(to);
  KEEP_FRAME;
}
OWN void batch(char *to) {
  for (int i = 0; i < 300; i++) parse(to);
  char *block = malloc(77);
  KEEP_FRAME;
  free(block);
}
int main(void) {
  char *to = malloc(1000);
  batch(to);
  for (int i = 0; i < 200; i++) write_out(to);
  for (int i = 0; i < 300; i++) again(to, 5);
  free(to);
  return 0;
}
"#;

fn recorded(directory: &Path, source: &str, options: &[&str]) -> PathBuf {
    let flags = ["-g", "-O1", "-pthread", "-fno-builtin"];
    let program = compile(directory, "known.c", source, &flags);
    record(directory, &program, &[], options)
}

fn json_of(command: &str, words: &[&str]) -> Value {
    let output = output(larder().arg(command).args(words).arg("--json"));
    assert_success(&output);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut found = list.as_array().expect("a list").iter();
    let found = found.find(|entry| entry["function"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|entry| entry["function"].as_str().unwrap_or(""))
        .collect()
}

/// Within six standard errors and two samples.
fn assert_share(share: &Value, samples: &Value, expected: f64) {
    let (share, samples) = (share.as_f64().expect("a share"), samples.as_f64());
    let samples = samples.expect("a number");
    let error = (expected * (100.0 - expected) / samples).sqrt();
    let off = (share - expected).abs();
    assert!(
        off < 6.0 * error + 200.0 / samples,
        "{share} %, not {expected} %"
    );
}

fn sampled(directory: &Path) -> (PathBuf, Value) {
    let trace = recorded(directory, SPIN, &["--cpu"]);
    let report = report_json(&trace, &["--cpu"]);
    (trace, report)
}

#[test]
fn processor_time_is_charged_to_functions() {
    let directory = temporary();
    let (mut trace, mut report) = sampled(directory.path());
    // A virtual machine that its host stops has no ticks, but counts the time: such a run shows nothing.
    for _ in 0..8 {
        let missing = report["cpu"]["missing_ns"].as_f64().expect("a number");
        if missing < 0.04 * report["cpu"]["cpu_ns"].as_f64().expect("a number") {
            break;
        }
        std::fs::remove_dir_all(&trace).expect("the trace is there");
        (trace, report) = sampled(directory.path());
    }
    let cpu = &report["cpu"];
    assert_eq!(cpu["rate_hz"], json!(997));
    let (ns, sampled) = (cpu["cpu_ns"].as_f64(), cpu["sampled_ns"].as_f64());
    let (ns, sampled) = (ns.expect("a number"), sampled.expect("a number"));
    assert!(
        (1.1e9..1.6e9).contains(&ns) && (sampled / ns - 1.0).abs() < 0.1,
        "{cpu:#}"
    );
    let functions = &cpu["functions"];
    let total = |name: &str| named(functions, name)["total"]["share"].clone();
    assert_share(&total("three"), &cpu["samples"], 75.0);
    // The recursion counts once.
    assert_share(&total("one"), &cpu["samples"], 25.0);
    assert_share(&total("main"), &cpu["samples"], 75.0);
    assert_share(&total("work"), &cpu["samples"], 25.0);
    // The loop is inlined; the debug information knows it.
    let inner = named(functions, "inner_loop");
    assert!(inner["self"]["share"].as_f64() > Some(80.0), "{inner:#}");
    assert_eq!(named(functions, "three")["self"]["ns"], json!(0));
    assert_eq!(names(functions)[0], "inner_loop");
    let shares = functions.as_array().expect("a list").iter();
    let own: f64 = shares.filter_map(|f| f["self"]["share"].as_f64()).sum();
    assert!((own - 100.0).abs() < 0.01, "{own}");

    let text = report_text(&trace, &["--cpu", "--top", "2"]);
    for expected in [
        "Processor time (1.",
        "997 a second were asked for",
        "2 of ",
        "  inner_loop  in known",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert!(!text.contains("warning"), "{text}");
    let callers = json_of(
        "callers",
        &["spin", trace.to_str().expect("UTF-8"), "--depth", "3"],
    );
    assert_eq!(names(&callers["callers"]), ["three", "one"]);
    assert_share(
        &callers["callers"][0]["share"]["cpu"],
        &callers["samples"],
        75.0,
    );
    assert_eq!(names(&callers["callers"][0]["callers"]), ["main"]);
    assert_eq!(names(&callers["callers"][1]["callers"]), ["one"]);
    let callees = json_of("callees", &["spin", trace.to_str().expect("UTF-8")]);
    assert_eq!(names(&callees["callees"])[0], "inner_loop");
    let recursion = json_of(
        "callers",
        &["one", trace.to_str().expect("UTF-8"), "--depth", "2"],
    );
    assert_eq!(names(&recursion["callers"]), ["work"]);
    assert_eq!(names(&recursion["callers"][0]["callers"]), [""]);
    let within = json_of("callees", &["one", trace.to_str().expect("UTF-8")]);
    assert_eq!(names(&within["callees"]), ["spin"]);
}

#[test]
fn recorded_calls_have_callers_whose_shares_sum_to_all() {
    let directory = temporary();
    let trace = recorded(directory.path(), COPIES, &["--copies", "--no-larder"]);
    let trace = trace.to_str().expect("UTF-8");
    let found = json_of("callers", &["memcpy", trace, "--depth", "2"]);
    let callers = &found["callers"];
    let (parse, write_out) = (named(callers, "parse"), named(callers, "write_out"));
    assert_eq!(
        (&parse["calls"], &parse["bytes"]),
        (&json!(600.0), &json!(60_000.0))
    );
    assert_eq!(write_out["calls"], json!(200.0));
    assert_eq!(write_out["bytes"], json!(100_000.0));
    let list = callers.as_array().expect("a list").iter();
    let shares: f64 = list.filter_map(|c| c["share"]["calls"].as_f64()).sum();
    assert!((shares - 100.0).abs() < 1e-6, "{shares}");
    let (batch, again) = (
        named(&parse["callers"], "batch"),
        named(&parse["callers"], "again"),
    );
    assert_eq!(
        (&batch["calls"], &again["calls"]),
        (&json!(300.0), &json!(300.0))
    );
    // What `again` calls of itself is no caller and no callee of its own.
    let again = json_of("callers", &["again", trace]);
    assert_eq!(
        (names(&again["callers"]), &again["calls"]),
        (vec!["main"], &json!(300.0))
    );
    let within = json_of("callees", &["again", trace]);
    assert_eq!(names(&within["callees"]), ["parse"]);
    let batch = json_of("callees", &["bat*", trace]);
    assert_eq!(names(&batch["callees"]), ["parse", "malloc", "free"]);
    assert_eq!(batch["calls"], json!(302.0));
    assert_eq!(named(&batch["callees"], "malloc")["bytes"], json!(77.0));

    let output = output(larder().args(["callers", "memcpy", trace, "--top", "1"]));
    assert_success(&output);
    let text = stdout(&output);
    for expected in [
        "Callers of memcpy (",
        " recorded calls",
        "  parse  in known",
        "and 1 more",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[test]
fn sampled_copies_count_as_many_as_they_stand_for() {
    let source = COPIES
        .replace("i < 300", "i < 30000")
        .replace("i < 200", "i < 20000");
    let directory = temporary();
    let trace = recorded(directory.path(), &source, &["--copies=2000", "--no-larder"]);
    let found = json_of("callers", &["memcpy", trace.to_str().expect("UTF-8")]);
    for (name, expected, size) in [("parse", 60_000.0, 100.0), ("write_out", 20_000.0, 500.0)] {
        let caller = named(&found["callers"], name);
        let calls = caller["calls"].as_f64().expect("a number");
        let chance: f64 = 1.0 - f64::exp(-size / 2000.0);
        let error = ((1.0 - chance) / (chance * expected)).sqrt();
        let off = (calls / expected - 1.0).abs();
        assert!(off < 6.0 * error, "{name}: {calls}, not {expected}");
        let bytes = caller["bytes"].as_f64().expect("a number");
        assert!((bytes / calls - size).abs() < 1e-6);
    }
}

#[test]
fn a_function_that_is_not_there_is_an_error_with_those_of_like_names() {
    let directory = temporary();
    let trace = recorded(directory.path(), COPIES, &["--copies", "--no-larder"]);
    for (name, near) in [
        ("prase", "parse"),
        ("write", "write_out"),
        ("PARSE", "parse"),
    ] {
        let output = output(larder().args(["callers", name]).arg(&trace));
        assert_fails(&output, 125, &[name, "did you mean", near]);
    }
    let output = output(larder().args(["callees", "nothing_like_this"]).arg(&trace));
    assert_fails(&output, 125, &["nothing_like_this", "put *"]);
}

#[test]
fn a_trace_without_samples_says_so() {
    let directory = temporary();
    let trace = recorded(directory.path(), COPIES, &["--no-larder"]);
    let text = report_text(&trace, &["--cpu"]);
    assert!(
        text.contains("no samples (larder record --cpu takes them)"),
        "{text}"
    );
    let report = report_json(&trace, &["--cpu"]);
    assert_eq!(report["cpu"]["samples"], json!(0));
    let svg = output(
        larder()
            .args(["report", "--cpu", "-o", "x.dhat"])
            .arg(&trace),
    );
    assert_fails(&svg, 125, &["x.dhat"]);
    for rate in ["--cpu=0", "--cpu=10001", "--cpu=x"] {
        let refused = output(larder().args(["record", rate, "--", "true"]));
        assert_eq!(code(&refused), 125, "{rate}");
    }
}

/// Fills that are overwritten, bytes that are read and copied on, and blocks that could be kept; prints each one's
/// share of the processor time, in percent, as the program itself has measured it.
const NEEDLESS: &str = r#"
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define CLOBBER() __asm__ volatile("" ::: "memory")
enum { BYTES = 4 << 20, TURNS = 1500 };
static char *made, *from, *to;
static volatile unsigned long sink;
static double used(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}
static double fill(void) {
  double begin = used();
  memset(to, 0, BYTES);  // @fill
  double spent = used() - begin;
  memcpy(to, from, BYTES);
  CLOBBER();
  return spent;
}
static double take(int zero) {
  if (read(zero, made, BYTES) != BYTES) exit(3);  // @take
  double begin = used();
  memcpy(to, made, BYTES);
  double spent = used() - begin;
  CLOBBER();
  return spent;
}
static double allocate(void) {
  double begin = used();
  char *block = calloc(1, 1 << 19);
  double spent = used() - begin;
  memset(block, 1, 1 << 19);
  CLOBBER();
  begin = used();
  free(block);
  return spent + used() - begin;
}
// With `free` as its last call, its frame is gone by then: what it does besides is not the free's.
__attribute__((optimize("O2"))) static void spin_and_free(char *block) {
  for (int i = 0; i < 100000; i++) sink += i;
  free(block);
}
static void spin(void) {
  char *block = malloc(300);  // @spin
  CLOBBER();
  spin_and_free(block);
}
int main(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 16);  // So that a free takes time, and calloc little.
  made = malloc(BYTES), from = malloc(BYTES), to = malloc(BYTES);
  memset(from, 1, BYTES);
  int zero = open("/dev/zero", O_RDONLY);
  double fills = 0, copies = 0, callocs = 0;
  for (int i = 0; i < TURNS; i++) fills += fill();
  for (int i = 0; i < TURNS; i++) copies += take(zero);
  for (int i = 0; i < 4 * TURNS; i++) callocs += allocate();
  for (double end = used() + 0.2; used() < end;) spin();
  for (int i = 0; i < 200; i++) spin();
  printf("%f %f %f\n", 100 * fills / used(), 100 * copies / used(), 100 * callocs / used());
  return 0;
}
"#;

#[test]
fn advice_says_what_the_needless_calls_take_of_the_processor_and_ranks_by_it() {
    let directory = temporary();
    let options = ["-g", "-O1", "-fno-builtin", "-fno-inline"];
    let program = compile(directory.path(), "needless.c", NEEDLESS, &options);
    let trace = directory.path().join("needless.trace");
    let recorded = output(
        larder()
            .args([
                "record",
                "--no-larder",
                "--copies",
                "--syscalls",
                "--cpu",
                "-o",
            ])
            .arg(&trace)
            .arg("--")
            .arg(&program),
    );
    assert_success(&recorded);
    let measured: Vec<f64> = stdout(&recorded)
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    let advise = |words: &[&str]| {
        let result = output(larder().arg("advise").args(words).arg(&trace));
        assert_success(&result);
        stdout(&result)
    };
    let report: Value = serde_json::from_str(&advise(&["--json"])).expect("JSON");
    let process = &report["processes"][0];
    let samples = process["cpu"]["samples"].as_u64().expect("a count");
    assert!(samples > 100, "{}", process["cpu"]);
    let calls = process["calls"].as_array().expect("a list");
    let allocations = process["findings"].as_array().expect("a list");
    let patterns = ["filled-then-overwritten", "read-then-copied", "reuse"];
    for (pattern, measured) in patterns.iter().zip(measured) {
        let found = calls
            .iter()
            .chain(allocations)
            .find(|found| found["pattern"] == *pattern);
        let cpu = &found.unwrap_or_else(|| panic!("{pattern}: {calls:#?}"))["cpu"];
        let [low, share, high] =
            ["low", "share", "high"].map(|key| 100.0 * cpu[key].as_f64().expect("a number"));
        assert!(low < share && share < high, "{cpu}");
        assert_share(&json!(share), &process["cpu"]["samples"], measured);
    }
    let line = json!(line_of(NEEDLESS, "spin"));
    let spin = allocations
        .iter()
        .find(|found| found["site"]["line"] == line);
    let share = &spin.unwrap_or_else(|| panic!("{allocations:#?}"))["cpu"]["share"];
    assert!(share.as_f64().expect("a number") < 0.02, "{share}");
    let shares: Vec<f64> = calls
        .iter()
        .map(|found| found["cpu"]["share"].as_f64().expect("a number"))
        .collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
    let text = advise(&[]);
    let head =
        format!("\nBy processor time ({samples} samples; the recorder's own are left out)\n");
    let table = text.split_once(&head).expect("the table").1;
    let rows = table.lines().take_while(|line| !line.is_empty());
    assert!(rows.count() >= 3, "{text}");
    assert!(text.contains(" %) of the processor time now: "), "{text}");
}
