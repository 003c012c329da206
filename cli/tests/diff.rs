//! `larder diff`: two builds of small programs.

use std::fs;

use crate::common::diff::*;
use crate::common::*;
use serde_json::{Value, json};

const OLD: &str = r#"
APART void wait_turn(void) { kept = malloc(40); free(kept); }
APART void load(void) {
    kept = malloc(100);
    kept = malloc(20);
    kept = malloc(3000);
}
APART void parse_header(int n) {
    kept = malloc(64);
    kept = realloc(kept, 64 + n);
}
APART void dropped(void) { kept = calloc(7, 9); }
static inline __attribute__((always_inline)) void leaf(void) { kept = malloc(333); }
APART void branch(void) { leaf(); kept = strdup("branch"); }
APART void steady(void) { kept = malloc(512); }
int main(void) {
    for (int i = 0; i < 1000; i++) wait_turn();
    load();
    for (int i = 0; i < 5; i++) parse_header(i);
    dropped();
    branch();
    steady();
    return 0;
}
"#;

/// All moved down; fewer turns; one block of `load` gone; `parse_header` renamed; `dropped` gone and
/// `added` new; `leaf` not inlined.
const NEW: &str = r#"
/* Lines

   more. */
APART void added(void) { for (int i = 0; i < 9; i++) kept = malloc(5000); }
APART void steady(void) { kept = malloc(512); }
APART void leaf(void) { kept = malloc(333); }
APART void branch(void) { leaf(); kept = strdup("branch"); }
APART void read_header(int n) {
    kept = malloc(64);
    kept = realloc(kept, 64 + n);
}
APART void load(void) {
    kept = malloc(100);

    kept = malloc(3000);
}
APART void wait_turn(void) { kept = malloc(40); free(kept); }
int main(void) {
    for (int i = 0; i < 3; i++) wait_turn();
    load();
    for (int i = 0; i < 5; i++) read_header(i);
    branch();
    steady();
    added();
    return 0;
}
"#;

