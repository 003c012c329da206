//! A program's own allocation functions: found by themselves, passed over, and reported, by every command
//! that names sites.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::browser::Browser;
use crate::common::running::{Running, preloaded};
use crate::common::*;
use serde_json::{Value, json};
use tempfile::TempDir;

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
fn assert_charges(run: impl Fn(&[&str]) -> Output) {
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
        let mut larder = crate::common::larder();
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
        let mut larder = crate::common::larder();
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
        let mut larder = crate::common::larder();
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
        sites.contains(&"ask_h") && !sites.contains(&"take_words"),
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
        let mut larder = crate::common::larder();
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
        let mut larder = crate::common::larder();
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
        let mut larder = crate::common::larder();
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
fn a_function_without_a_name_is_skipped_by_its_address() {
    let directory = temporary();
    let trace = recorded(directory.path(), "stripped", &["-s"]);
    let report = |options: &[&str]| {
        let mut larder = crate::common::larder();
        larder.arg("report").arg(&trace).args(options);
        let found = output(&mut larder);
        assert_success(&found);
        (stdout(&found), stderr(&found))
    };
    let (text, _) = report(&["--no-wrappers", "--top", "1"]);
    let name = text
        .split_whitespace()
        .find(|word| word.starts_with("words+0x"));
    let name = name.unwrap_or_else(|| panic!("{text}"));
    let (skipped, warnings) = report(&["--no-wrappers", "--top", "0", "--skip", name]);
    assert!(!warnings.contains("matches no function"), "{warnings}");
    let charged = |line: &str| line.contains('%') && line.contains(&format!("{name} "));
    assert!(text.lines().any(charged), "{text}");
    assert!(!skipped.lines().any(charged), "{skipped}");
}

#[test]
fn a_page_says_in_its_head_whom_it_passes_over() {
    let directory = temporary();
    let trace = recorded(directory.path(), "page", &[]);
    let page = |options: &[&str]| {
        let file = directory.path().join("page.html");
        let mut larder = crate::common::larder();
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
    let head = browser.value("document.querySelector('header').innerText");
    assert!(head.as_str().expect("text").contains(PASSED), "{head}");
    let text = fs::read_to_string(page(&["--no-wrappers"])).unwrap();
    assert!(!text.contains("callers are charged for"), "the head");
}

/// Wrappers of wrappers, each from six callers of several sizes; a constructor, of one size, from eight;
/// a small function of many sizes and one caller; a known name of one caller.
const NESTED: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *volatile sink;
void *my_malloc(size_t n) {
    void *volatile p = malloc(n);
    if (p == NULL) abort();
    return p;
}
void *my_alloc_zeroed(size_t n) { void *volatile p = my_malloc(n); return memset(p, 0, n); }
char *my_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *volatile copy = my_alloc_zeroed(size);
    return memcpy(copy, text, size);
}
void *make_node(void) { void *volatile p = malloc(40); return p; }
void *get_some(size_t n) { void *volatile p = malloc(n); return p; }
void *xmalloc(size_t n) { void *volatile p = malloc(n); return p; }
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5)
#define PLAIN(N) void plain_##N(void) { sink = my_malloc(100 + 16 * N); free(sink); }
#define ZEROED(N) void zeroed_##N(void) { sink = my_alloc_zeroed(300 + 24 * N); free(sink); }
#define COPY(N) void copy_##N(void) { sink = my_strdup(&"a text of some length"[2 * N]); free(sink); }
#define NODE(N) void node_##N(void) { sink = make_node(); free(sink); }
EACH(PLAIN) EACH(ZEROED) EACH(COPY) EACH(NODE) NODE(6) NODE(7)
void some(int i) { sink = get_some(8 * i); free(sink); }
void single(int i) { sink = xmalloc(500 + i); free(sink); }
#define CALL(N) plain_##N(); zeroed_##N(); copy_##N(); node_##N();
int main(void) {
    for (int i = 1; i <= 100; i++) {
        EACH(CALL) node_6(); node_7();
        some(i);
        single(i);
    }
    return 0;
}
"#;
const NESTED_FLAGS: [&str; 4] = ["-g", "-O1", "-fno-inline", "-fno-builtin"];

/// A program, and its functions' names, which it may have lost itself.
struct Nested {
    directory: TempDir,
    trace: PathBuf,
    /// Start, end and name, by `nm`.
    functions: Vec<(u64, u64, String)>,
}

/// With its names, or stripped.
fn nested(stripped: bool) -> Nested {
    let directory = temporary();
    let whole = compile(directory.path(), "nested.c", NESTED, &NESTED_FLAGS);
    let functions = symbols(&whole);
    let program = match stripped {
        true => strip(&whole),
        false => whole,
    };
    Nested {
        trace: record(directory.path(), &program, &[], &["--no-larder"]),
        functions,
        directory,
    }
}

