//! `larder stats`: running programs on the staged allocator, looked into from outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::running::{Running, preloaded, wait_until};
use crate::common::{
    assert_fails, assert_success, code, compile, larder, library_directory, output, stderr, stdout,
    temporary, write_program,
};
use serde_json::Value;

/// Fills a heap of every kind, writes its own statistics to stdout and waits for the end of stdin.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int larder_stats_json(int) __attribute__((weak));

static void* blocks[60000];

static void* work(void* argument) {
  uint32_t random = 7 + (uintptr_t)argument;
  for (int i = 0; i < 60000; ++i) {
    random = random * 1664525 + 1013904223;
    size_t size = 1 + (random >> 8) % (i % 1000 == 0 ? 400000 : i % 50 == 0 ? 20000 : 700);
    void* p = malloc(size);
    memset(p, 1, size);
    if (argument == 0) blocks[i] = p; else if (i % 3 != 0) free(p);
  }
  return argument;
}

int main(void) {
  work(0);
  for (int i = 0; i < 60000; i += 1 + i % 3) free(blocks[i]), blocks[i] = NULL;
  pthread_t thread;
  pthread_create(&thread, NULL, work, (void*)1);
  pthread_join(thread, NULL);
  char* large = malloc(9 << 20);
  memset(large, 1, 5 << 20);
  free(memset(malloc(3 << 20), 1, 3 << 20));
  int null = dup(1);
  FILE* nothing = fopen("/dev/null", "w");
  if (larder_stats_json == NULL) return 3;
  larder_stats_json(fileno(nothing));
  larder_stats_json(null);
  char byte;
  return read(0, &byte, 1) == 0 && large != NULL ? 0 : 4;
}
"#;

/// And what it says of itself.
fn start(command: &mut Command) -> (Running, String) {
    Running::with_first_words("}\n", command)
}

fn stats(process: &Running, arguments: &[&str]) -> std::process::Output {
    let id = process.id().to_string();
    output(larder().arg("stats").arg(id).args(arguments))
}