/// Status, function before and after, calls before and after, of the sites of the program's own.
fn rows(document: &Value) -> Vec<(String, String, String, u64, u64)> {
    let text = |site: &Value| site["function"].as_str().unwrap_or_default().to_owned();
    let sites = document["sites"].as_array().expect("sites").iter();
    let mut rows: Vec<_> = sites
        .map(|row| {
            let (before, after) = (&row["before"], &row["after"]);
            (
                row["status"].as_str().unwrap().to_owned(),
                text(before),
                text(after),
                before["calls"].as_u64().unwrap_or(0),
                after["calls"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    rows.sort();
    rows
}

fn row(
    status: &str,
    before: &str,
    after: &str,
    calls: [u64; 2],
) -> (String, String, String, u64, u64) {
    (
        status.into(),
        before.into(),
        after.into(),
        calls[0],
        calls[1],
    )
}

#[test]
fn sites_are_found_again_wherever_they_went() {
    let directory = temporary();
    let old = trace(directory.path(), "old", OLD, &["-g", "-O1"], &[]);
    let new = trace(directory.path(), "new", NEW, &["-g", "-O1"], &[]);
    let document = diff_json(&[&old, &new], &["--all"]);
    let expected = [
        row("changed", "wait_turn", "wait_turn", [1000, 3]),
        row("gone", "dropped", "", [1, 0]),
        row("gone", "load", "", [1, 0]),
        row("moved", "parse_header", "read_header", [5, 5]),
        row("moved", "parse_header", "read_header", [5, 5]),
        row("new", "", "added", [0, 9]),
        row("same", "branch", "branch", [1, 1]),
        row("same", "leaf", "leaf", [1, 1]),
        row("same", "load", "load", [1, 1]),
        row("same", "load", "load", [1, 1]),
        row("same", "steady", "steady", [1, 1]),
    ];
    assert_eq!(rows(&document), expected, "{document:#}");
    let sites = document["sites"].as_array().unwrap();
    let gone = sites
        .iter()
        .find(|row| row["before"]["function"] == "load" && row["after"].is_null());
    assert_eq!(gone.unwrap()["before"]["bytes"], 20);
    let renamed = sites
        .iter()
        .filter(|row| row["after"]["function"] == "read_header");
    for row in renamed {
        assert_eq!(
            (&row["match"], &row["guess"]),
            (&json!("renamed"), &json!(true))
        );
        assert_eq!(row["before"]["bytes"], row["after"]["bytes"]);
    }
    // The greatest change of what was asked for comes first.
    assert_eq!(sites[0]["after"]["function"], "wait_turn");
    let by_bytes = diff_json(&[&old, &new], &["--sort", "bytes"]);
    assert_eq!(by_bytes["sites"][0]["after"]["function"], "added");
}

#[test]
fn the_text_has_the_counters_and_only_what_changed() {
    let directory = temporary();
    let old = trace(directory.path(), "old", OLD, &["-g", "-O1"], &[]);
    let new = trace(directory.path(), "new", NEW, &["-g", "-O1"], &[]);
    let text = diff_text(&[&old, &new], &[]);
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found
            .unwrap_or_else(|| panic!("no line {start} in {text}"))
            .to_owned()
    };
    let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(line("Allocations")),
        "Allocations 1,017 27 -990 38 times fewer"
    );
    assert_eq!(words(line("Callocs")), "Callocs 1 0 -1 none after");
    assert_eq!(words(line("Reallocs")), "Reallocs 5 5");
    assert!(
        line("changed").contains("1,000               3             -997  wait_turn"),
        "{text}"
    );
    assert!(
        text.contains("1 new, 2 gone, 1 changed, 2 moved, 5 same"),
        "{text}"
    );
    assert!(
        !text.contains("steady") && !text.contains("read_header"),
        "{text}"
    );
    let all = diff_text(&[&old, &new], &["--all", "--top", "0"]);
    assert!(all.contains("a guess: renamed; was parse_header"), "{all}");
    let top = diff_text(&[&old, &new], &["--top", "1"]);
    assert!(top.contains("3 more sites"), "{top}");
    let same = diff_text(&[&old, &old], &[]);
    assert!(same.contains("no site changed"), "{same}");
}

#[test]
fn a_build_without_debug_information_is_matched_by_function() {
    let directory = temporary();
    let old = trace(directory.path(), "old", OLD, &["-g", "-O1"], &[]);
    let new = trace(directory.path(), "new", NEW, &["-O1"], &[]);
    let document = diff_json(&[&old, &new], &["--all"]);
    let found = rows(&document);
    for expected in [
        row("changed", "wait_turn", "wait_turn", [1000, 3]),
        row("gone", "load", "", [1, 0]),
        row("same", "load", "load", [1, 1]),
        row("same", "leaf", "leaf", [1, 1]),
        row("moved", "parse_header", "read_header", [5, 5]),
    ] {
        assert!(
            found.contains(&expected),
            "{expected:?} is not in {found:#?}"
        );
    }
    let warnings = document["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0]
            .as_str()
            .unwrap()
            .contains("app has no source lines"),
        "{warnings:?}"
    );
    // Without lines in the old build its `leaf` is a part of `branch`: only likeness is left.
    let old = trace(directory.path(), "bare", OLD, &["-O1"], &[]);
    let document = diff_json(&[&old, &new], &["--all"]);
    let inlined = row("moved", "branch", "leaf", [1, 1]);
    assert!(rows(&document).contains(&inlined), "{document:#}");
    assert_eq!(document["warnings"], json!([]));
}

#[test]
fn a_function_of_the_same_name_in_another_module_is_another() {
    let library = |size: u32| {
        format!(
            "#include <stdlib.h>\nstatic void *volatile kept;\n\
             __attribute__((noinline)) static void setup(void) {{ kept = malloc({size}); }}\n\
             void start_{size}(void) {{ setup(); }}\n"
        )
    };
    let main = |calls: &str| {
        format!(
            "void start_48(void); void start_96(void);\nint main(void) {{ {calls} return 0; }}\n"
        )
    };
    let directory = temporary();
    let build = |name: &str, calls: &str| {
        let directory = directory.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        let shared = ["-g", "-O0", "-shared", "-fPIC"];
        let first = compile(&directory, "libfirst.so.c", &library(48), &shared);
        let second = compile(&directory, "libsecond.so.c", &library(96), &shared);
        let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
        let flags = ["-g", "-O0", "-Wl,--no-as-needed", first, second];
        let program = compile(&directory, "app.c", &main(calls), &flags);
        record(&directory, &program, &[], &["--no-larder"])
    };
    let old = build("old", "for (int i = 0; i < 7; i++) start_48(); start_96();");
    let new = build("new", "start_96(); start_96();");
    let document = diff_json(&[&old, &new], &[]);
    let expected = [
        row("changed", "setup", "setup", [1, 2]),
        row("gone", "setup", "", [7, 0]),
    ];
    assert_eq!(rows(&document), expected, "{document:#}");
}

#[test]
fn a_method_that_moved_to_another_file_is_a_guess() {
    let source = |file: &str, calls: u32| {
        format!(
            "namespace net {{\n#line 1 \"{file}\"\ntemplate <typename T> struct Pool {{\n\
             APART2 void grow(int n) {{ kept = new T[n]; }}\n}};\n}}\n#line 1 \"app.cc\"\n\
             int main() {{ net::Pool<long> pool; for (int i = 0; i < {calls}; i++) pool.grow(9); }}\n"
        )
    };
    let directory = temporary();
    let flags = ["-g", "-O1", "-xc++", "-DAPART2=__attribute__((noinline))"];
    let old = trace(directory.path(), "old", &source("old.h", 4), &flags, &[]);
    let new = trace(directory.path(), "new", &source("pool.h", 5), &flags, &[]);
    let document = diff_json(&[&old, &new], &[]);
    let name = "net::Pool<long>::grow";
    assert_eq!(
        rows(&document),
        [row("moved", name, name, [4, 5])],
        "{document:#}"
    );
    let moved = &document["sites"][0];
    assert_eq!(
        (&moved["match"], &moved["guess"]),
        (&json!("moved to another file"), &json!(true))
    );
    let text = diff_text(&[&old, &new], &[]);
    assert!(
        text.contains("moved to another file") && text.contains("old.h:2"),
        "{text}"
    );
}

#[test]
fn recursion_and_several_sites_of_one_size_are_kept_apart() {
    let source = |extra: &str, depth: u32| {
        format!(
            "APART void walk(int depth) {{\n{extra}    kept = malloc(24);\n    if (depth > 0) walk(depth - 1);\n\
             kept = malloc(24);\n}}\nint main(void) {{ walk({depth}); return 0; }}\n"
        )
    };
    let directory = temporary();
    let old = trace(directory.path(), "old", &source("", 4), &["-g", "-O0"], &[]);
    let new = trace(
        directory.path(),
        "new",
        &source("\n\n    kept = calloc(1, 24);\n", 9),
        &["-g", "-O0"],
        &[],
    );
    let document = diff_json(&[&old, &new], &[]);
    let expected = [
        row("changed", "walk", "walk", [5, 10]),
        row("changed", "walk", "walk", [5, 10]),
        row("new", "", "walk", [0, 10]),
    ];
    assert_eq!(rows(&document), expected, "{document:#}");
    for row in document["sites"].as_array().unwrap() {
        if row["status"] == "changed" {
            let shift =
                row["after"]["line"].as_u64().unwrap() - row["before"]["line"].as_u64().unwrap();
            assert_eq!(shift, 3, "{row:#}");
        }
    }
}

#[test]
fn counters_without_calls_are_compared_but_for_the_peak_of_each_site() {
    let directory = temporary();
    let full = trace(directory.path(), "full", OLD, &["-g", "-O1"], &[]);
    let counted = directory.path().join("counted.trace");
    let program = directory.path().join("full/app");
    let mut record = larder();
    record
        .args(["record", "--aggregate", "--no-larder", "-o"])
        .arg(&counted)
        .arg(&program);
    assert_success(&output(&mut record));
    let document = diff_json(&[&full, &counted], &[]);
    assert_eq!(document["sites"], json!([]), "{document:#}");
    let document = diff_json(&[&full, &counted], &["--all"]);
    assert_eq!(document["sites"][0]["after"]["peak_bytes"], Value::Null);
    let peak = output(
        larder()
            .arg("diff")
            .args([&full, &counted])
            .args(["--sort", "peak"]),
    );
    assert_fails(&peak, 125, &["counted.trace", "--aggregate"]);
}

#[test]
fn wrong_use_and_unreadable_traces_are_reported_in_one_line() {
    let directory = temporary();
    let empty = directory.path().join("empty.ltrace");
    fs::write(&empty, "").unwrap();
    let diff = |arguments: &[&str]| output(larder().arg("diff").args(arguments));
    let empty = empty.to_str().unwrap();
    assert_fails(&diff(&[empty, empty]), 125, &["empty"]);
    assert_fails(&diff(&["/nowhere"]), 125, &["2"]);
    assert_fails(&diff(&["/nowhere", "/nowhere"]), 125, &["/nowhere"]);
    assert_fails(&diff(&["a", "b", "c"]), 125, &["--growth"]);
    assert_fails(&diff(&["a", "b", "--work", "1:2"]), 125, &["--growth"]);
    assert_fails(
        &diff(&["a", "b", "--growth", "--work", "1:2:3"]),
        125,
        &["3 numbers for 2 traces"],
    );
    assert_fails(
        &diff(&["a", "b", "--growth", "--work", "2:1"]),
        125,
        &["growing numbers"],
    );
}

/// One helper's line for three callers, of which the one with the fewest calls changes.
fn shared_helper(changing: u32, lines: &str) -> String {
    format!(
        "{lines}APART void helper(int n) {{ for (int i = 0; i < n; i++) kept = malloc(48); }}\n\
         APART void heavy(void) {{ helper(500); }}\n\
         APART void light(void) {{ helper(40); }}\n\
         APART void changing(void) {{ helper({changing}); }}\n\
         int main(void) {{ heavy(); light(); changing(); return 0; }}\n"
    )
}

/// The functions that called the site of a row's stack, of the program's own.
fn callers(row: &Value) -> Vec<&str> {
    let frames = row["stack"]["frames"].as_array().expect("frames").iter();
    let names = frames.filter_map(|frame| frame["function"].as_str());
    names
        .skip_while(|name| *name != "helper")
        .skip(1)
        .take(2)
        .collect()
}

#[test]
fn the_stack_of_a_row_is_the_one_that_changed() {
    let directory = temporary();
    let flags = ["-g", "-O1"];
    let run = |name: &str, calls, lines| {
        let source = shared_helper(calls, lines);
        trace(directory.path(), name, &source, &flags, &[])
    };
    let [old, new, none] = [
        run("old", 3, ""),
        run("new", 90, "\n\n"),
        run("none", 0, "\n"),
    ];
    let document = diff_json(&[&old, &new], &[]);
    let [row] = &document["sites"].as_array().unwrap()[..] else {
        panic!("{document:#}");
    };
    assert_eq!(callers(row), ["changing", "main"], "{row:#}");
    let stack = &row["stack"];
    assert_eq!(
        [
            &stack["figure"],
            &stack["before"],
            &stack["after"],
            &stack["of"]
        ],
        [&json!("calls"), &json!(3), &json!(90), &json!(3)]
    );
    let text = diff_text(&[&old, &new], &[]);
    let (_, below) = text.split_once("helper  ").expect("the row");
    assert!(
        below.contains("of 3 stacks this changed most: 3 → 90 calls\n")
            && below.contains("← changing (app.c:")
            && !below.contains("heavy"),
        "{text}"
    );
    let by_bytes = diff_json(&[&old, &new], &["--sort", "bytes"]);
    let stack = &by_bytes["sites"][0]["stack"];
    assert_eq!(
        (&stack["before"], &stack["after"]),
        (&json!(144), &json!(4320))
    );
    // A caller that is gone is shown as it was.
    let document = diff_json(&[&old, &none], &[]);
    let row = &document["sites"][0];
    assert_eq!(callers(row), ["changing", "main"], "{row:#}");
    assert_eq!(
        (&row["stack"]["before"], &row["stack"]["after"]),
        (&json!(3), &json!(0))
    );
    let same = diff_json(&[&old, &old], &["--all"]);
    assert_eq!(same["sites"][0]["stack"], Value::Null);
    let growth = diff_json(&[&old, &new], &["--growth", "--all", "--work", "1:2"]);
    let grown = growth["sites"].as_array().unwrap().iter();
    let row = grown
        .clone()
        .find(|row| row["site"]["function"] == "helper");
    assert_eq!(callers(row.unwrap()), ["changing", "main"], "{growth:#}");
}

#[test]
fn callers_without_names_are_distinguished_by_their_addresses_in_one_build() {
    let source = r#"
static int changing_calls;
APART void helper(int n) { for (int i = 0; i < n; i++) kept = malloc(48); }
APART void heavy(void) { helper(500); }
APART void light(void) { helper(40); }
APART void changing(void) { helper(changing_calls); }
int main(int argc, char **argv) {
    changing_calls = atoi(argv[argc - 1]);
    heavy(); light(); changing();
    return 0;
}
"#;
    let directory = temporary();
    let flags = ["-s", "-O1", "-Wl,--build-id"];
    let program = compile(
        directory.path(),
        "app.c",
        &format!("{HEAD}{source}"),
        &flags,
    );
    let run = |calls: &str| {
        let place = directory.path().join(calls);
        fs::create_dir(&place).unwrap();
        record(&place, &program, &[calls], &["--no-larder"])
    };
    let [old, new] = ["3", "90"].map(run);
    let document = diff_json(&[&old, &new], &[]);
    let stack = &document["sites"][0]["stack"];
    assert_eq!(
        [&stack["before"], &stack["after"], &stack["of"]],
        [&json!(3), &json!(90), &json!(3)],
        "{document:#}"
    );
}

#[test]
fn a_stack_of_several_processes_is_one() {
    let source = |calls: u32| {
        format!(
            "#include <sys/wait.h>\n#include <unistd.h>\n\
             APART void work(void) {{ for (int i = 0; i < {calls}; i++) kept = malloc(48); }}\n\
             int main(void) {{\n    if (fork() == 0) {{ work(); exit(0); }}\n    wait(0);\n\
             \n    work();\n    return 0;\n}}\n"
        )
    };
    let directory = temporary();
    let flags = ["-g", "-O1"];
    let old = trace(directory.path(), "old", &source(5), &flags, &[]);
    let new = trace(directory.path(), "new", &source(7), &flags, &[]);
    let document = diff_json(&[&old, &new], &[]);
    let stack = &document["sites"][0]["stack"];
    assert_eq!(
        [&stack["before"], &stack["after"], &stack["of"]],
        [&json!(10), &json!(14), &json!(1)],
        "{document:#}"
    );
}
