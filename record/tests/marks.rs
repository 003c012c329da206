//! The program's own marks are in the trace, and cost nothing to a program that is not recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, finish};

const MARKS: &str = r#"
#include <larder/mark.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void more(void);
static void *serve(void *unused) {
  for (int i = 0; i < 1000; i++) {
    larder_mark("request");
    free(malloc(10));
  }
  return unused;
}
int main(void) {
  pthread_t t[4];
  for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, serve, 0);
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
  char name[1000];
  for (int i = 0; i < 500; i++) {
    snprintf(name, sizeof name, "turn %d", i);
    larder_mark(name);
  }
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  larder_mark(name);
  larder_mark("\x1b[31m\xff");
  larder_mark("");
  larder_mark(0);
  more();
  return 0;
}
"#;

const MORE: &str = r#"
#include <larder/mark.h>
extern "C" void more() { larder_mark("C++"); }
"#;

fn include() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    format!("-I{}", root.display())
}

fn build(bench: &Bench, name: &str, options: &[&str]) -> std::path::PathBuf {
    let include = include();
    let strict = ["-Wextra", "-Wpedantic", "-Werror", "-O2", "-c", &include];
    let object = bench.build("more.cc", MORE, &strict);
    let mut all = vec!["-Wextra", "-Wpedantic", "-Werror", "-O2", &include];
    all.push(object.to_str().expect("a plain path"));
    all.extend(options);
    bench.build(name, MARKS, &all)
}

#[test]
fn marks_of_all_threads_are_in_the_trace_with_their_names() {
    let bench = Bench::new();
    for options in [&[][..], &["-no-pie"]] {
        let program = build(&bench, "marks.c", options);
        let run = bench.run(&program, &[]);
        let trace = run.succeeded().only().assert_whole();
        let mut names: BTreeMap<&[u8], usize> = BTreeMap::new();
        let mut threads = BTreeSet::new();
        for (name, thread) in &trace.marks {
            *names.entry(name).or_default() += 1;
            if name == b"request" {
                threads.insert(thread);
            }
        }
        assert_eq!(names.get(&b"request"[..]), Some(&4000));
        assert_eq!(threads.len(), 4);
        for turn in 0..500 {
            assert_eq!(names.get(format!("turn {turn}").as_bytes()), Some(&1));
        }
        for name in [&[b'x'; 255][..], b"\x1b[31m\xff", b"", b"C++"] {
            assert_eq!(names.get(name), Some(&1), "{name:?}");
        }
        assert_eq!(trace.marks.len(), 4504);
    }
}

#[test]
fn a_program_with_marks_runs_without_the_recorder_even_linked_statically() {
    let bench = Bench::new();
    for options in [&[][..], &["-no-pie"], &["-static"]] {
        let program = build(&bench, "marks.c", options);
        let mut command = Command::new(&program);
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        let output = finish(command);
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
}
