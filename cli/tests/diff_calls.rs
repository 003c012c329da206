//! `larder diff --copies|--syscalls|--cpu`, also with `--growth`: programs whose lines make known calls, and traces
//! with known samples.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::diff::*;
use crate::common::written::Written;
use crate::common::*;
use serde_json::{Value, json};

const INCLUDES: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define APART __attribute__((noinline)) static
static char from[4096], to[4096];
static volatile size_t none = 0;
"#;

const OLD: &str = r#"
APART void pack(void) { for (int i = 0; i < 40; i++) memcpy(to, from, 100 + none); }
APART void steady(void) { memmove(to, from, 64 + none); }
APART void other_call(void) { memcpy(to, from, 16 + none); }
APART void dropped(void) { memset(to, 1, 300 + none); }
APART void send(int fd) {
  for (int i = 0; i < 40; i++) if (write(fd, to, 10) != 10 || lseek(fd, 0, SEEK_SET) != 0) abort();
}
int main(void) {
  char name[] = "/tmp/larder-diff-XXXXXX";
  int fd = mkstemp(name);
  pack(); steady(); other_call(); dropped();
  send(fd);
  if (read(fd, to, 5) != 5) return 1;
  return unlink(name);
}
"#;

/// All lines moved, four times the work in two functions, another call in one, and calls that fail.
const NEW: &str = r#"
/* More
   lines. */
APART void send(int fd) {
  for (int i = 0; i < 160; i++) if (write(fd, to, 10) != 10 || lseek(fd, 0, SEEK_SET) != 0) abort();
}
APART void broken(void) { for (int i = 0; i < 7; i++) if (write(-1, to, 1) != -1) abort(); }
APART void other_call(void) { memmove(to, from, 16 + none); }
APART void steady(void) { memmove(to, from, 64 + none); }
APART void pack(void) { for (int i = 0; i < 160; i++) memcpy(to, from, 100 + none); }
int main(void) {
  char name[] = "/tmp/larder-diff-XXXXXX";
  int fd = mkstemp(name);
  pack(); steady(); other_call();
  send(fd); broken();
  if (read(fd, to, 5) != 5) return 1;
  return unlink(name);
}
"#;

const FLAGS: [&str; 4] = ["-g", "-O1", "-fno-builtin", "-fno-inline"];

fn recorded(directory: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let directory = directory.join(name);
    fs::create_dir_all(&directory).expect("a directory");
    let program = compile(&directory, "app.c", &format!("{INCLUDES}{source}"), &FLAGS);
    let options = [&["--no-larder"], options].concat();
    record(&directory, &program, &[], &options)
}

/// Both builds.
fn builds(directory: &Path, options: &[&str]) -> [PathBuf; 2] {
    [("old", OLD), ("new", NEW)].map(|(name, source)| recorded(directory, name, source, options))
}

/// Status, call, function, and figures before and after, of the sites that changed, as they are ranked.
fn rows(document: &Value, figures: &[&str]) -> Vec<Value> {
    let sites = document["sites"].as_array().expect("sites").iter();
    sites
        .map(|row| {
            let either = [&row["after"], &row["before"]];
            let site = either.into_iter().find(|site| !site.is_null());
            let site = site.expect("one of both");
            let of = |side: &str| -> Vec<Value> {
                figures.iter().map(|f| row[side][f].clone()).collect()
            };
            json!([
                row["status"],
                site["call"],
                site["function"],
                of("before"),
                of("after")
            ])
        })
        .collect()
}