fn program(directory: &Path) -> PathBuf {
    compile(directory, "heap.c", PROGRAM, &["-O1", "-pthread"])
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// All that both say, they say alike.
#[track_caller]
fn assert_same(own: &Value, found: &Value) {
    for name in [
        "mapped",
        "resident",
        "kinds",
        "objects",
        "slabs",
        "runs",
        "mappings",
        "rounding_most",
        "purged_total",
        "reused_total",
        "realloc_copied_bytes",
        "sample_mean",
        "sites",
        "classes",
    ] {
        assert!(!own[name].is_null(), "the program does not say {name}");
        assert_eq!(own[name], found[name], "{name}");
    }
}

#[test]
fn what_is_seen_from_outside_is_what_the_program_says_of_itself() {
    let directory = temporary();
    let (running, own) = start(&mut preloaded(program(directory.path())));
    let found = stats(&running, &["--json"]);
    assert_success(&found);
    let (own, found) = (json(&own), json(&stdout(&found)));
    assert_same(&own, &found);
    let number = |value: &Value| value.as_u64().expect("a number");
    // The kinds are all that is mapped; and in memory there is not more than the process has.
    let kinds = found["kinds"].as_object().expect("kinds").values();
    let sum: u64 = kinds.clone().map(|kind| number(&kind["bytes"])).sum();
    assert_eq!(sum, number(&found["mapped"]));
    let (heap, anonymous) = (number(&found["resident"]), number(&found["anonymous"]));
    assert!(heap <= anonymous, "{heap} of {anonymous}");
    assert!(
        anonymous - heap < 1 << 20,
        "{heap} of {anonymous} explained"
    );
    // Nine MiB, of which five were touched.
    let in_use = &found["kinds"]["in_use"];
    assert!(number(&in_use["bytes"]) > number(&in_use["resident"]) + (7 << 19));
    let own_thread = found["heaps"]
        .as_array()
        .expect("heaps")
        .iter()
        .find(|heap| heap["thread"] == running.id());
    let heap = own_thread.expect("the main thread's heap");
    assert_eq!(heap["name"], "heap");
    assert!(number(&heap["in_use"]) > 1 << 20, "{heap}");
}

#[test]
fn guarded_samples_are_counted_alike() {
    let directory = temporary();
    let mut command = preloaded(program(directory.path()));
    command.env("LARDER_GUARD", "1");
    let (running, own) = start(command.env("LARDER_PROFILE_BYTES", "4000"));
    let found = json(&stdout(&stats(&running, &["--json"])));
    assert_same(&json(&own), &found);
    let pages = found["kinds"]["sample_slabs"]["bytes"].as_u64();
    assert!(pages.is_some_and(|bytes| bytes > 100 << 12), "{pages:?}");
}

#[test]
fn a_program_that_larder_is_linked_into_is_found_even_without_symbols() {
    let directory = temporary();
    let archive = library_directory().join("liblarder.a");
    let archive = archive.to_str().expect("a name");
    for flags in [
        &["-no-pie"][..],
        &["-static-pie"],
        &["-s"],
        &["-s", "-Wl,--gc-sections"],
    ] {
        let flags: Vec<&str> = [
            &["-O1", "-pthread"],
            flags,
            &["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"][..],
            &["-ldl"],
        ]
        .concat();
        let program = compile(directory.path(), "heap.c", PROGRAM, &flags);
        let (running, own) = start(&mut Command::new(program));
        let found = stats(&running, &["--json"]);
        assert_success(&found);
        assert_same(&json(&own), &json(&stdout(&found)));
    }
}

#[test]
fn the_tables_are_for_people_and_metrics_for_collectors() {
    let directory = temporary();
    let (running, own) = start(&mut preloaded(program(directory.path())));
    let text = stdout(&stats(&running, &[]));
    for words in [
        "(heap) on Larder 0.1.0",
        "free in slabs",
        "mappings cached",
        "since the start",
    ] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    let metrics = stdout(&stats(&running, &["--format", "prometheus"]));
    let mapped = json(&own)["mapped"].clone();
    let id = running.id();
    let line = format!("larder_mapped_bytes{{pid=\"{id}\",comm=\"heap\"}} {mapped}\n");
    assert!(metrics.contains(&line), "no {line} in: {metrics}");
    for sample in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = sample.rsplit_once(' ').expect("a value");
        assert!(
            name.starts_with("larder_") && name.ends_with('}'),
            "{sample}"
        );
        assert!(
            value.parse::<f64>().is_ok_and(|value| value >= 0.0),
            "{sample}"
        );
    }
}

#[test]
fn several_processes_are_a_list() {
    let directory = temporary();
    let program = program(directory.path());
    let [one, two] = [(); 2].map(|()| start(&mut preloaded(&program)).0);
    let both = stats(&one, &[&two.id().to_string(), "--json"]);
    assert_success(&both);
    let both = json(&stdout(&both));
    assert_eq!(both[0]["process"], one.id());
    assert_eq!(both[1]["process"], two.id());
}

#[test]
fn what_cannot_be_examined_is_reported_with_the_reason() {
    let mut sleeping = Command::new("sleep").arg("60").spawn().expect("sleep");
    let found = output(larder().arg("stats").arg(sleeping.id().to_string()));
    assert_fails(
        &found,
        125,
        &["does not run on Larder", "larder run", "larder record PID"],
    );
    let id = sleeping.id().to_string();
    sleeping.kill().expect("it ends");
    sleeping.wait().expect("it has ended");
    let found = output(larder().arg("stats").arg(&id));
    assert_fails(&found, 125, &["no such process"]);
    for bad in ["0", "-1", "x", "99999999999"] {
        let found = output(larder().arg("stats").arg(bad));
        assert_eq!(code(&found), 125, "{bad}");
    }
}

