//! A program's own allocation functions: found by themselves, passed over, and told, by every command
//! that names sites.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::browser::Browser;
use common::running::{Running, preloaded};
use common::*;
use serde_json::{Value, json};

/// Eight callers of several sizes ask through `take_words`, which no one would know by its name; one
/// asks through `xmalloc`. Nothing is freed, and what the callers of `lose` get is lost. With an
/// argument it says `ready`, and waits for the end of stdin; with `few` only two callers ask.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#define APART __attribute__((noinline))
static void *volatile sink;
APART void *take_words(long words) { void *volatile p = malloc(words * 8); return p; }
APART void *xmalloc(size_t n) { void *volatile p = malloc(n); return p; }
#define CALLER(NAME, WORDS) APART void NAME(void) { sink = take_words(WORDS); sink = 0; }
CALLER(ask_a, 1) CALLER(ask_b, 2) CALLER(ask_c, 3) CALLER(ask_d, 4)
CALLER(ask_e, 5) CALLER(ask_f, 6) CALLER(ask_g, 7) CALLER(ask_h, 8)
APART void single(void) { sink = xmalloc(500); sink = 0; }
#ifdef MORE
APART void more(void) { sink = take_words(9); sink = 0; }
#endif
int main(int argc, char **argv) {
    int few = argc > 1 && argv[1][0] == 'f';
    for (int i = 0; i < 50; i++) {
        ask_a(); ask_b();
        if (few) continue;
        ask_c(); ask_d(); ask_e(); ask_f(); ask_g(); ask_h();
    }
    single();
#ifdef MORE
    more();
#endif
    if (argc > 1 && !few) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    return 0;
}
"#;

const FLAGS: [&str; 3] = ["-g", "-O1", "-fno-builtin"];
const PASSED: &str = "callers are charged for take_words, xmalloc (--no-wrappers charges these)";

fn program(directory: &Path) -> PathBuf {
    compile(directory, "words.c", SOURCE, &FLAGS)
}

fn functions(sites: &Value) -> Vec<&str> {
    let sites = sites.as_array().expect("sites").iter();
    sites.filter_map(|site| site["function"].as_str()).collect()
}

/// Runs it for people and for programs: with wrappers passed over, with them charged, and with a
/// caller skipped.
#[track_caller]
fn assert_charges(run: impl Fn(&[&str]) -> std::process::Output) {
    let both = |options: &[&str]| {
        let text = run(options);
        let json = run(&[options, &["--json"]].concat());
        let document: Value = serde_json::from_slice(&json.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&json)));
        (stdout(&text), document, stderr(&text))
    };
    let (text, document, _) = both(&[]);
    assert!(text.contains(PASSED), "{text}");
    assert_eq!(document["wrappers"], json!(["take_words", "xmalloc"]));
    let found = functions(&document["sites"]);
    assert!(
        found.contains(&"ask_a") && found.contains(&"single"),
        "{found:?}"
    );
    assert!(
        !found.contains(&"take_words") && !found.contains(&"xmalloc"),
        "{found:?}"
    );

    let (text, document, _) = both(&["--no-wrappers"]);
    assert!(!text.contains("callers are charged"), "{text}");
    assert_eq!(document["wrappers"], json!([]));
    let found = functions(&document["sites"]);
    assert!(
        found.contains(&"take_words") && found.contains(&"xmalloc"),
        "{found:?}"
    );
    assert!(
        !found.contains(&"ask_a") && !found.contains(&"single"),
        "{found:?}"
    );

    let options = ["--no-wrappers", "--skip", "take_words", "--skip", "no_such"];
    let (_, document, warnings) = both(&options);
    let found = functions(&document["sites"]);
    assert!(
        found.contains(&"ask_a") && found.contains(&"xmalloc"),
        "{found:?}"
    );
    assert!(
        warnings.contains("--skip 'no_such' matches no function"),
        "{warnings}"
    );
}

#[test]
fn a_profile_charges_their_callers() {
    let directory = temporary();
    let program = program(directory.path());
    assert_charges(|options| {
        let mut larder = larder();
        larder.args([
            "profile",
            "--mean",
            "1",
            "--sort",
            "allocated",
            "--top",
            "0",
        ]);
        output(larder.args(options).arg("--").arg(&program))
    });
    let file = directory.path().join("words.heap");
    let mut larder = larder();
    larder.args(["profile", "--mean", "1", "-o"]).arg(&file);
    assert_success(&output(larder.arg("--").arg(&program)));
    assert_charges(|options| {
        let mut larder = common::larder();
        larder.args(["profile", "--sort", "in-use", "--top", "0"]);
        output(larder.arg(&file).args(options))
    });
}

#[test]
fn a_site_is_the_same_in_the_base_though_wrappers_do_not_show_there() {
    let directory = temporary();
    let program = program(directory.path());
    let profiled = |words: &[&str]| {
        let file = directory.path().join(format!("{}.heap", words.len()));
        let mut larder = larder();
        larder.args(["profile", "--mean", "1", "-o"]).arg(&file);
        assert_success(&output(larder.arg("--").arg(&program).args(words)));
        file
    };
    let [all, few] = [profiled(&[]), profiled(&["few"])];
    let mut larder = larder();
    larder.args(["profile", "--json"]).arg(&all);
    let found = output(larder.arg("--base").arg(&few));
    assert_success(&found);
    let document: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let sites = functions(&document["sites"]);
    assert!(
        sites.contains(&"ask_h") && !sites.contains(&"ask_a") && !sites.contains(&"take_words"),
        "{document:#}"
    );
}

