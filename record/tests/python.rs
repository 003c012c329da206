//! Python's frames in stacks: against the interpreter's own, in each CPython that is found here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, Run, cpu_library, recorder};
use larder_trace::{Action, Frame, Trace, trace_files};

/// At each allocation of 77,778 bytes a program notes the interpreter's own stack. At its end it prints them.
const ORACLE: &str = include_str!("python/oracle.py");
/// Each with how often it is there.
type Stacks = BTreeMap<String, usize>;

const SIZE: u64 = 77_778;

/// The machine's own, or those that `tests/machines/python` has found.
fn pythons() -> Vec<PathBuf> {
    let named = std::env::var_os("LARDER_TEST_PYTHONS").unwrap_or("/usr/bin/python3".into());
    let pythons: Vec<PathBuf> = std::env::split_paths(&named).collect();
    for python in &pythons {
        assert!(
            python.exists(),
            "no {}: run scripts/setup",
            python.display()
        );
    }
    pythons
}

/// Functions and lines of Python in the stacks of the marked allocations.
fn stacks(run: &Run, python: &Path) -> Stacks {
    let evaluates = evaluating_code(python);
    let mut stacks = Stacks::new();
    for file in trace_files(&run.folder).expect("traces") {
        let trace = Trace::open(&file).expect("a trace");
        let mut events = trace.events();
        while let Some(event) = events.next() {
            let Action::Alloc {
                size: SIZE, stack, ..
            } = event.action
            else {
                continue;
            };
            let frames: Vec<&Frame> = events.stacks().frames(stack).collect();
            let is_python = |frame: &Frame| {
                let address = frame.lookup_address();
                let module = trace.module(frame.module.expect("a module")).expect("one");
                evaluates.contains(&address.wrapping_sub(module.bias)) && module.path != b"[python]"
            };
            let names = frames.iter().filter_map(|frame| name(&trace, frame));
            let names: Vec<String> = names.collect();
            let evaluates = frames.iter().any(|frame| is_python(frame));
            assert_eq!(evaluates, names.is_empty(), "{names:?}");
            *stacks.entry(names.join(" ")).or_default() += 1;
        }
        assert_eq!(events.damage().len(), 0);
    }
    stacks
}

/// Whether there are stacks of the code that the interpreter evaluates first.
fn are_from_the_beginning(run: &Run) -> bool {
    let files = trace_files(&run.folder).expect("traces");
    files.iter().any(|file| {
        let trace = Trace::open(file).expect("a trace");
        let mut events = trace.events();
        let mut found = false;
        while let Some(event) = events.next() {
            if let Action::Alloc { stack, .. } = event.action {
                let mut frames = events.stacks().frames(stack);
                found |= frames.any(|frame| {
                    let name = name(&trace, frame);
                    name.is_some_and(|name| {
                        name.starts_with("_install@<frozen importlib._bootstrap>")
                    })
                });
            }
        }
        found
    })
}

fn name(trace: &Trace, frame: &Frame) -> Option<String> {
    let module = frame.module?;
    let function = trace
        .symbols()
        .functions(module, frame.lookup_address())
        .next()?;
    let text = String::from_utf8_lossy;
    let file = text(function.file);
    let file = file.rsplit('/').next().unwrap_or_default();
    Some(format!("{}@{file}:{}", text(function.name), function.line))
}

/// Where the function that evaluates Python code has its code, in its file.
fn evaluating_code(python: &Path) -> std::ops::Range<u64> {
    let real = python.canonicalize().expect("a program");
    let library = real
        .parent()
        .and_then(Path::parent)
        .expect("a folder")
        .join("lib");
    let libraries = library
        .read_dir()
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let is_python = |path: &PathBuf| path.to_string_lossy().contains("/libpython3.");
    let libraries = libraries.map(|entry| entry.path()).filter(is_python);
    for file in [real].into_iter().chain(libraries) {
        let output = Command::new("nm")
            .args(["-DS", "--defined-only"])
            .arg(&file)
            .output();
        let text = output.expect("nm cannot be run; install binutils").stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text
            .lines()
            .find(|line| line.ends_with(" _PyEval_EvalFrameDefault"));
        if let Some(line) = line {
            let number = |part: &str| u64::from_str_radix(part, 16).expect("a number");
            let parts: Vec<&str> = line.split(' ').collect();
            return number(parts[0])..number(parts[0]) + number(parts[1]);
        }
    }
    panic!("{} exports no function that evaluates", python.display());
}

