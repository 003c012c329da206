//! `larder run --fail-…`: exactly the wanted calls fail, in any program, and what then goes wrong is reported.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use tempfile::TempDir;

struct Bench {
    libraries: TempDir,
    directory: TempDir,
}

impl Bench {
    fn new() -> Self {
        Bench {
            libraries: built_libraries(),
            directory: temporary(),
        }
    }

    fn compile(&self, source: &str, text: &str, flags: &[&str]) -> PathBuf {
        let mut all = vec!["-g", "-O1", "-fno-builtin", "-pthread"];
        all.extend(flags);
        compile(self.directory.path(), source, text, &all)
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut larder = bare_larder();
        larder.env("LARDER_LIB", self.libraries.path());
        larder.arg("run").args(options).arg("--").args(command);
        larder
    }

    fn output(&self, options: &[&str], program: &Path) -> std::process::Output {
        output(&mut self.run(options, &[program.to_str().expect("a plain path")]))
    }
}

/// Prints which of its calls failed, by their number from 1.
const FAMILY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int number;
static void is(void *block) {
  char line[40];
  number++;
  if (!block) dprintf(1, "%d ", errno == ENOMEM ? number : -number);
  errno = 0;
}
int main(void) {
  void *p = 0;
  is(malloc(10));
  is(calloc(3, 4));
  is(p = realloc(0, 20));
  if (p) is(realloc(p, 30)); else is(malloc(1));
  is(reallocarray(0, 5, 6));
  is(aligned_alloc(64, 64));
  errno = 5;
  int error = posix_memalign(&p, 64, 64);
  if (errno != 5) return 1;
  errno = error;
  is(error ? 0 : p);
  is(memalign(64, 64));
  is(valloc(10));
  is(pvalloc(10));
  is(strdup("copied by libc"));
  free(p);
  realloc(malloc(0), 0);  /* one call: the second frees */
  return 0;
}
"#;

#[test]
fn exactly_the_wanted_calls_fail_with_enomem() {
    let bench = Bench::new();
    let program = bench.compile("family.c", FAMILY, &["-Wno-unused-result"]);
    for (own, numbers) in [
        (&[][..], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][..]),
        (&["--no-larder"], &[5, 7, 11]),
    ] {
        for number in numbers {
            let text = number.to_string();
            let options = [own, &["--fail-nth", &text]].concat();
            let run = bench.output(&options, &program);
            assert_success(&run);
            assert_eq!(stdout(&run), format!("{number} "), "{own:?}");
            let reported = stderr(&run);
            assert!(reported.contains(&format!("call {number}, ")), "{reported}");
            assert!(reported.contains("family.c:"), "{reported}");
        }
        let options = [own, &["--fail-after", "8"]].concat();
        assert_eq!(stdout(&bench.output(&options, &program)), "9 10 11 ");
        let options = [own, &["--fail-nth", "13"]].concat();
        let run = bench.output(&options, &program);
        assert_eq!(stdout(&run), "");
        assert!(stderr(&run).contains("no call failed: there were only 12 calls"));
    }
}

const OPERATORS: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
struct alignas(64) Wide { char bytes[64]; };
static void *spare;
static void give_up() { std::free(spare); spare = nullptr; std::set_new_handler(nullptr); std::puts("handler"); }
static int tries(int which) {
  try {
    switch (which) {
      case 0: delete new int; break;
      case 1: delete[] new char[100]; break;
      case 2: delete new Wide; break;
      case 3: { int *p = new (std::nothrow) int; if (!p) std::puts("null"); delete p; break; }
      case 4: { std::string text(100, 'x'); break; }
    }
  } catch (const std::bad_alloc &) { std::printf("bad_alloc %d\n", which); return 1; }
  return 0;
}
int main(int count, char **) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  if (count > 1) { spare = std::malloc(1000); std::set_new_handler(give_up); }
  for (int which = 0; which < 5; which++) tries(which);
}
"#;

