//! A program that makes exactly so many calls of each kind, in known lines, in four threads: the
//! report says exactly that.

use std::collections::BTreeMap;

use crate::common::*;
use serde_json::Value;

const THREADS: u64 = 4;
const ROUNDS: u64 = 250;
const LEAKED: u64 = 7;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { ROUNDS = 250, THREADS = 4, LEAKED = 7, KINDS = 13 };
static pthread_barrier_t all_made;
/* gcc makes a malloc of realloc(NULL, n). */
static void *volatile nothing;
static void *volatile leaked[THREADS][LEAKED];

static void *work(void *argument) {
    long me = (long)argument;
    void *made[ROUNDS][KINDS];
    for (int i = 0; i < ROUNDS; i++) {
        void **slot = made[i];
        slot[0] = malloc(100);  // @malloc
        slot[1] = calloc(3, 20);  // @calloc
        slot[2] = malloc(10);  // @small
        slot[2] = realloc(slot[2], 200);  // @realloc
        slot[3] = strdup("hello");  // @strdup
        slot[4] = strndup("hello world", 5);  // @strndup
        slot[5] = wcsdup(L"abc");  // @wcsdup
        if (posix_memalign(&slot[6], 64, 128)) abort();  // @posix_memalign
        slot[7] = aligned_alloc(32, 96);  // @aligned_alloc
        slot[8] = memalign(128, 50);  // @memalign
        slot[9] = realloc(nothing, 31);  // @realloc_null
        slot[10] = reallocarray(nothing, 4, 8);  // @reallocarray
        slot[11] = valloc(33);  // @valloc
        slot[12] = pvalloc(40);  // @pvalloc
    }
    for (int i = 0; i < LEAKED; i++) leaked[me][i] = malloc(1000);  // @leak
    pthread_barrier_wait(&all_made);
    for (int i = 0; i < ROUNDS; i++)
        for (int kind = 0; kind < KINDS; kind++) free(made[i][kind]);  // @free
    free(NULL);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&all_made, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i)) abort();  // @create
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return malloc((size_t)-1) ? 1 : 0;  // @failed
}
"#;

struct Expected {
    mark: &'static str,
    kind: &'static str,
    calls: u64,
    size: u64,
    /// What is live at the peak and at the end, in bytes.
    peak: u64,
    live: u64,
}

fn expected() -> Vec<Expected> {
    let calls = THREADS * ROUNDS;
    let row = |mark, kind, size| Expected {
        mark,
        kind,
        calls,
        size,
        peak: calls * size,
        live: 0,
    };
    vec![
        row("malloc", "malloc", 100),
        row("calloc", "calloc", 60),
        Expected {
            peak: 0,
            ..row("small", "malloc", 10)
        },
        row("realloc", "realloc", 200),
        row("strdup", "strdup", 6),
        row("strndup", "strndup", 6),
        row("wcsdup", "wcsdup", 16),
        row("posix_memalign", "posix_memalign", 128),
        row("aligned_alloc", "aligned_alloc", 96),
        row("memalign", "memalign", 50),
        row("realloc_null", "realloc", 31),
        row("reallocarray", "reallocarray", 32),
        row("valloc", "valloc", 33),
        row("pvalloc", "pvalloc", 40),
        Expected {
            mark: "leak",
            kind: "malloc",
            calls: THREADS * LEAKED,
            size: 1000,
            peak: THREADS * LEAKED * 1000,
            live: THREADS * LEAKED * 1000,
        },
    ]
}

/// What the C library allocates itself when it makes threads, all of it in one line.
fn library_part(report: &Value) -> Value {
    site_at(report, "exact.c", line_of(SOURCE, "create"))
}

fn check_sites(report: &Value) {
    for row in expected() {
        let site = site_at(report, "exact.c", line_of(SOURCE, row.mark));
        let what = row.mark;
        assert_eq!(site["function"], "work", "{what}");
        assert_eq!(site["calls"], row.calls, "{what}");
        assert_eq!(site["bytes"], row.calls * row.size, "{what}");
        assert_eq!(site["peak_bytes"], row.peak, "{what}");
        assert_eq!(site["live_bytes"], row.live, "{what}");
        assert_eq!(
            site["tiny"],
            if row.size < 32 { row.calls } else { 0 },
            "{what}"
        );
        let kinds = BTreeMap::from([(row.kind, row.calls)]);
        assert_eq!(site["kinds"], serde_json::json!(kinds), "{what}");
        let stack = site["stack"].as_array().expect("a stack");
        assert!(
            stack.iter().any(|frame| frame["function"] == "work"),
            "{what}: {stack:?}"
        );
    }
}