fn symbols(program: &Path) -> Vec<(u64, u64, String)> {
    let listed = output(
        Command::new("nm")
            .args(["-S", "--defined-only"])
            .arg(program),
    );
    assert_success(&listed);
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let functions = stdout(&listed);
    let functions = functions.lines().filter_map(|line| {
        let [start, size, kind, name] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let (start, size) = (hexadecimal(start)?, hexadecimal(size)?);
        "tT".contains(kind)
            .then(|| (start, start + size, name.to_owned()))
    });
    functions.collect()
}

/// The same without its names, in a directory of its own.
fn strip(program: &Path) -> PathBuf {
    let directory = program.with_file_name("stripped");
    fs::create_dir(&directory).unwrap();
    let stripped = directory.join(program.file_name().unwrap());
    let done = output(Command::new("strip").arg("-o").arg(&stripped).arg(program));
    assert_success(&done);
    stripped
}

impl Nested {
    fn function_at(&self, address: u64) -> &str {
        let mut functions = self.functions.iter();
        let found = functions.find(|(start, end, _)| (*start..*end).contains(&address));
        found.map_or("?", |(_, _, name)| name)
    }

    /// By its name or, without, by its address.
    fn name<'a>(&'a self, site: &'a Value) -> &'a str {
        let address = site["address"].as_u64().expect("an address");
        site["function"]
            .as_str()
            .unwrap_or_else(|| self.function_at(address))
    }

    /// The same of `module+0xoffset`.
    fn named<'a>(&'a self, shown: &'a str) -> &'a str {
        match shown.strip_prefix("nested+0x") {
            Some(offset) => self.function_at(u64::from_str_radix(offset, 16).expect("an offset")),
            None => shown,
        }
    }

    fn json(&self, command: &str, options: &[&str]) -> Value {
        let mut larder = crate::common::larder();
        larder.env("XDG_CACHE_HOME", self.directory.path());
        larder.arg(command).arg(&self.trace).arg("--json");
        let found = output(larder.args(options));
        assert_success(&found);
        serde_json::from_slice(&found.stdout).expect("JSON")
    }