/// A program that has what looks like an anchor, and leads nowhere or in circles.
const IMPOSTOR: &str = r#"
#include "base/layout.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
using namespace larder;
struct Writable : Anchor {};
extern "C" Writable larder_anchor;
Writable larder_anchor = {{"larder anchor\0\r", Anchor::kVersion, sizeof(Anchor), "\033[2J"}};
// Each layout with its size, and lies behind it.
struct Layout { uint32_t bytes, unused; uint64_t words[63]; } layouts[8];
int main(int argc, char** argv) {
  static const uint32_t sizes[] = {
      sizeof(ProfileLayout), sizeof(SamplerLayout), sizeof(PagesLayout), sizeof(LargeLayout),
      sizeof(HeapsLayout),   sizeof(MetaLayout),    sizeof(OwnLayout),   sizeof(LimitsLayout)};
  larder_anchor.magic[15] = '\n';
  unsigned kind = argc > 1 ? argv[1][0] - '0' : 0;
  if (kind == 1) larder_anchor.version = 777;
  if (kind == 2) larder_anchor.bytes = 9999;
  for (int i = 0; i < 8 && kind >= 3; ++i) {
    const void* at = &layouts[i];
    memcpy((char*)&larder_anchor.profile + i * sizeof at, &at, sizeof at);
    layouts[i].bytes = kind == 3 ? 9999 : sizes[i];
    for (uint64_t& word : layouts[i].words)
      word = kind == 4 ? 0 : kind == 5 ? (uintptr_t)&layouts[i] : kind == 6 ? UINT64_MAX : 0x0080008000800080;
  }
  puts("{}");
  fflush(stdout);
  char byte;
  return read(0, &byte, 1) == 1;
}
"#;

/// For programs that know what the allocator publishes.
const LAYOUTS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../alloc");

#[test]
fn a_process_that_lies_is_not_believed() {
    let directory = temporary();
    let flags = ["-O1", "-std=c++20", LAYOUTS];
    let impostor = compile(directory.path(), "impostor.cc", IMPOSTOR, &flags);
    let expected: [&[&str]; 8] = [
        &["cannot be true"],
        &["version 777", "same release"],
        &["cannot be true"],
        &["cannot be true"],
        &["cannot be true"],
        &["cannot be true"],
        &["cannot be true"],
        &["cannot be true"],
    ];
    for (kind, words) in expected.iter().enumerate() {
        let (running, _) = start(Command::new(&impostor).arg(kind.to_string()));
        assert_fails(&stats(&running, &[]), 125, words);
    }
}

/// A program on Larder that puts before its large objects 70,000 that cannot be: together they are
/// more than 64 bits can count, and each is more than there is to look at.
const BRAGGART: &str = r#"
#include "base/layout.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
enum { kHuge = 5, kCount = 70000 };
static char claims[kCount][128];
static void put(char* to, uint64_t value, int bytes) { memcpy(to, &value, bytes); }
int main() {
  auto* anchor = static_cast<const larder::Anchor*>(dlsym(RTLD_DEFAULT, "larder_anchor"));
  const larder::PagesLayout& of = *anchor->pages;
  uint64_t* first = (uint64_t*)anchor->large->descriptors;
  for (int i = 0; i < kCount; ++i) {
    put(claims[i] + of.slab_kind, kHuge, 1);
    put(claims[i] + of.slab_base, 1 << 21, 8);
    put(claims[i] + of.slab_span_bytes, (UINT64_C(1) << 48) - 1, 8);
    put(claims[i] + of.slab_prev, i > 0 ? (uintptr_t)claims[i - 1] : *first, 8);
  }
  *first = (uintptr_t)claims[kCount - 1];
  puts("{}");
  fflush(stdout);
  char byte;
  return read(0, &byte, 1) == 1;
}
"#;

#[test]
fn what_a_process_claims_takes_a_bounded_time_to_count() {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "braggart.cc",
        BRAGGART,
        &["-O1", "-std=c++20", LAYOUTS, "-ldl"],
    );
    let (running, _) = start(&mut preloaded(&program));
    let found = stats(&running, &["--json"]);
    assert_success(&found);
    let found = json(&stdout(&found));
    assert!(found["mappings"].as_u64() >= Some(70_000), "{found}");
    assert_eq!(found["resident_known"], false, "{found}");
    assert_eq!(found["kinds"]["in_use"]["bytes"], u64::MAX, "{found}");
}

/// The heap changes all the time, and is read many times: every read ends, and has figures.
#[test]
fn a_heap_in_motion_is_read_to_its_end() {
    let directory = temporary();
    let text = PROGRAM
        .replace(
            "else if (i % 3 != 0) free(p);",
            "else free(ring[i % 5000]), ring[i % 5000] = p;",
        )
        .replace(
            "uint32_t random",
            "static __thread void* ring[5000];\n  uint32_t random",
        )
        .replace(
            "char byte;",
            "puts(\"{}\");\n  fflush(stdout);\n  for (;;) {\n    \
             pthread_create(&thread, NULL, work, (void*)2);\n    work((void*)1);\n    \
             pthread_join(thread, NULL);\n  }\n  char byte;",
        );
    let program = compile(directory.path(), "busy.c", &text, &["-O1", "-pthread"]);
    let (running, _) = start(&mut preloaded(&program));
    for _ in 0..20 {
        let found = stats(&running, &["--json"]);
        assert_success(&found);
        let found = json(&stdout(&found));
        assert!(
            found["kinds"]["in_use"]["bytes"].as_u64() > Some(1 << 20),
            "{found}"
        );
    }
}