fn check_counters(report: &Value) {
    let counters = &report["counters"];
    let library = library_part(report);
    assert_eq!(
        library["kinds"],
        serde_json::json!({ "calloc": library["calls"] })
    );
    let number = |value: &Value| value.as_u64().expect("a number");
    let sum = |kinds: &[&str]| -> u64 {
        expected()
            .iter()
            .filter(|row| kinds.contains(&row.kind))
            .map(|row| row.calls)
            .sum()
    };
    let mallocs = sum(&[
        "malloc",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
    ]);
    assert_eq!(counters["mallocs"], mallocs);
    assert_eq!(
        counters["callocs"],
        sum(&["calloc"]) + number(&library["calls"])
    );
    assert_eq!(counters["reallocs"], sum(&["realloc", "reallocarray"]));
    assert_eq!(counters["strdups"], sum(&["strdup", "strndup"]));
    assert_eq!(counters["wcsdups"], sum(&["wcsdup"]));
    assert_eq!(counters["aligned"], 5 * THREADS * ROUNDS);
    assert_eq!(counters["strndups"], THREADS * ROUNDS);
    assert_eq!(counters["failed"], 1);
    let all: u64 = expected().iter().map(|row| row.calls).sum();
    assert_eq!(counters["allocations"], all + number(&library["calls"]));
    let bytes: u64 = expected().iter().map(|row| row.calls * row.size).sum();
    assert_eq!(counters["total_bytes"], bytes + number(&library["bytes"]));
    let peak: u64 = expected().iter().map(|row| row.peak).sum();
    assert_eq!(
        counters["peak_bytes"],
        peak + number(&library["peak_bytes"])
    );
    let live: u64 = expected().iter().map(|row| row.live).sum();
    assert_eq!(
        counters["live_bytes"],
        live + number(&library["live_bytes"])
    );
    let freed_by_library = number(&library["calls"]) - number(&library["live_blocks"]);
    assert_eq!(counters["frees"], 13 * THREADS * ROUNDS + freed_by_library);
    assert_eq!(counters["unknown_frees"], 0);
    assert_eq!(counters["tiny"], THREADS * ROUNDS * 5);
    let site_calls: u64 = report["sites"]
        .as_array()
        .expect("sites")
        .iter()
        .map(|site| number(&site["calls"]))
        .sum();
    assert_eq!(counters["allocations"], site_calls);
}

fn check_text(trace: &std::path::Path, report: &Value) {
    let text = report_text(trace, &[]);
    let counters = &report["counters"];
    let lines: Vec<&str> = text.lines().collect();
    let start = lines
        .iter()
        .position(|line| line.starts_with("Mallocs: "))
        .expect("counters");
    let expected = [
        ("Mallocs", "mallocs"),
        ("Reallocs", "reallocs"),
        ("Callocs", "callocs"),
        ("Strdups", "strdups"),
        ("Wcsdups", "wcsdups"),
        ("Frees", "frees"),
        ("Allocations", "allocations"),
        ("Maximum allocated", "peak_bytes"),
        ("Total allocated", "total_bytes"),
    ];
    for (line, (name, key)) in lines[start..].iter().zip(expected) {
        assert_eq!(*line, format!("{name}: {}", counters[key]));
    }
    let leak = format!("exact.c:{}", line_of(SOURCE, "leak"));
    let live = text
        .split("Still live at exit")
        .nth(1)
        .expect("the last ranking");
    assert!(live.contains(&leak), "{live}");
    for title in [
        "Sites by calls",
        "Sites by bytes",
        "live at the peak",
        "under 32 bytes",
    ] {
        assert!(text.contains(title), "{title} is missing in {text}");
    }
    assert!(
        !text.contains('\x1b'),
        "colours although stdout is no terminal"
    );
}

fn exact_on(options: &[&str]) {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "exact.c",
        SOURCE,
        &["-g", "-O0", "-pthread"],
    );
    let trace = record(directory.path(), &program, &[], options);
    let report = report_json(&trace, &[]);
    check_sites(&report);
    check_counters(&report);
    assert_eq!(report["losses"]["complete"], true, "{:#}", report["losses"]);
    assert_eq!(report["processes"].as_array().unwrap().len(), 1);
    assert_eq!(report["processes"][0]["threads"], THREADS + 1);
    assert_eq!(report["processes"][0]["end"], "exit");
    check_text(&trace, &report);
}

#[test]
fn exact_on_larder() {
    exact_on(&[]);
}

#[test]
fn exact_on_the_programs_own_malloc() {
    exact_on(&["--no-larder"]);
}

#[test]
fn exact_on_a_malloc_that_is_named() {
    let larder = library_directory().join("liblarder.so");
    exact_on(&["--malloc", larder.to_str().expect("a UTF-8 path")]);
}

#[test]
fn rankings_are_sorted_and_cut_as_asked() {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "exact.c",
        SOURCE,
        &["-g", "-O0", "-pthread"],
    );
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    for (key, column) in [
        ("calls", "calls"),
        ("bytes", "bytes"),
        ("peak", "peak_bytes"),
        ("tiny", "tiny"),
        ("live", "live_bytes"),
    ] {
        let report = report_json(&trace, &["--sort", key, "--top", "3"]);
        let weights: Vec<u64> = report["sites"]
            .as_array()
            .unwrap()
            .iter()
            .map(|site| site[column].as_u64().unwrap())
            .collect();
        assert_eq!(weights.len(), 3, "{key}");
        assert!(weights.is_sorted_by(|a, b| a >= b), "{key}: {weights:?}");
        let text = report_text(&trace, &["--sort", key, "--top", "3"]);
        assert_eq!(text.matches(" site\n").count(), 1, "one ranking: {text}");
    }
}