    fn wrappers(&self, document: &Value) -> Vec<String> {
        let names = document["wrappers"].as_array().expect("wrappers").iter();
        let names = names.map(|name| self.named(name.as_str().expect("a name")).to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.dedup();
        names
    }

    /// The sites of the program's own, each once.
    fn sites<'a>(&'a self, document: &'a Value) -> Vec<&'a str> {
        let sites = document["sites"].as_array().expect("sites").iter();
        let mut names: Vec<&str> = sites.map(|site| self.name(site)).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The callers that have to be charged, and these.
fn charged(more: &[&'static str]) -> Vec<String> {
    let callers = ["plain", "zeroed", "copy"];
    let callers = callers
        .iter()
        .flat_map(|kind| (0..6).map(move |n| format!("{kind}_{n}")));
    let more = more.iter().map(|name| (*name).to_owned());
    let mut names: Vec<String> = callers.chain(more).collect();
    names.sort();
    names
}

#[test]
fn wrappers_of_wrappers_are_passed_over_and_constructors_are_not() {
    let nested = nested(false);
    let report = nested.json("report", &[]);
    assert_eq!(
        nested.sites(&report),
        charged(&["make_node", "get_some", "single"])
    );
    let found = ["my_alloc_zeroed", "my_malloc", "my_strdup", "xmalloc"];
    assert_eq!(nested.wrappers(&report), found);
    let make_node = report["sites"].as_array().unwrap().iter();
    let calls = make_node.filter(|site| site["function"] == "make_node");
    assert_eq!(
        calls
            .map(|site| site["calls"].as_u64().unwrap())
            .sum::<u64>(),
        800
    );
    let plain = nested.json("report", &["--no-wrappers"]);
    assert_eq!(
        nested.sites(&plain),
        ["get_some", "make_node", "my_malloc", "xmalloc"]
    );
    assert_eq!(plain["wrappers"], json!([]));
}

#[test]
fn without_names_wrappers_are_found_all_the_same() {
    let nested = nested(true);
    let report = nested.json("report", &[]);
    // Nothing says what xmalloc is, and it has one caller.
    assert_eq!(
        nested.sites(&report),
        charged(&["make_node", "get_some", "xmalloc"])
    );
    let found = ["my_alloc_zeroed", "my_malloc", "my_strdup"];
    assert_eq!(nested.wrappers(&report), found);
    let names = report["wrappers"].as_array().unwrap().iter();
    let mut names = names.map(|name| name.as_str().unwrap());
    assert!(
        names.all(|name| name.starts_with("nested+0x")),
        "{report:#}"
    );
    let plain = nested.json("report", &["--no-wrappers"]);
    assert_eq!(
        nested.sites(&plain),
        ["get_some", "make_node", "my_malloc", "xmalloc"]
    );
}

#[test]
fn advice_is_of_the_callers_of_wrappers() {
    for stripped in [false, true] {
        let nested = nested(stripped);
        let advice = nested.json("advise", &["--all", "--top", "0"]);
        let mut found = vec!["my_alloc_zeroed", "my_malloc", "my_strdup"];
        found.extend((!stripped).then_some("xmalloc"));
        assert_eq!(nested.wrappers(&advice), found, "{advice:#}");
        let findings = advice["processes"][0]["findings"].as_array();
        let findings = findings.expect("findings").iter();
        let sites: Vec<&str> = findings
            .filter_map(|finding| finding["site"]["function"].as_str())
            .collect();
        let plain = sites.iter().any(|site| site.starts_with("plain_"));
        assert_eq!(plain, !stripped, "{sites:?}");
        assert!(sites.iter().all(|site| !found.contains(site)), "{sites:?}");
    }
}

#[test]
fn a_row_without_a_name_says_so() {
    let nested = nested(true);
    let shown = |command: &str, options: &[&str]| {
        let mut larder = crate::common::larder();
        larder.env("XDG_CACHE_HOME", nested.directory.path());
        let found = output(larder.arg(command).arg(&nested.trace).args(options));
        assert_success(&found);
        stdout(&found)
    };
    for (command, options) in [("report", &["--sort", "calls"][..]), ("advise", &["--all"])] {
        let text = shown(command, options);
        let row = text
            .lines()
            .find(|line| line.contains("nested+0x") && line.contains("  in "));
        let row = row.unwrap_or_else(|| panic!("no site in {text}"));
        assert!(row.ends_with("[no name]"), "{row}");
    }
    let mut larder = larder();
    larder.args(["profile", "--mean", "1", "--sort", "allocated", "--"]);
    let program = nested.directory.path().join("stripped/nested");
    let text = stdout(&output(larder.arg(program)));
    assert!(text.contains("callers are charged for nested+0x"), "{text}");
    assert!(text.contains("stripped/nested  [no name]"), "{text}");
}

#[test]
fn a_nameless_function_is_charged_and_not_the_named_one_outside() {
    let source = r#"
#include <stdlib.h>
static void *volatile sink;
__attribute__((visibility("default"))) void outside(void);
static void make(int n) { sink = malloc(48 + n); }
void outside(void) { for (int i = 0; i < 30; i++) make(i); }
static void make_more(void) { sink = malloc(7); }
int main(void) { outside(); make_more(); return 0; }
"#;
    let directory = temporary();
    let flags = ["-O1", "-fno-inline", "-fno-builtin", "-rdynamic"];
    let whole = compile(directory.path(), "outside.c", source, &flags);
    let functions = symbols(&whole);
    let trace = record(directory.path(), &strip(&whole), &[], &["--no-larder"]);
    let report = report_json(&trace, &[]);
    let sites = report["sites"].as_array().expect("sites");
    let inside = |name: &str, site: &Value| {
        let mut functions = functions.iter();
        let (start, end, _) = functions
            .find(|(_, _, known)| known == name)
            .expect("a function");
        (*start..*end).contains(&site["address"].as_u64().expect("an address"))
    };
    for (name, calls, caller) in [("make", 30, "outside"), ("make_more", 1, "main")] {
        let mut found = sites.iter().filter(|site| inside(name, site));
        let site = found
            .next()
            .unwrap_or_else(|| panic!("no {name} in {report:#}"));
        assert_eq!(
            (&site["function"], &site["calls"]),
            (&Value::Null, &json!(calls))
        );
        let stack = site["stack"].as_array().expect("a stack").iter();
        let names: Vec<&str> = stack
            .filter_map(|frame| frame["function"].as_str())
            .collect();
        assert!(names.contains(&caller), "{site:#}");
    }
    assert!(
        sites.iter().all(|site| site["function"].is_null()),
        "{sites:#?}"
    );
}

#[test]
fn a_wrapper_that_shows_in_one_trace_is_passed_over_in_the_other() {
    let directory = temporary();
    for flags in [&[][..], &["-s", "-Wl,--build-id"]] {
        let directory = directory.path().join(flags.len().to_string());
        fs::create_dir(&directory).unwrap();
        let flags = [&FLAGS, flags].concat();
        let program = compile(&directory, "words.c", SOURCE, &flags);
        let [few, all] = ["few", ""].map(|word| {
            let place = directory.join(format!("trace {word}"));
            fs::create_dir(&place).unwrap();
            let words = [word];
            let words = &words[..usize::from(!word.is_empty())];
            record(&place, &program, words, &["--no-larder"])
        });
        for traces in [[&few, &all], [&all, &few]] {
            let mut larder = crate::common::larder();
            larder.args(["diff", "--all", "--json"]).args(traces);
            let found = output(&mut larder);
            assert_success(&found);
            let document: Value = serde_json::from_slice(&found.stdout).expect("JSON");
            // What a and b ask for, and what is asked for once.
            assert_eq!(document["site_counts"]["same"], 3, "{document:#}");
            let [new, gone] = ["new", "gone"].map(|status| &document["site_counts"][status]);
            assert_eq!(
                new.as_u64().unwrap() + gone.as_u64().unwrap(),
                6,
                "{document:#}"
            );
            let sites = document["sites"].as_array().unwrap().iter();
            let mut same = sites.filter(|row| row["status"] == "same");
            assert!(
                same.all(|row| row["before"]["live_blocks"] == row["before"]["calls"]),
                "{document:#}"
            );
        }
    }
}