/// Forks, and ends by what its argument says; a second thread is still at work.
const ENDS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void* volatile kept;
static void* work(void* argument) { for (;;) free(malloc(100)); return argument; }
static void on_signal(int number) { (void)number; }
int main(int argc, char** argv) {
  signal(SIGUSR1, on_signal);
  raise(SIGUSR1);
  kept = memset(malloc(5 << 20), 1, 5 << 20);
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  if (fork() == 0) _exit(kept == NULL);
  int status;
  if (wait(&status) <= 0 || status != 0) return 99;
  const char* how = argc > 1 ? argv[1] : "";
  if (*how == '_') _exit(7);
  if (*how == 'k') raise(SIGTERM);
  if (*how == 'a') abort();
  if (*how == 'e') execl("/bin/sh", "sh", "-c", "exit 9", (char*)0);
  puts("its own");
  return 3;
}
"#;

#[test]
fn a_command_is_looked_into_at_each_of_its_ends() {
    let directory = temporary();
    let program = compile(directory.path(), "ends.c", ENDS, &["-O1", "-pthread"]);
    for (how, expected) in [("", 3), ("_", 7), ("k", 128 + 15), ("a", 128 + 6)] {
        let mut run = larder();
        let run = output(run.args(["stats", "--json", "--"]).arg(&program).arg(how));
        assert_eq!(code(&run), expected, "{how}: {}", stderr(&run));
        let found = json(&stdout(&run));
        let looks = found.as_array().expect("the program and its child");
        assert_eq!(looks.len(), 2, "{how}: {found}");
        for look in looks {
            assert_eq!(look["name"], "ends");
            assert!(
                look["kinds"]["in_use"]["resident"].as_u64() >= Some(5 << 20),
                "{look}"
            );
        }
        assert_ne!(looks[0]["process"], looks[1]["process"]);
    }
    // Another program in the same process, which has nothing of that any more.
    let out = directory.path().join("out.json");
    let mut run = larder();
    run.args(["stats", "-o"])
        .arg(&out)
        .arg("--")
        .arg(&program)
        .arg("e");
    assert_eq!(code(&output(&mut run)), 9);
    let found = json(&std::fs::read_to_string(&out).expect("written"));
    assert_eq!(
        (found.as_array().map(Vec::len), &found[1]["name"]),
        (Some(2), &"sh".into())
    );
}

#[test]
fn a_command_that_cannot_be_looked_into_is_reported() {
    let run = |words: &[&str]| output(larder().args(["stats", "--"]).args(words));
    assert_fails(&run(&["/no/such"]), 127, &["/no/such"]);
    assert_fails(&run(&["/etc/passwd"]), 126, &["/etc/passwd"]);
    assert_fails(&run(&[]), 125, &["required"]);
    let directory = temporary();
    let script = directory.path().join("script");
    write_program(&script, b"#!/bin/sh\nkill -STOP $$; exit 4\n");
    // A process that stops itself stays stopped until it gets SIGCONT.
    let mut stopped = larder();
    stopped
        .args(["stats", "--json", "--"])
        .arg(&script)
        .stdout(Stdio::piped());
    let mut tool = stopped.spawn().expect("larder");
    let children = |command: &str, options: &[&str]| {
        let parent = ["-P", &tool.id().to_string()].map(str::to_owned);
        let done = Command::new(command).args(options).args(parent).output();
        done.expect(command).status.success()
    };
    wait_until("stopped", || children("pgrep", &["--runstates", "T,t"]));
    // A tool that took that for its end would give another code. It may be stopped for the tool alone as
    // yet, and come to its own stop later.
    wait_until("let go", || !children("pkill", &["-CONT"]));
    assert_eq!(tool.wait().expect("it ends").code(), Some(4));
}