fn assert_stacks_are_right(run: &Run, python: &Path, least: usize) {
    run.succeeded();
    let mut expected = Stacks::new();
    for line in run.stdout().lines() {
        *expected.entry(line.to_owned()).or_default() += 1;
    }
    assert!(expected.len() >= least, "only {}", expected.len());
    let found = stacks(run, python);
    let differ = |a: &Stacks, b: &Stacks| {
        let other = a
            .iter()
            .filter(|(stack, count)| b.get(*stack) != Some(count));
        other
            .map(|(stack, count)| format!("{count} × {stack}"))
            .collect::<Vec<_>>()
    };
    let differences = [differ(&expected, &found), differ(&found, &expected)];
    assert_eq!(
        differences,
        [const { Vec::<String>::new() }; 2],
        "{}",
        python.display()
    );
}

#[test]
fn pythons_frames_are_the_interpreters_own() {
    let bench = Bench::new();
    let script = bench.path("oracle.py");
    std::fs::write(&script, ORACLE).expect("written");
    let script = script.to_str().expect("a path").to_owned();
    for python in pythons() {
        for (option, malloc) in [("-S", "pymalloc"), ("-s", "malloc")] {
            let run = bench.run_with(&python, &[option, &script], |command| {
                command.env("PYTHONMALLOC", malloc);
            });
            assert_stacks_are_right(&run, &python, 40);
            let early = malloc != "malloc" || are_from_the_beginning(&run);
            assert!(early, "{} is recognized late", python.display());
        }
    }
}

/// Calls of every kind; each takes as long as the others.
const BUSY: &str = r#"
def spin(count):
    total = 0
    for number in range(count):
        total += number & 7
    return total
def deep(depth):
    return spin(20000) if depth == 0 else deep(depth - 1)
def generated():
    for _ in range(3):
        yield spin(20000)
def by_c():
    return max([1, 2, 3], key=lambda _: spin(20000))
def listed():
    return [spin(10000) + len(str(size)) for size in range(3)]
def main():
    for turn in range(200):
        deep(5)
        sum(generated())
        by_c()
        listed()
        exec("spin(20000)")
bytearray(77777)
main()
"#;

/// Outermost first, the chains of functions that may be seen, each with what it may call.
fn is_possible(names: &[String]) -> bool {
    let calls = |outer: &str, inner: &str| match outer {
        "<module>" => ["main", "spin"].contains(&inner),
        "main" => [
            "deep",
            "generated",
            "by_c",
            "listed",
            "<module>",
            "<listcomp>",
        ]
        .contains(&inner),
        "deep" => ["deep", "spin"].contains(&inner),
        "generated" | "<listcomp>" | "<lambda>" => inner == "spin",
        "by_c" => inner == "<lambda>",
        "listed" => ["<listcomp>", "spin"].contains(&inner),
        _ => false,
    };
    let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let names: Vec<String> = names.iter().map(|name| short(name)).collect();
    names.first().is_some_and(|first| first == "<module>")
        && names.windows(2).all(|pair| calls(&pair[0], &pair[1]))
}

#[test]
fn samples_have_pythons_frames() {
    let bench = Bench::new();
    let script = bench.path("busy.py");
    std::fs::write(&script, BUSY).expect("written");
    let script = script.to_str().expect("a path").to_owned();
    for python in pythons() {
        let mut list = recorder().into_os_string();
        list.push(":");
        list.push(cpu_library());
        let run = bench.run_with(&python, &["-S", &script], |command| {
            command
                .env("LD_PRELOAD", list)
                .env("LARDER_RECORD_CPU", "997");
        });
        run.succeeded();
        let (mut spinning, mut all) = (0, 0);
        for file in trace_files(&run.folder).expect("traces") {
            let trace = Trace::open(&file).expect("a trace");
            let mut events = trace.events();
            while let Some(event) = events.next() {
                let Action::Sample { stack, .. } = event.action else {
                    continue;
                };
                let frames = events.stacks().frames(stack);
                let names: Vec<String> = frames.filter_map(|frame| name(&trace, frame)).collect();
                let in_script =
                    |name: &&String| name.contains("@busy.py:") || name.contains("@<string>:");
                let functions = names.iter().rev().filter(in_script);
                let functions = functions.filter_map(|name| name.split('@').next());
                let functions: Vec<String> = functions.map(str::to_owned).collect();
                all += 1;
                spinning += usize::from(functions.last().is_some_and(|name| name == "spin"));
                assert!(functions.is_empty() || is_possible(&functions), "{names:?}");
            }
            assert_eq!(events.damage().len(), 0);
        }
        let python = python.display();
        assert!(
            all > 50 && spinning * 10 >= all * 8,
            "{python}: {spinning} of {all}"
        );
    }
}