#[test]
fn operator_new_throws_or_calls_the_handler_and_counts_once() {
    let bench = Bench::new();
    let program = bench.compile("operators.cc", OPERATORS, &["-O0"]);
    let none = bench.output(&["--fail-nth", "1000000"], &program);
    let reported = stderr(&none);
    // What the C++ runtime allocates before main comes first.
    let calls: u64 = reported
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no count: {reported}"));
    let before = calls - 5;
    for own in [&[][..], &["--no-larder"]] {
        let expected = [
            "bad_alloc 0",
            "bad_alloc 1",
            "bad_alloc 2",
            "null",
            "bad_alloc 4",
        ];
        for (which, line) in expected.into_iter().enumerate() {
            let number = (before + which as u64 + 1).to_string();
            let options = [own, &["--fail-nth", &number]].concat();
            let run = bench.output(&options, &program);
            assert_success(&run);
            assert_eq!(stdout(&run).trim(), line, "{own:?} {}", stderr(&run));
            assert!(stderr(&run).contains("operator new"), "{}", stderr(&run));
        }
        // With a handler that frees something, the second try, which is a call of its own, succeeds.
        let number = (before + 2).to_string();
        let options = [own, &["--fail-nth", &number]].concat();
        let run = output(&mut bench.run(&options, &[program.to_str().unwrap(), "handler"]));
        assert_success(&run);
        assert_eq!(stdout(&run), "handler\n", "{own:?}");
    }
}

const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static int failed;
static void *work(void *wait) {
  pthread_barrier_wait(wait);
  for (int i = 0; i < 20000; i++) {
    void *p = malloc(16);
    if (!p) __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
    free(p);
  }
  return 0;
}
int main(void) {
  pthread_t t[4];
  pthread_barrier_t wait;
  pthread_barrier_init(&wait, 0, 5);
  for (int i = 0; i < 4; i++) if (pthread_create(&t[i], 0, work, &wait)) return 1;
  pthread_barrier_wait(&wait);
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
  dprintf(1, "%d", failed);
}
"#;

#[test]
fn of_several_threads_exactly_as_many_calls_fail() {
    let bench = Bench::new();
    let program = bench.compile("threads.c", THREADS, &[]);
    let run = bench.output(&["--fail-after", "50000"], &program);
    assert_success(&run);
    // Making a thread takes a call, of libc's.
    let failed: i32 = stdout(&run).parse().expect("a number");
    assert!((30_000..30_020).contains(&failed), "{failed}");
    let again = bench.output(&["--fail-after", "50000"], &program);
    assert_eq!(stdout(&again), stdout(&run));
}

const CHILDREN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void three(const char *stage) {
  for (int i = 1; i <= 3; i++) {
    void *p = malloc(10);
    if (!p) dprintf(1, "%s%d ", stage, i);
    free(p);
  }
}
int main(int count, char **words) {
  if (count > 1) { three("exec"); return 0; }
  three("parent");
  int status;
  if (fork() == 0) { three("child"); execl(words[0], words[0], "x", (char *)0); _exit(9); }
  wait(&status);
  three("later");
  return status != 0;
}
"#;

#[test]
fn each_process_image_counts_its_own_calls() {
    let bench = Bench::new();
    let program = bench.compile("children.c", CHILDREN, &[]);
    let run = bench.output(&["--fail-nth", "2"], &program);
    assert_success(&run);
    assert_eq!(stdout(&run), "parent2 child2 exec2 ");
    assert!(stderr(&run).contains("in 3 processes"), "{}", stderr(&run));
    let run = bench.output(&["--fail-nth", "5"], &program);
    assert_eq!(stdout(&run), "later2 ");
}

const FRAGILE: &str = r#"
#include <stdlib.h>
#include <string.h>
static char *copy(const char *text) {
  char *p = malloc(strlen(text) + 1);
  return strcpy(p, text); /* crashes */
}
static int safe(void) {
  void *p = malloc(100);
  free(p);
  return p ? 0 : 3;
}
int main(int count, char **words) {
  int result = 0;
  for (int i = 0; i < 3; i++) result |= safe();
  free(copy("hello"));
  free(copy("world"));
  char *p = malloc(77); /* hangs */
  while (!p) ;
  free(p);
  (void)words;
  if (count > 1) abort();
  return result;
}
"#;

