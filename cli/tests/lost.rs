//! `larder record --leaks`: what no pointer reached any more when a program ended, over Larder and over the
//! C library's malloc, and what `larder advise` reports where no search was made.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::*;
use larder_trace::{Trace, trace_files};
use serde_json::Value;

const C: &[&str] = &["-g", "-O1", "-fno-builtin", "-pthread"];

/// Loses some, and keeps others by globals, a chain, a thread's stack and the end of a block.
const LOSES: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct node { struct node *next; long values[3]; };
struct node *volatile kept_chain;
void *volatile kept[100];
static pthread_barrier_t barrier;
__attribute__((noinline)) static char *make(size_t size) {
  char *block = malloc(size);  // @make
  block[0] = 1;
  return block;
}
__attribute__((noinline)) static void careless(void) {
  for (int i = 0; i < 100; i++) make(2000);
}
__attribute__((noinline)) static void careful(void) {
  for (int i = 0; i < 100; i++) kept[i] = make(2000) + i;
}
__attribute__((noinline)) static void chains(void) {
  struct node *volatile lost_chain = 0;
  for (int i = 0; i < 200; i++) {
    struct node *node = malloc(sizeof *node);  // @lost_chain
    node->next = lost_chain;
    lost_chain = node;
    node = malloc(sizeof *node);  // @kept_chain
    node->next = kept_chain;
    kept_chain = node;
  }
  lost_chain = 0;
}
__attribute__((noinline)) static void large(void) {
  for (int i = 0; i < 3; i++) memset(malloc(3 << 20), 1, 100);  // @large
}
/// What calls left on the stack, so that chance leads to nothing.
__attribute__((noinline)) static void scrub(void) {
  char volatile rest[65536];
  memset((char *)rest, 0, sizeof rest);
}
static void *work(void *unused) {
  char *volatile mine = malloc(70000);  // @mine
  for (int i = 0; i < 20; i++) memset(malloc(3000), 1, 3000);  // @thread
  scrub();
  pthread_barrier_wait(&barrier);
  for (;;) pause();
  return mine;
}
int main(int argc, char **argv) {
  pthread_t threads[2];
  pthread_barrier_init(&barrier, 0, 3);
  careless();
  careful();
  chains();
  large();
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
  pthread_barrier_wait(&barrier);
  scrub();
  if (argc > 1 && strcmp(argv[1], "_exit") == 0) _exit(0);
  if (argc > 1 && strcmp(argv[1], "abort") == 0) abort();
  return 0;
}
"#;

struct Bench {
    directory: tempfile::TempDir,
    libraries: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            directory: temporary(),
            libraries: built_libraries(),
        }
    }

    fn record(&self, options: &[&str], program: &Path, arguments: &[&str]) -> (Output, PathBuf) {
        let name = format!("{}.trace", options.join("") + &arguments.join(""));
        let trace = self.directory.path().join(name);
        let mut record = larder();
        record.env("LARDER_LIB", self.libraries.path());
        record.arg("record").args(options).arg("-o").arg(&trace);
        let recorded = output(record.arg("--").arg(program).args(arguments));
        (recorded, trace)
    }
}

/// Leaks as line, blocks' sentence and confidence.
fn leaks(trace: &Path) -> Vec<(u64, String, String)> {
    let advised = output(larder().args(["advise", "--all", "--json"]).arg(trace));
    assert_success(&advised);
    let advice: Value = serde_json::from_slice(&advised.stdout).expect("JSON");
    let findings = advice["processes"].as_array().expect("processes").iter();
    findings
        .flat_map(|process| process["findings"].as_array().expect("findings"))
        .filter(|finding| finding["pattern"] == "leak")
        .map(|finding| {
            let evidence = finding["evidence"].as_array().expect("evidence");
            let said: Vec<&str> = evidence.iter().filter_map(Value::as_str).collect();
            (
                finding["site"]["line"].as_u64().unwrap_or(0),
                said.join("; "),
                finding["confidence"].as_str().expect("one").to_owned(),
            )
        })
        .collect()
}

fn lost(trace: &Path) -> Vec<Option<usize>> {
    let files = trace_files(trace).expect("files");
    let open = |file: &PathBuf| Trace::open(file).expect("a trace");
    let lost = |trace: Trace| trace.lost().map(|lost| lost.addresses().len());
    files.iter().map(open).map(lost).collect()
}

#[test]
fn what_nothing_leads_to_is_lost_by_caller_and_the_rest_is_not() {
    let bench = Bench::new();
    let program = compile(bench.directory.path(), "loses.c", LOSES, C);
    for options in [&["--leaks"][..], &["--leaks", "--no-larder"]] {
        let (recorded, trace) = bench.record(options, &program, &[]);
        assert_success(&recorded);
        assert_eq!(stderr(&recorded).lines().count(), 1);
        let found = leaks(&trace);
        let of = |mark: &str| {
            let line = line_of(LOSES, mark);
            let mut of = found.iter().filter(|(at, ..)| *at == line);
            let finding = of.next().map(|(_, said, confidence)| {
                assert_eq!(confidence, "high");
                said.as_str()
            });
            assert!(of.next().is_none(), "{mark} is there twice: {found:?}");
            finding
        };
        let end = "live at the end were unreachable";
        for (mark, blocks, bytes) in [
            ("make", 100, "200,000"),
            ("lost_chain", 200, "6,400"),
            ("large", 3, "9,437,184"),
        ] {
            let said = format!("{blocks} of {blocks} blocks {end}: {bytes} bytes");
            assert_eq!(of(mark), Some(&*said), "{options:?}");
        }
        // A thread that waits may have one left where chance has it.
        let threads = of("thread").expect("a leak");
        let likely = ["40 of 40 ", "39 of 40 ", "38 of 40 "];
        assert!(
            likely.iter().any(|said| threads.starts_with(said)),
            "{threads}"
        );
        for mark in ["kept_chain", "mine"] {
            assert_eq!(of(mark), None, "{options:?}");
        }
        assert!(found[0].1.contains("9,437,184"), "{found:?}");
    }
}