#[test]
fn copies_are_compared_by_line_and_function_that_copies() {
    let directory = temporary();
    let [old, new] = builds(directory.path(), &["--copies"]);
    let document = diff_json(&[&old, &new], &["--copies"]);
    let figures = ["calls", "bytes"];
    let missing = json!([null, null]);
    let expected = [
        json!(["changed", "memcpy", "pack", [40, 4000], [160, 16_000]]),
        json!(["gone", "memset", "dropped", [1, 300], missing]),
        // Another function is another site, though line and caller are the same.
        json!(["gone", "memcpy", "other_call", [1, 16], missing]),
        json!(["new", "memmove", "other_call", missing, [1, 16]]),
    ];
    let mut found = rows(&document, &figures);
    found[2..].sort_by_key(|row| row[0].to_string());
    assert_eq!(found, expected, "{document:#}");
    assert_eq!(document["site_counts"]["same"], json!(1));
    let counters = json!([
        {"name": "Bytes copied", "before": 4380, "after": 16_080, "difference": 11_700},
        {"name": "Calls", "before": 43, "after": 162, "difference": 119},
    ]);
    assert_eq!(document["counters"], counters);
    let pack = &document["sites"][0];
    assert_eq!(pack["stack"]["figure"], json!("bytes"));
    assert_eq!(pack["stack"]["frames"][1]["function"], json!("main"));
    let by_calls = diff_json(
        &[&old, &new],
        &["--copies", "--sort", "calls", "--top", "1"],
    );
    assert_eq!(rows(&by_calls, &figures), expected[..1]);

    let text = diff_text(&[&old, &new], &["--copies"]);
    for line in [
        "Sites by change of bytes copied (1 new, 2 gone, 1 changed, 1 same)",
        "+12,000  memcpy by pack  ",
        "calls 40 → 160",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    assert!(!text.contains('±') && !text.contains("steady"), "{text}");
}

#[test]
fn system_calls_are_compared_by_line_and_name_with_their_errors() {
    let directory = temporary();
    let [old, new] = builds(directory.path(), &["--syscalls"]);
    let document = diff_json(&[&old, &new], &["--syscalls"]);
    let missing = json!([null, null, null]);
    let expected = [
        json!(["changed", "lseek", "send", [40, 0, 0], [160, 0, 0]]),
        json!(["changed", "write", "send", [40, 0, 400], [160, 0, 1600]]),
        json!(["new", "write", "broken", missing, [7, 7, 0]]),
    ];
    let mut found = rows(&document, &["calls", "errors", "bytes"]);
    found[..2].sort_by_key(|row| row[1].to_string());
    assert_eq!(found, expected, "{document:#}");
    let after = &document["sites"][0]["after"];
    assert!(after["time_ns"].as_f64() > Some(0.0), "{after:#}");
    let errors = diff_json(&[&old, &new], &["--syscalls", "--sort", "errors"]);
    assert_eq!(errors["sites"][0]["after"]["function"], json!("broken"));
    let text = diff_text(&[&old, &new], &["--syscalls"]);
    for line in [
        "\nErrors                                0                7               +7  none before\n",
        "Sites by change of calls (1 new, 2 changed, ",
        "+120  write by send  ",
        "bytes 400 → 1,600; time within ",
        "errors 0 → 7; ",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

/// Their times within differ, always; nothing else does.
#[test]
fn two_runs_of_one_build_do_not_differ() {
    let directory = temporary();
    let options = ["--copies", "--syscalls"];
    let [a, b] = ["a", "b"].map(|name| recorded(directory.path(), name, OLD, &options));
    for of in ["--copies", "--syscalls"] {
        let text = diff_text(&[&a, &b], &[of]);
        assert!(text.ends_with("\nno site changed\n"), "{text}");
        let all = diff_json(&[&a, &b], &[of, "--all"]);
        let sites = all["sites"].as_array().expect("sites");
        assert!(sites.len() >= 3, "{all:#}");
        assert!(sites.iter().all(|site| site["status"] == "same"), "{all:#}");
    }
}

/// A wrapper that only one of the traces shows is passed over in both, as it is for allocations.
#[test]
fn the_allocation_functions_of_either_trace_are_passed_over_in_both() {
    let source = |callers: usize| {
        let mut text = String::from(
            "APART void *duplicate(int n) { void *made = malloc(n); memcpy(made, from, n); return made; }\n",
        );
        let mut calls = String::new();
        for number in 0..callers {
            let bytes = 100 * (number + 1);
            text += &format!(
                "APART void user{number}(void) {{ free(duplicate({bytes})); __asm__(\"\"); }}\n"
            );
            calls += &format!("user{number}();");
        }
        text + &format!("int main(void) {{ {calls} return 0; }}\n")
    };
    let directory = temporary();
    let [few, many] = [("few", 1), ("many", 6)]
        .map(|(name, callers)| recorded(directory.path(), name, &source(callers), &["--copies"]));
    let shown = |trace: &Path| {
        let report = report_json(trace, &["--copies"]);
        report["copies"]["callers"]["calls"][0]["function"].clone()
    };
    assert_eq!(
        [shown(&few), shown(&many)],
        [json!("duplicate"), json!("user0")]
    );
    let document = diff_json(&[&few, &many], &["--copies"]);
    assert_eq!(
        (
            &document["site_counts"]["same"],
            &document["site_counts"]["new"]
        ),
        (&json!(1), &json!(5)),
        "{document:#}"
    );
}

#[test]
fn samples_are_compared_by_function_and_differ_by_more_than_chance() {
    let directory = temporary();
    let trace = |name: &str, first, second| {
        let trace = Written::new(directory.path(), name).samples(1, first);
        trace.samples(2, second).done()
    };
    let old = trace("old", 100, 400);
    // 100 and 142 differ by 42, and three deviations are 47; 400 and 500 by 100, and these are 90.
    let new = trace("new", 142, 500);
    let document = diff_json(&[&old, &new], &["--cpu"]);
    let figures = ["samples", "cpu_ns"];
    let expected = json!([
        "changed",
        null,
        "second",
        [400, 400_000_000],
        [500, 500_000_000]
    ]);
    assert_eq!(rows(&document, &figures), [expected], "{document:#}");
    let deviations = &document["sites"][0]["before"]["deviations"];
    assert_eq!(*deviations, json!({"samples": 20.0, "cpu_ns": 20e6}));
    assert_eq!(document["site_counts"]["same"], json!(1));
    assert_eq!(document["counters"][1]["difference"], json!(142));
    let all = diff_json(&[&old, &new], &["--cpu", "--all", "--sort", "calls"]);
    let expected = json!([
        "same",
        null,
        "first",
        [100, 100_000_000],
        [142, 142_000_000]
    ]);
    assert_eq!(rows(&all, &figures)[1], expected, "{all:#}");
    let text = diff_text(&[&old, &new], &["--cpu"]);
    for line in [
        "Sites by change of processor time (1 changed, 1 same)",
        "estimated from samples, ± one standard deviation; what lies within 3 is taken for chance",
        "changed    400.0 ms ±20.0 ms   500.0 ms ±22.4 ms        +100.0 ms  second  ",
        "samples 400 ±20 → 500 ±22",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let same = diff_text(&[&old, &old], &["--cpu"]);
    assert!(same.ends_with("\nno site changed\n"), "{same}");
    // Of the nine samples of a function that only one has nothing is claimed, of ten it is.
    for (count, status) in [(9, None), (10, Some("new"))] {
        let more = trace(&format!("more{count}"), 100, 400 + count);
        let fewer = trace(&format!("none{count}"), 100 + count, 0);
        let none = trace(&format!("only{count}"), 100 + count, count);
        let changed = rows(&diff_json(&[&fewer, &none], &["--cpu"]), &["samples"]);
        assert_eq!(changed.first().and_then(|row| row[0].as_str()), status);
        assert_eq!(
            rows(&diff_json(&[&old, &more], &["--cpu"]), &["samples"]).len(),
            0
        );
    }
}

#[test]
fn sampled_copies_differ_by_more_than_chance_too() {
    let directory = temporary();
    let trace = |name: &str, count, rate| {
        let trace = Written::new(directory.path(), name);
        trace.copies(1, count, rate).done()
    };
    let few = [trace("a", 20, 2000), trace("b", 30, 2000)];
    let text = diff_text(&[&few[0], &few[1]], &["--copies"]);
    assert!(
        text.contains("\nestimated from samples, ±") && text.ends_with("no site changed\n"),
        "{text}"
    );
    let many = [trace("c", 200, 2000), trace("d", 300, 2000)];
    let document = diff_json(&[&many[0], &many[1]], &["--copies"]);
    let weight = -1.0 / (-100.0f64 / 2000.0).exp_m1();
    let site = &document["sites"][0]["before"];
    assert_eq!(site["calls"], json!((200.0 * weight).round() as u64));
    let deviation = (200.0 * weight * (weight - 1.0)).sqrt();
    let found = site["deviations"]["calls"].as_f64().expect("a deviation");
    assert!((found / deviation - 1.0).abs() < 1e-9, "{found}");
    // All recorded: one more is one more.
    let exact = [trace("e", 20, 0), trace("f", 21, 0)];
    let document = diff_json(&[&exact[0], &exact[1]], &["--copies"]);
    assert_eq!(
        rows(&document, &["calls"])[0],
        json!(["changed", "memcpy", "first", [20], [21]])
    );
}

const GROWING: &str = r#"
int main(int argc, char **argv) {
  int n = atoi(argv[argc - 1]), fds[2];
  char byte;
  if (pipe(fds) != 0) return 1;
  for (int i = 0; i < n; i++) free(malloc(10));
  for (int i = 0; i < n; i++) memcpy(to, from, 64 + none);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) memmove(to, from, 8 + none);  // @square
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      if (lseek(fds[0], 0, SEEK_SET) != -1) return 2;  // @seek
  for (int i = 0; i < n; i++) if (write(fds[1], to, 1) != 1) return 3;
  for (int i = 0; i < n; i++) if (read(fds[0], &byte, 1) != 1) return 4;
  return 0;
}
"#;

#[test]
fn copies_and_system_calls_that_grow_with_the_square_are_named() {
    let directory = temporary();
    let source = format!("{INCLUDES}{GROWING}");
    let program = compile(directory.path(), "app.c", &source, &FLAGS);
    let [small, large] = ["10", "40"].map(|n| {
        let place = directory.path().join(n);
        fs::create_dir(&place).expect("a directory");
        let options = ["--no-larder", "--copies", "--syscalls"];
        record(&place, &program, &[n], &options)
    });
    let growth = |options: &[&str]| {
        let document = diff_json(&[&small, &large], &[&["--growth"], options].concat());
        assert_eq!(document["superlinear"], json!(1), "{document:#}");
        let found = &document["sites"][0];
        let exponent = found["exponent"].as_f64().expect("an exponent");
        assert!((exponent - 2.0).abs() < 1e-9, "{exponent}");
        let site = &found["site"];
        let values = (found["values"].clone(), document["figure"].clone());
        let place = (site["call"].clone(), site["line"].clone());
        (values, place, document["work_source"].clone())
    };
    let line = |mark| json!(line_of(&source, mark));
    let (values, place, source) = growth(&["--copies", "--work", "10:40"]);
    assert_eq!(values, (json!([800, 12_800]), json!("bytes")));
    assert_eq!(place, (json!("memmove"), line("square")));
    assert_eq!(source, json!("given"));
    // What the trace counts, and what the allocations show, is work for them, too.
    assert_eq!(growth(&["--copies"]).2, json!("read"));
    let (values, place, source) = growth(&["--syscalls", "--work", "estimate"]);
    assert_eq!(values, (json!([100, 1600]), json!("calls")));
    assert_eq!(place, (json!("lseek"), line("seek")));
    assert_eq!(source, json!("estimated"));
    let (values, ..) = growth(&["--syscalls", "--sort", "errors"]);
    assert_eq!(values, (json!([100, 1600]), json!("errors")));
    let text = diff_text(
        &[&small, &large],
        &["--growth", "--copies", "--work", "estimate"],
    );
    for line in [
        "the work is estimated as the median growth of 1 allocating site: give it with --work",
        "Growth of bytes copied with the work (1 site of 2 superlinear)",
        "    2.00  800 → 12,800                    memmove by main  ",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn samples_grow_only_beyond_chance() {
    let directory = temporary();
    let trace = |name: &str, first, second| {
        let trace = Written::new(directory.path(), name).allocations(first);
        trace.samples(1, first).samples(2, second).done()
    };
    // Both exponents are 1.43; 200 ± 20 are expected after 100, and 2,000 ± 63 after 1,000.
    let [small, large] = [trace("small", 100, 1000), trace("large", 270, 2700)];
    let document = diff_json(
        &[&small, &large],
        &["--growth", "--cpu", "--work", "1:2", "--all"],
    );
    let sites = document["sites"].as_array().expect("sites");
    let found: Vec<Value> = sites
        .iter()
        .map(|site| {
            json!([
                site["site"]["function"],
                site["superlinear"],
                site["values"]
            ])
        })
        .collect();
    let expected = [
        json!(["second", true, [1_000_000_000, 2_700_000_000u64]]),
        json!(["first", false, [100_000_000, 270_000_000]]),
    ];
    assert_eq!(found, expected, "{document:#}");
    assert_eq!(sites[1]["deviations"][0], json!(1e7));
    // What only one of them has grows by no known exponent, and nothing has no deviation.
    let other = trace("other", 0, 1000);
    let options = ["--growth", "--cpu", "--work", "1:2", "--all"];
    let document = diff_json(&[&other, &large], &options);
    let first = &document["sites"][1];
    let expected = (json!([0, 270_000_000]), Value::Null, json!(0.0));
    let found = (
        &first["values"],
        &first["exponent"],
        &first["deviations"][0],
    );
    assert_eq!(
        found,
        (&expected.0, &expected.1, &expected.2),
        "{document:#}"
    );
    let text = diff_text(&[&small, &large], &["--growth", "--cpu", "--work", "1:2"]);
    assert!(
        text.contains("1.00 s ±31.6 ms → 2.70 s ±52.0 ms  second") && !text.contains("first"),
        "{text}"
    );
    // By the allocations, both grow as the work does.
    let document = diff_json(&[&small, &large], &["--growth", "--cpu"]);
    assert_eq!(
        (&document["work"], &document["superlinear"]),
        (&json!([1.0, 2.7]), &json!(0))
    );
}

#[test]
fn what_cannot_be_compared_is_said_in_one_line() {
    let directory = temporary();
    let samples = Written::new(directory.path(), "samples").samples(1, 50);
    let copies = Written::new(directory.path(), "copies").copies(1, 50, 0);
    let [samples, copies] = [samples.done(), copies.done()];
    let refused = |options: &[&str], words: &[&str]| {
        let mut diff = larder();
        diff.arg("diff").args([&samples, &copies]).args(options);
        assert_fails(&output(&mut diff), 125, words);
    };
    let (has_no_copies, has_no_samples) = (
        ["samples.ltrace: has no copies: record it with --copies"],
        ["copies.ltrace: has no samples of processor time: record it with --cpu"],
    );
    for growth in [&[][..], &["--growth", "--work", "1:2"]] {
        refused(&[&["--copies"], growth].concat(), &has_no_copies);
        refused(&[&["--cpu"], growth].concat(), &has_no_samples);
        let words = ["has no system calls: record it with --syscalls"];
        refused(&[&["--syscalls"], growth].concat(), &words);
    }
    let picture = ["-o", "/tmp/never-made.svg"];
    for (of, trace) in [("--cpu", "copies.ltrace"), ("--copies", "samples.ltrace")] {
        let words = [trace, "of this measure: record with", of];
        refused(&[&[of], &picture[..]].concat(), &words);
    }
    refused(&["--copies", "--cpu"], &["--copies", "--cpu"]);
    refused(
        &["--copies", "--sort", "tiny"],
        &["--sort tiny", "bytes, calls"],
    );
    refused(&["--sort", "errors"], &["--sort errors", "live"]);
    let time = ["--syscalls", "--growth", "--sort", "time"];
    refused(&time, &["--sort time", "calls, errors or bytes"]);

    // Nothing is allocated, so nothing shows the work.
    let mut growth = larder();
    growth.args(["diff", "--growth", "--copies"]);
    growth.args([&copies, &copies]);
    assert_fails(&output(&mut growth), 125, &["no site grows", "--work"]);

    let whole = fs::read(&copies).expect("the trace");
    let cut = directory.path().join("cut.ltrace");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("written");
    let mut diff = larder();
    diff.args(["diff", "--copies"]).args([&copies, &cut]);
    assert_fails(&output(&mut diff), 125, &["cut.ltrace"]);
}

#[test]
fn a_picture_shows_the_change_of_what_is_compared() {
    let directory = temporary();
    let [old, new] = builds(directory.path(), &["--copies", "--syscalls"]);
    for (options, title) in [
        (&["--copies"][..], "Bytes copied and formatted"),
        (
            &["--copies", "--sort", "calls"],
            "Calls that copy and format",
        ),
        (&["--syscalls"], "System calls"),
    ] {
        let file = directory.path().join("change.svg");
        let mut diff = larder();
        diff.arg("diff").args([&old, &new]).args(options);
        assert_success(&output(diff.arg("-o").arg(&file)));
        let svg = fs::read_to_string(&file).expect("the picture");
        assert!(svg.contains(title) && svg.contains("red:"), "{options:?}");
    }
}
