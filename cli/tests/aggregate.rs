//! `record --aggregate`: the report of counters is that of a full trace of the same run, apart from
//! what counters cannot know; whatever ends the program, they are there.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::*;
use serde_json::Value;

/// Every call, in the main thread, in threads that come and go, in a child of fork and in a library
/// that is unloaded, in a fixed order.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

static void *volatile nothing;
static void *volatile kept[64];

static void *work(void *argument) {
    long me = (long)argument;
    void *block = malloc(100 + me);
    kept[me] = strdup("kept by the main thread's free");
    block = realloc(block, 5000);
    free(block);
    return NULL;
}

static void every_call(void) {
    void *made[12];
    for (int i = 0; i < 50; i++) {
        made[0] = malloc(10);
        made[1] = calloc(3, 20);
        made[2] = realloc(malloc(7), 300);
        made[3] = strndup("hello world", 5);
        made[4] = wcsdup(L"abc");
        if (posix_memalign(&made[5], 64, 128)) abort();
        made[6] = aligned_alloc(32, 96);
        made[7] = realloc(nothing, 31);
        made[8] = reallocarray(nothing, 4, 8);
        made[9] = valloc(33);
        made[10] = malloc(0);
        void *again = realloc(malloc(90), PTRDIFF_MAX);
        if (again) abort();
        made[11] = realloc(malloc(12), 0);
        for (int kind = 0; kind < 11; kind++) free(made[kind]);
        free(NULL);
    }
    if (malloc(PTRDIFF_MAX)) abort();
}

int main(int count, char **words) {
    every_call();
    for (long i = 0; i < 40; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)i)) abort();
        pthread_join(thread, NULL);
        if (i % 3) free(kept[i]);
    }
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(words[1], RTLD_NOW);
        if (!library) abort();
        void *(*make)(int) = (void *(*)(int))dlsym(library, "make");
        kept[50 + i] = make(20 + i);
        free(make(200));
        dlclose(library);
    }
    pid_t child = fork();
    if (child == 0) {
        free(kept[0]);
        every_call();
        exit(0);
    }
    waitpid(child, NULL, 0);
    if (count > 2) raise(9);
    return 0;
}
"#;

const LIBRARY: &str = "#include <stdlib.h>\nvoid *make(int size) { return malloc(size); }\n";

/// A program and its library, recorded in both ways.
fn both(directory: &Path, arguments: &[&str]) -> (Value, Value) {
    let flags = ["-g", "-O0", "-fno-builtin", "-pthread", "-ldl"];
    let program = compile(directory, "all.c", SOURCE, &flags);
    let shared = ["-g", "-shared", "-fPIC", "-fno-builtin"];
    let library = compile(directory, "library.c", LIBRARY, &shared);
    let mut words = vec![library.to_str().expect("UTF-8")];
    words.extend(arguments);
    let run = |name: &str, options: &[&str]| {
        let trace = directory.join(name);
        output(
            larder()
                .args(["record", "--no-larder", "-o"])
                .arg(&trace)
                .args(options)
                .arg("--")
                .arg(&program)
                .args(&words),
        );
        report_json(&trace, &[])
    };
    (run("full", &[]), run("counted", &["--aggregate"]))
}

/// What has to be equal, by the place where the site is.
fn sites(report: &Value) -> BTreeMap<String, Value> {
    let sites = report["sites"].as_array().expect("sites");
    let fields = [
        "calls",
        "bytes",
        "tiny",
        "live_blocks",
        "live_bytes",
        "kinds",
    ];
    sites
        .iter()
        .map(|site| {
            let place = format!("{}:{} {}", site["file"], site["line"], site["function"]);
            let values = fields.iter().map(|field| site[field].clone());
            (place, values.collect())
        })
        .collect()
}

fn compare(full: &Value, counted: &Value) {
    assert_eq!(full["counters"], counted["counters"]);
    assert!(full["counters"]["allocations"].as_u64() > Some(1500));
    assert!(full["counters"]["failed"].as_u64() > Some(50));
    assert_eq!(sites(full), sites(counted));
    let processes = |report: &Value| report["processes"].as_array().expect("processes").clone();
    assert_eq!(processes(full).len(), 2);
    for (full, counted) in processes(full).iter().zip(processes(counted)) {
        for field in ["counters", "threads", "events", "end", "origin"] {
            assert_eq!(full[field], counted[field], "{field}");
        }
        assert_eq!(counted["losses"]["calls"], 0);
        assert_eq!(counted["losses"]["damage"], Value::Array(Vec::new()));
    }
}

#[test]
fn counters_say_what_a_full_trace_says() {
    let directory = temporary();
    let (full, counted) = both(directory.path(), &[]);
    compare(&full, &counted);
    let peaks = |report: &Value| {
        let sites = report["sites"].as_array().expect("sites").iter();
        sites
            .map(|site| site["peak_bytes"].clone())
            .collect::<Vec<_>>()
    };
    assert!(peaks(&full).iter().all(Value::is_u64));
    assert!(peaks(&counted).iter().all(Value::is_null));
}

#[test]
fn a_killed_program_leaves_its_counters() {
    let directory = temporary();
    let (full, counted) = both(directory.path(), &["killed"]);
    compare(&full, &counted);
    assert_eq!(counted["processes"][0]["end"], "not seen");
}

#[test]
fn what_counters_do_not_know_is_said() {
    let directory = temporary();
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n";
    let flags = ["-g", "-fno-builtin"];
    let program = compile(directory.path(), "one.c", source, &flags);
    let trace = record(directory.path(), &program, &[], &["--aggregate"]);
    let text = report_text(&trace, &[]);
    assert!(
        text.contains("Sites by bytes live at the peak: not known"),
        "{text}"
    );
    assert!(text.contains("Mallocs: 1\n"), "{text}");
    let wrapped = output(
        larder()
            .arg("report")
            .arg(&trace)
            .args(["--wrapper", "main=malloc"]),
    );
    assert_fails(&wrapped, 125, &["counters", "--aggregate"]);
    for command in ["advise", "html", "timeline", "flamegraph", "replay"] {
        let refused = output(larder().arg(command).arg(&trace));
        assert_fails(&refused, 125, &["counters", "--aggregate"]);
    }
}

#[test]
fn counters_of_a_damaged_trace_are_read_as_far_as_they_go() {
    let directory = temporary();
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n";
    let flags = ["-g", "-fno-builtin"];
    let program = compile(directory.path(), "one.c", source, &flags);
    let trace = record(directory.path(), &program, &[], &["--aggregate"]);
    let mut files = fs::read_dir(&trace).expect("the trace");
    let file = files.next().expect("a file").expect("a file").path();
    let whole = fs::read(&file).expect("readable");
    let at = whole
        .windows(5)
        .position(|bytes| bytes == b"LCHK\x05")
        .expect("a chunk of counters");
    // Cut within the counters, and every byte of the first ones turned over.
    fs::write(&file, &whole[..at + 100]).expect("writable");
    let cut = report_json(&trace, &[]);
    assert_eq!(cut["counters"]["allocations"], 0);
    assert_eq!(cut["losses"]["complete"], false);
    let mut flipped = whole.clone();
    for byte in &mut flipped[at + 80..at + 400] {
        *byte ^= 0xff;
    }
    fs::write(&file, &flipped).expect("writable");
    let report = output(larder().arg("report").arg(&trace));
    assert_success(&report);
}