#[test]
fn without_a_search_nothing_is_called_lost() {
    let bench = Bench::new();
    let program = compile(bench.directory.path(), "loses.c", LOSES, C);
    for (options, arguments) in [
        (&["--no-larder"][..], &[][..]),
        (&["--leaks"], &["_exit"]),
        (&["--leaks"], &["abort"]),
    ] {
        let (_, trace) = bench.record(options, &program, arguments);
        assert_eq!(lost(&trace), [None]);
        let found = leaks(&trace);
        // Of a program that is killed it is not known what is left.
        assert_eq!(found.is_empty(), !arguments.is_empty(), "{found:?}");
        for (_, said, confidence) in found {
            assert!(said.contains("this trace does not show"), "{said}");
            assert_ne!(confidence, "high");
        }
    }
}

#[test]
fn known_leaks_of_libraries_are_left_out() {
    let bench = Bench::new();
    for options in [&["--leaks"][..], &["--leaks", "--no-larder"]] {
        let (_, trace) = bench.record(options, Path::new("perl"), &["-e", "1"]);
        let advise = |options: &[&str]| {
            let mut advise = larder();
            let advised = output(advise.arg("advise").arg(&trace).args(options));
            assert_success(&advised);
            stdout(&advised)
        };
        let left_out = "objects by leak:perl_construct\n";
        assert!(advise(&[]).contains(left_out), "{}", advise(&[]));
        assert!(!advise(&["--no-built-in-suppressions"]).contains("suppressed"));
        let leak = "Free what is left";
        let leaks = |options: &[&str]| advise(options).matches(leak).count();
        let all = leaks(&["--top", "0", "--no-built-in-suppressions"]);
        assert!(leaks(&["--top", "0"]) < all, "{all}");
    }
}

/// A list of all that there is, given up at the end.
const LIST: &str = r#"
#include <stdlib.h>
struct node { struct node *next; char rest[]; };
struct node *volatile head;
int main(void) {
  for (int i = 0; i < 20000; i++) {
    struct node *node = malloc(32 + (size_t)(i % 64));  // @node
    node->next = head;
    head = node;
  }
  head = 0;
  return 0;
}
"#;

#[test]
fn the_recorders_own_stack_leads_to_nothing() {
    let bench = Bench::new();
    let program = compile(bench.directory.path(), "list.c", LIST, C);
    for larder in [&["--leaks"][..], &["--leaks", "--no-larder"]] {
        let (_, trace) = bench.record(larder, &program, &[]);
        assert_eq!(lost(&trace), [Some(20_000)], "{larder:?}");
    }
}

/// What only a destructor gives up is not lost, nor what only a new thread's exit would.
const OWNED: &str = r#"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
std::vector<char*> global;
struct Slot { char* volatile block = nullptr; };
static Slot& slot() { static Slot* made = new Slot; return *made; }
int main(int argc, char** argv) {
  for (int i = 0; i < 50; i++) global.push_back(new char[500]);
  slot().block = new char[3000];
  if (argc > 1 && !strcmp(argv[1], "thread")) std::thread([] { exit(0); }).join();
  if (argc > 1 && !strcmp(argv[1], "fork")) {
    char* volatile lost = new char[4000];
    lost = nullptr;
    if (fork() == 0) {
      slot().block[8] = 1;
      char** inherited = (char**)slot().block;
      inherited[0] = new char[600];
      for (int i = 0; i < 30; i++) lost = new char[700];
      lost = nullptr;
      exit(0);
    }
    wait(nullptr);
  }
  return 0;
}
"#;

#[test]
fn what_a_destructor_gives_up_is_not_lost() {
    let bench = Bench::new();
    let program = compile(bench.directory.path(), "owned.cc", OWNED, &["-g", "-O1"]);
    for larder in [&["--leaks"][..], &["--leaks", "--no-larder"]] {
        let (_, trace) = bench.record(larder, &program, &[]);
        assert_eq!(lost(&trace), [Some(0)], "{larder:?}");
    }
}

#[test]
fn another_thread_may_end_the_program() {
    let bench = Bench::new();
    let program = compile(bench.directory.path(), "owned.cc", OWNED, &["-g", "-O1"]);
    let (recorded, trace) = bench.record(&["--leaks"], &program, &["thread"]);
    assert_success(&recorded);
    // After the destructors, so most of what the vector held; chance may lead to some.
    assert!(lost(&trace)[0].is_some_and(|lost| (30..=50).contains(&lost)));
}

#[test]
fn a_child_of_fork_is_looked_at_with_what_it_inherited() {
    let bench = Bench::new();
    let program = compile(bench.directory.path(), "owned.cc", OWNED, &["-g", "-O1"]);
    for larder in [&["--leaks"][..], &["--leaks", "--no-larder"]] {
        let (_, trace) = bench.record(larder, &program, &["fork"]);
        let mut lost = lost(&trace);
        lost.sort_unstable();
        assert_eq!(lost, [Some(1), Some(30)], "{larder:?}");
    }
}