/// A program that exports what is looked for in an interpreter, and allocates where it would evaluate.
const PRETENDER: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
unsigned long Py_Version = VERSION;
long PyCode_Type[64], PyUnicode_Type[64];
static char *state;
void *PyGILState_GetThisThreadState(void) { return state; }
const char *Py_GetVersion(void) { return "3.10.99 (like no other)"; }
__attribute__((noinline)) int _PyEval_EvalFrameDefault(void) {
  char *block = malloc(77778);
  block[0] = 1;
  free(block);
  return block == 0;
}
int main(void) {
  static unsigned long fields[64], frame[64], code[64];
  for (int i = 0; i < 64; i++) fields[i] = frame[i] = code[i] = BAD;
  /* Its state is the thread's own in every version. */
  fields[17] = fields[19] = fields[22] = (unsigned long)pthread_self();
  fields[6] = fields[7] = fields[9] = fields[3] = START;
  state = (char *)fields;
  int result = 0;
  for (int i = 0; i < 100; i++) result |= _PyEval_EvalFrameDefault();
  return result;
}
"#;

fn pretend(version: &str, bad: &str, start: &str) -> String {
    let bench = Bench::new();
    let defines = [("VERSION", version), ("BAD", bad), ("START", start)];
    let defines = defines.map(|(name, value)| format!("-D{name}={value}"));
    let options: Vec<&str> = defines.iter().map(String::as_str).collect();
    let program = bench.build(
        "pretender.c",
        PRETENDER,
        &[&options[..], &["-rdynamic"]].concat(),
    );
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    let marked = |call: &&crate::support::Recording| {
        matches!(call.event.action, Action::Alloc { size: SIZE, .. })
    };
    assert_eq!(trace.calls.iter().filter(marked).count(), 100);
    run.stderr()
}

#[test]
fn a_version_that_is_not_known_is_named_once() {
    let told = pretend("0x03630000", "0", "0");
    let words = "larder: Python 3.99; its frames are not known: native ones are recorded\n";
    assert_eq!(told, words);
}

/// Nothing is read of what is no frame.
#[test]
fn frames_of_another_layout_are_left_alone() {
    for (version, name) in [
        ("0x030b02f0", "3.11"),
        ("0x030c00f0", "3.12"),
        ("0x030d00f0", "3.13"),
        ("0x030e00f0", "3.14"),
        ("0x030f00f0", "3.15"),
    ] {
        for bad in ["0", "1", "0x4141414141414140", "0x700000000000"] {
            for start in [
                "0",
                "8",
                "0x7ffffffff000",
                "(unsigned long)fields",
                "(unsigned long)frame",
            ] {
                let told = pretend(version, bad, start);
                let words = format!(
                    "larder: Python {name}; its frames cannot be read: native ones are recorded\n"
                );
                assert_eq!(told, words, "{bad} {start}");
            }
        }
    }
}

/// Like a program that exchanges the native stack, so that the interpreter's record of what it evaluates is another's for
/// a moment.
const EXCHANGE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
unsigned long Py_Version = 0x030b02f0;
char PyCode_Type[8], PyUnicode_Type[8];
static unsigned long state[64], frame[16], code[64];
void *PyGILState_GetThisThreadState(void) { return state; }
const char *Py_GetVersion(void) { return "3.11.2"; }
static unsigned long object(void *type, const char *bytes, unsigned long length, int at) {
  unsigned long *made = calloc(16, 8);
  made[1] = (unsigned long)type;
  made[2] = length;
  made[4] = 1 << 2 | 1 << 5 | 1 << 6;
  memcpy((char *)made + at, bytes, length);
  return (unsigned long)made;
}
__attribute__((noinline)) void _PyEval_EvalFrameDefault(unsigned long *other) {
  volatile unsigned long record[3] = {0, (unsigned long)frame, 0};
  state[56 / 8] = (unsigned long)(other ? other : record);
  char *volatile block = malloc(77778);
  free(block);
}
int main(void) {
  state[152 / 8] = (unsigned long)pthread_self();
  code[8 / 8] = (unsigned long)PyCode_Type;
  *(int *)((char *)code + 72) = 7;
  code[112 / 8] = object(PyUnicode_Type, "/a.py", 5, 48);
  code[120 / 8] = code[128 / 8] = object(PyUnicode_Type, "evaluated", 9, 48);
  code[136 / 8] = object(0, "\xef", 2, 32);
  frame[32 / 8] = (unsigned long)code;
  frame[56 / 8] = (unsigned long)code + 184;
  ((char *)frame)[68] = 1;
  unsigned long broken[3] = {0, 0x700000000000, 0};
  for (int i = 0; i < 20; i++) _PyEval_EvalFrameDefault(i % 4 == 3 ? broken : 0);
  return 0;
}
"#;

#[test]
fn frames_are_read_only_where_the_native_stack_has_them() {
    let bench = Bench::new();
    let program = bench.build("exchange.c", EXCHANGE, &["-rdynamic"]);
    let run = bench.run(&program, &[]);
    run.succeeded().only().assert_whole();
    assert_eq!(run.stderr(), "");
    let found = stacks(&run, &program);
    let expected =
        [("", 5), ("evaluated@a.py:7", 15)].map(|(stack, count)| (stack.to_owned(), count));
    assert_eq!(found, Stacks::from(expected));
}