/// The run that hangs takes all of its limit; one that ends takes some milliseconds.
#[test]
fn each_allocation_in_turn_fails_and_bad_ends_are_reported() {
    let bench = Bench::new();
    let program = bench.compile("fragile.c", FRAGILE, &[]);
    let path = program.to_str().unwrap();
    let run = bench.output(&["--fail-each", "--limit", "1"], &program);
    let text = stdout(&run);
    assert_eq!(code(&run), 1, "{text}{}", stderr(&run));
    assert!(
        text.contains("6 allocations; 6 runs, one failing in each: 3 ended well, 3 badly"),
        "{text}"
    );
    assert!(text.contains("SIGSEGV, 2 runs  malloc(6)"), "{text}");
    assert!(text.contains("fragile.c:5"), "{text}");
    assert!(
        text.contains(&format!("larder run --fail-nth 4 -- {path}")),
        "{text}"
    );
    assert!(text.contains("hang  malloc(77)"), "{text}");
    let repeated = bench.output(&["--fail-nth", "4"], &program);
    assert_eq!(code(&repeated), 128 + 11);

    let json = bench.output(&["--fail-each", "--limit", "1", "--json"], &program);
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!(json["bad"][0]["signal"], 11);
    assert_eq!(json["bad"][0]["calls"], serde_json::json!([4, 5]));
    assert_eq!(json["ended_badly"], 3);
    let stack = json["bad"][0]["stack"].as_array().unwrap();
    assert!(
        stack[1].as_str().unwrap().starts_with("main  "),
        "{stack:?}"
    );

    let sample = [
        "--fail-each",
        "--limit",
        "1",
        "--sample",
        "2",
        "--seed",
        "9",
    ];
    let first = stdout(&bench.output(&sample, &program));
    assert!(
        first.contains("2 runs") && first.contains("--seed 9"),
        "{first}"
    );
    assert_eq!(stdout(&bench.output(&sample, &program)), first);
}

#[test]
fn a_program_that_copes_passes() {
    let bench = Bench::new();
    let program = bench.compile("family.c", FAMILY, &["-Wno-unused-result"]);
    let run = bench.output(&["--fail-each"], &program);
    assert_eq!(code(&run), 0, "{}{}", stdout(&run), stderr(&run));
    assert!(
        stdout(&run).contains("12 ended well, 0 badly"),
        "{}",
        stdout(&run)
    );
}

const SANITIZED: &str = r#"
#include <stdlib.h>
int main(void) {
  char *p = malloc(10), *q = malloc(20);
  if (!q) { free(p); p[3] = 1; } /* too late */
  free(q);
  if (q) free(p);
  return 0;
}
"#;

#[test]
fn a_sanitizers_report_is_a_bad_end() {
    let bench = Bench::new();
    let program = bench.compile("sanitized.c", SANITIZED, &["-fsanitize=address"]);
    let run = bench.output(&["--fail-each"], &program);
    let text = stdout(&run);
    assert_eq!(code(&run), 1, "{text}{}", stderr(&run));
    assert!(
        text.contains("AddressSanitizer: heap-use-after-free"),
        "{text}"
    );
    assert!(
        text.contains("malloc(20)") && text.contains("sanitized.c:4"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let bench = Bench::new();
    let program = bench.compile("fragile.c", FRAGILE, &[]);
    let path = program.to_str().unwrap();
    let run = output(&mut bench.run(&["--fail-each"], &[path, "abort"]));
    assert_fails(&run, 125, &["SIGABRT", "although nothing fails"]);
    let run = output(&mut bench.run(&["--fail-each"], &["no-such-program"]));
    assert_fails(&run, 127, &["no-such-program"]);
    for options in [
        &["--fail-each", "--fail-nth", "1"][..],
        &["--fail-nth", "0"],
        &["--fail-nth", "x"],
        &["--sample", "3"],
        &["--fail-each", "--seed", "3"],
        &["--fail-nth", "1", "--json"],
        &["--no-larder"],
    ] {
        let run = output(&mut bench.run(options, &["true"]));
        assert_fails(&run, 125, &["larder: error: "]);
    }
    let program = bench.compile("static.c", FRAGILE, &["-static"]);
    let run = bench.output(&["--fail-nth", "1"], &program);
    assert_fails(&run, 126, &["static"]);
}
