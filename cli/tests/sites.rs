//! Which line is charged: inlined functions, C++ and Rust plumbing, wrappers, stripped programs, separate
//! debug files, replaced files.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use serde_json::{Value, json};

#[test]
fn an_inlined_function_is_charged_and_what_it_was_inlined_into_is_shown() {
    let source = r#"
#include <stdlib.h>
static void *volatile kept;
static inline __attribute__((always_inline)) void make(void) {
    kept = malloc(77);  // @make
}
static inline __attribute__((always_inline)) void middle(void) {
    make();  // @middle
}
int main(void) {
    middle();  // @main
    return 0;
}
"#;
    let directory = temporary();
    let program = compile(directory.path(), "inline.c", source, &["-g", "-O2"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let site = site_at(
        &report_json(&trace, &[]),
        "inline.c",
        line_of(source, "make"),
    );
    assert_eq!(site["function"], "make");
    let inlined: Vec<(Value, Value)> = site["inlined"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| (frame["function"].clone(), frame["line"].clone()))
        .collect();
    let expected = [("middle", "middle"), ("main", "main")]
        .map(|(function, mark)| (json!(function), json!(line_of(source, mark))));
    assert_eq!(inlined, expected);
    let text = report_text(&trace, &[]);
    assert!(text.contains("inlined into middle"), "{text}");
}

#[test]
fn the_standard_librarys_growth_is_charged_to_the_line_that_caused_it() {
    let source = r#"
#include <memory>
#include <string>
#include <vector>
struct Node { long a[4]; };
static std::vector<long> grow() {
    std::vector<long> numbers;
    for (long i = 0; i < 1000; i++)
        numbers.push_back(i);  // @push
    return numbers;
}
int main() {
    auto numbers = grow();
    auto node = std::make_unique<Node>();  // @unique
    Node *volatile plain = new Node;  // @new
    Node *volatile several = new Node[3];  // @array
    std::string text(100, 'x');  // @string
    delete plain;
    delete[] several;
    return (int)(numbers.size() + text.size() + node->a[0]) & 0;
}
"#;
    for flags in [&["-g", "-O0"][..], &["-g", "-O1"]] {
        let directory = temporary();
        let program = compile(directory.path(), "plumbing.cc", source, flags);
        let trace = record(directory.path(), &program, &[], &["--no-larder"]);
        let report = report_json(&trace, &[]);
        let at = |mark| site_at(&report, "plumbing.cc", line_of(source, mark));
        // 1, 2, 4, … 1024 elements.
        assert_eq!(at("push")["calls"], 11, "{flags:?}");
        assert_eq!(at("push")["function"], "grow");
        assert_eq!(at("unique")["bytes"], 32);
        assert_eq!(at("new")["kinds"], json!({ "operator new": 1 }));
        assert_eq!(at("array")["kinds"], json!({ "operator new[]": 1 }));
        assert_eq!(at("array")["bytes"], 96);
        assert_eq!(at("string")["calls"], 1);
        let counters = &report["counters"];
        assert_eq!(counters["news"], 11 + 1 + 1 + 1 + 1);
        assert_eq!(counters["deletes"], 11 + 1 + 1 + 1 + 1);
        let through = at("push")["through"].clone();
        let names = through
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|frame| frame["function"].as_str());
        assert!(
            names.into_iter().any(|name| name.contains("std::vector")),
            "{through:#}"
        );
    }
}

#[test]
fn rusts_standard_library_is_plumbing_too() {
    let source = "
use std::hint::black_box;
#[inline(never)]
fn collect(n: u64) -> Vec<u64> {
    let mut list = Vec::new();
    for i in 0..n {
        list.push(i); // @push
    }
    list
}
fn main() {
    let list = black_box(collect(black_box(1000)));
    let boxed = Box::new([list.len(); 9]); // @box
    black_box(boxed);
}
";
    let directory = temporary();
    let path = directory.path().join("plumbing.rs");
    fs::write(&path, source).unwrap();
    let program = directory.path().join("plumbing");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(&rustc)
        .args(["--edition=2021", "-g", "-Copt-level=1", "-o"])
        .args([&program, &path])
        .output()
        .unwrap_or_else(|error| panic!("rustc is needed for this test: {error}"));
    assert!(built.status.success(), "{}", stderr(&built));
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let report = report_json(&trace, &[]);
    let push = site_at(&report, "plumbing.rs", line_of(source, "push"));
    // 4, 8, … 1024 elements.
    assert_eq!(push["calls"], 9);
    assert_eq!(push["function"], "plumbing::collect");
    let boxed = site_at(&report, "plumbing.rs", line_of(source, "box"));
    assert_eq!(boxed["bytes"], 72);
}

const WRAPPED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static void *get(size_t n) { void *volatile p = malloc(n); return p; }
__attribute__((noinline)) void *my_malloc(size_t n) { void *volatile p = get(n + 16); return p; }
__attribute__((noinline)) char *my_strdup(const char *s) {
    char *volatile copy = my_malloc(strlen(s) + 1);
    return strcpy(copy, s);
}
__attribute__((noinline)) void my_free(void *p) {
    static FILE *log;
    if (!log) log = fopen("/dev/null", "w");
    fprintf(log, "free %p\n", p);
    free(p);
    __asm__ volatile("");
}
static void *volatile kept;
int main(void) {
    void *a = my_malloc(100);  // @malloc
    char *b = my_strdup("1234567");  // @strdup
    my_free(a);
    my_free(b);
    kept = malloc(5000);  // @plain
    return 0;
}
"#;

#[test]
fn with_wrappers_only_they_count_and_their_callers_are_charged() {
    let directory = temporary();
    let program = compile(directory.path(), "wrapped.c", WRAPPED, &["-g", "-O1"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let options = [
        "--wrapper",
        "my_mal*=malloc-16",
        "--wrapper",
        "my_strdup=strdup-16",
        "--wrapper",
        "my_free=free",
    ];
    let report = report_json(&trace, &options);
    let counters = &report["counters"];
    assert_eq!(counters["mallocs"], 1, "{counters:#}");
    assert_eq!(counters["strdups"], 1);
    assert_eq!(counters["allocations"], 2);
    assert_eq!(counters["frees"], 2);
    assert_eq!(counters["total_bytes"], 108);
    assert_eq!(counters["peak_bytes"], 108);
    assert_eq!(counters["live_bytes"], 0);
    assert_eq!(
        site_at(&report, "wrapped.c", line_of(WRAPPED, "malloc"))["bytes"],
        100
    );
    let strdup = site_at(&report, "wrapped.c", line_of(WRAPPED, "strdup"));
    assert_eq!(strdup["kinds"], json!({ "strdup": 1 }));
    assert_eq!(report["sites"].as_array().unwrap().len(), 2);
}

#[test]
fn a_skipped_function_hands_its_charge_to_its_caller() {
    let directory = temporary();
    let program = compile(directory.path(), "wrapped.c", WRAPPED, &["-g", "-O1"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let options = ["--skip", "get", "--skip", "my_*"];
    let report = report_json(&trace, &options);
    let site = site_at(&report, "wrapped.c", line_of(WRAPPED, "malloc"));
    assert_eq!(site["bytes"], 116);
    assert_eq!(
        site_at(&report, "wrapped.c", line_of(WRAPPED, "plain"))["bytes"],
        5000
    );
}

#[test]
fn a_wrapper_or_skip_that_matches_nothing_is_reported() {
    let directory = temporary();
    let program = compile(directory.path(), "wrapped.c", WRAPPED, &["-g", "-O1"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let report = |options: &[&str]| {
        output(
            larder()
                .args(["report", "--json"])
                .arg(&trace)
                .args(options),
        )
    };
    let good = report(&["--wrapper", "my_mal*=malloc", "--skip", "get"]);
    assert_success(&good);
    assert_eq!(stderr(&good), "");
    let good: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(good["warnings"], json!([]));
    let bad = report(&[
        "--wrapper",
        "my_malok=malloc",
        "--wrapper",
        "my_free=free",
        "--skip",
        "gett",
    ]);
    assert_success(&bad);
    let text = stderr(&bad);
    assert_eq!(text.lines().count(), 1, "{text}");
    let bad: Value = serde_json::from_slice(&bad.stdout).unwrap();
    let warnings = bad["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (warning, option) in warnings
        .iter()
        .zip(["--wrapper 'my_malok'", "--skip 'gett'"])
    {
        let warning = warning.as_str().unwrap();
        assert!(warning.starts_with(option), "{warning}");
        assert!(text.contains(warning), "{text}");
    }
}

const PLAIN: &str = r#"
#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) void make_it(void) {
    kept = malloc(4321);  // @make
}
int main(void) {
    make_it();
    return 0;
}
"#;

fn made_site(report: &Value) -> Value {
    let sites = report["sites"].as_array().unwrap();
    sites
        .iter()
        .find(|site| site["bytes"] == 4321)
        .expect("the site")
        .clone()
}

fn strip(program: &Path, option: &str) {
    let stripped = Command::new("strip")
        .arg(option)
        .arg(program)
        .output()
        .expect("strip");
    assert!(stripped.status.success(), "{}", stderr(&stripped));
}

#[test]
fn without_debug_information_there_are_functions_and_without_symbols_offsets() {
    let directory = temporary();
    let program = compile(directory.path(), "plain.c", PLAIN, &["-O1"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let report = report_json(&trace, &[]);
    let site = made_site(&report);
    assert_eq!(site["function"], "make_it");
    assert_eq!(site["line"], Value::Null);
    assert!(site["offset"].as_u64().unwrap() > 0);
    let text = report_text(&trace, &[]);
    assert!(text.contains("make_it+0x"), "{text}");
    assert!(text.contains("no debug information"), "{text}");
    let advice = output(larder().arg("advise").arg(&trace));
    assert_success(&advice);
    assert!(
        stdout(&advice).contains("--debuginfod URL"),
        "{}",
        stdout(&advice)
    );
    assert!(
        !text.contains("__libc_start"),
        "the frames before main are shown: {text}"
    );

    strip(&program, "--strip-all");
    let site = made_site(&report_json(&trace, &[]));
    assert_eq!(site["function"], Value::Null);
    assert!(site["address"].as_u64().unwrap() > 0);
    assert!(report_text(&trace, &[]).contains("plain+0x"));
}

#[test]
fn separate_debug_files_are_found_by_their_link() {
    let directory = temporary();
    let program = compile(directory.path(), "plain.c", PLAIN, &["-g", "-O1"]);
    let debug = directory.path().join(".debug");
    fs::create_dir(&debug).unwrap();
    let debug_file = debug.join("plain.debug");
    let objcopy = |arguments: &[&std::ffi::OsStr]| {
        let done = Command::new("objcopy")
            .args(arguments)
            .output()
            .expect("objcopy");
        assert!(done.status.success(), "{}", stderr(&done));
    };
    objcopy(&[
        "--only-keep-debug".as_ref(),
        program.as_os_str(),
        debug_file.as_os_str(),
    ]);
    strip(&program, "--strip-all");
    let link = format!("--add-gnu-debuglink={}", debug_file.display());
    objcopy(&[link.as_ref(), program.as_os_str()]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let site = site_at(&report_json(&trace, &[]), "plain.c", line_of(PLAIN, "make"));
    assert_eq!(site["bytes"], 4321);
}

#[test]
fn a_program_built_anew_since_is_noticed_and_its_symbols_are_not_used() {
    let directory = temporary();
    let program = compile(directory.path(), "plain.c", PLAIN, &["-g", "-O1"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let other = PLAIN.replace("make_it", "make_else");
    fs::remove_file(&program).unwrap();
    compile(directory.path(), "plain.c", &other, &["-g", "-O1"]);
    let report = report_json(&trace, &[]);
    assert_eq!(made_site(&report)["function"], Value::Null);
    let problems = report["symbols"].as_array().unwrap();
    assert!(
        problems
            .iter()
            .any(|problem| problem["problem"] == "replaced since the recording"),
        "{problems:?}"
    );
    assert!(report_text(&trace, &[]).contains("replaced since the recording"));
}

#[test]
fn hostile_names_are_shown_escaped() {
    let source = r#"
#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) void evil(void) __asm__("\"evil\033[2J\"");
void evil(void) { kept = malloc(4321); }
int main(void) { evil(); return 0; }
"#;
    let directory = temporary();
    let odd = directory.path().join("a\u{1b}[31mb");
    fs::create_dir(&odd).unwrap();
    let program = compile(&odd, "evil.c", source, &["-O1"]);
    let trace = record(directory.path(), &program, &["\u{7}bell"], &["--no-larder"]);
    for options in [&[][..], &["--sort", "bytes"], &["--json"]] {
        let text = report_text(&trace, options);
        let control = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(control), "{options:?}: {text:?}");
    }
    let text = report_text(&trace, &["--sort", "bytes"]);
    assert!(text.contains("evil\\x1b[2J"), "{text}");
}