#[test]
fn a_running_process_has_its_callers_charged() {
    let directory = temporary();
    let program = program(directory.path());
    let mut command = preloaded(&program);
    command.arg("wait").env("LARDER_PROFILE_BYTES", "1");
    let process = Running::once_it_says("ready", command.env("HEAPCHECK", "normal"));
    let id = process.id().to_string();
    for command in ["profile", "leaks"] {
        assert_charges(|options| output(larder().args([command, &id, "--top", "0"]).args(options)));
    }
}

#[test]
fn lost_memory_is_charged_to_their_callers() {
    let directory = temporary();
    let program = program(directory.path());
    assert_charges(|options| {
        let mut larder = larder();
        larder.args(["leaks", "--top", "0"]).args(options);
        output(larder.arg("--").arg(&program))
    });
}

/// Compiles and records under a name of its own.
fn recorded(directory: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let directory = directory.join(name);
    fs::create_dir(&directory).unwrap();
    let flags = [&FLAGS, flags].concat();
    let program = compile(&directory, "words.c", SOURCE, &flags);
    record(&directory, &program, &[], &["--no-larder"])
}

#[test]
fn a_budget_is_broken_by_their_caller() {
    let directory = temporary();
    let [before, after] = [&[][..], &["-DMORE"]]
        .map(|flags: &[&str]| recorded(directory.path(), &flags.len().to_string(), flags));
    let check = |trace: &Path, options: &[&str]| {
        let mut larder = larder();
        larder.current_dir(directory.path()).arg("check").arg(trace);
        output(larder.arg("--no-history").args(options))
    };
    let site = |options: &[&str]| {
        assert_success(&check(&before, &[&["--update"], options].concat()));
        let red = check(&after, options);
        assert_eq!(code(&red), 1, "{}", stderr(&red));
        let json = check(&after, &[&["--json"], options].concat());
        let verdict: Value = serde_json::from_slice(&json.stdout).expect("JSON");
        let site = &verdict["exceeded"][0]["site"]["function"];
        (stderr(&red), site.clone(), verdict["wrappers"].clone())
    };
    let (text, function, wrappers) = site(&[]);
    assert!(
        text.contains("site: more at ") && text.contains(PASSED),
        "{text}"
    );
    assert_eq!(
        (function, wrappers),
        (json!("more"), json!(["take_words", "xmalloc"]))
    );
    let (text, function, wrappers) = site(&["--no-wrappers"]);
    assert!(
        text.contains("site: take_words at ")
            && !text.contains("callers are charged")
            && text.contains("larder check --update --no-wrappers "),
        "{text}"
    );
    assert_eq!((function, wrappers), (json!("take_words"), json!([])));
    let (text, function, _) = site(&["--skip", "m[o]re", "--skip", "more*"]);
    assert!(text.contains("--skip 'm[o]re' --skip 'more*'"), "{text}");
    assert_eq!(function, "main");
}

#[test]
fn both_sides_of_a_comparison_say_whom_they_pass_over() {
    let directory = temporary();
    let [before, after] = [&[][..], &["-DMORE"]]
        .map(|flags: &[&str]| recorded(directory.path(), &flags.len().to_string(), flags));
    let diff = |options: &[&str]| {
        let mut larder = larder();
        larder.arg("diff").args([&before, &after]).args(options);
        let found = output(&mut larder);
        assert_success(&found);
        stdout(&found)
    };
    let text = diff(&[]);
    assert_eq!(text.matches(PASSED).count(), 2, "{text}");
    let document: Value = serde_json::from_str(&diff(&["--json"])).expect("JSON");
    for side in ["before", "after"] {
        assert_eq!(document[side]["wrappers"], json!(["take_words", "xmalloc"]));
    }
    assert_eq!(
        document["sites"][0]["after"]["function"], "more",
        "{document:#}"
    );
    let text = diff(&["--no-wrappers"]);
    assert!(!text.contains("callers are charged"), "{text}");
    let document: Value = serde_json::from_str(&diff(&["--no-wrappers", "--json"])).expect("JSON");
    let row = &document["sites"][0];
    assert_eq!(
        (&row["status"], &row["after"]["function"]),
        (&json!("changed"), &json!("take_words"))
    );
}

#[test]
fn a_page_says_in_its_head_whom_it_passes_over() {
    let directory = temporary();
    let trace = recorded(directory.path(), "page", &[]);
    let page = |options: &[&str]| {
        let file = directory.path().join("page.html");
        let mut larder = larder();
        larder
            .arg("html")
            .arg(&trace)
            .args(options)
            .arg("-o")
            .arg(&file);
        assert_success(&output(&mut larder));
        file
    };
    let file = page(&[]);
    let mut browser = Browser::open(&file, "");
    let head = browser.value("document.getElementById('head').innerText");
    assert!(head.as_str().expect("text").contains(PASSED), "{head}");
    let text = fs::read_to_string(page(&["--no-wrappers"])).unwrap();
    assert!(!text.contains("callers are charged for"), "the head");
}
