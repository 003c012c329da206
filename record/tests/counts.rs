//! A trace has exactly the program's calls, sizes, addresses, lines and threads.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Bench, lines, preload};
use larder_trace::{Action, AllocCall, EndState, FreeCall, Origin};

const FOUR_THREADS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <malloc.h>
#include <string.h>
#include <wchar.h>
enum { N = 1000 };
static void *work(void *unused) {
  for (int i = 0; i < N; i++) {
    char *a = malloc(10 + i % 7);            /* line 10 */
    int *b = calloc(3, 4);                   /* line 11 */
    a = realloc(a, 100);                     /* line 12 */
    b = reallocarray(b, 5, 8);               /* line 13 */
    void *c = aligned_alloc(64, 128);        /* line 14 */
    void *d = 0;
    if (posix_memalign(&d, 32, 48)) abort(); /* line 16 */
    void *e = memalign(256, 40);             /* line 17 */
    char *f = strdup("hello");               /* line 18 */
    char *g = strndup("hello", 3);           /* line 19 */
    wchar_t *h = wcsdup(L"hey");             /* line 20 */
    free(a); free(b); free(c); free(d); free(e); free(f); free(g); free(h); /* line 21 */
    free(NULL);                              /* line 22 */
  }
  return unused;
}
int main(void) {
  pthread_t t[4];
  for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, work, 0);
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
  void *v = valloc(10), *p = PVALLOC(10);
  free(v); free(p);
  free(realloc(0, 33));
  void *gone = realloc(malloc(20), 0);
  return gone != 0;
}
"#;

const FOUR_THREADS_COUNTS: [(&str, usize); 13] = [
    ("aligned_alloc", 4000),
    ("calloc", 4000),
    ("free", 36_003),
    ("malloc", 4001),
    ("memalign", 4000),
    ("posix_memalign", 4000),
    ("pvalloc", 1),
    ("realloc", 4002),
    ("reallocarray", 4000),
    ("strdup", 4000),
    ("strndup", 4000),
    ("valloc", 1),
    ("wcsdup", 4000),
];

#[test]
fn four_threads_are_counted_to_the_call_and_the_line() {
    let bench = Bench::new();
    let options = ["-fno-builtin", "-DPVALLOC=pvalloc"];
    let program = bench.build("four.c", FOUR_THREADS, &options);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    assert_eq!(
        trace.counts("four.bin"),
        BTreeMap::from(FOUR_THREADS_COUNTS)
    );
    assert_eq!(trace.losses.truncated_stacks, 0);
    assert_eq!(trace.process.end, EndState::Exited);
    assert_eq!(trace.process.origin, Origin::Start);

    let threads: BTreeSet<u32> = trace.calls.iter().map(|call| call.event.thread).collect();
    assert_eq!(threads.len(), 5);

    // Every call of a kind comes from its line.
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    for call in trace.calls_from("four.bin") {
        if !matches!(call.event.action, Action::ReallocStart { .. }) {
            *places.entry(call.frames[0].1).or_default() += 1;
        }
    }
    let found = lines(&program, places.keys().copied());
    let mut by_line: BTreeMap<u32, usize> = BTreeMap::new();
    for ((function, line), count) in found.iter().zip(places.values()) {
        if function == "work" {
            *by_line.entry(*line).or_default() += count;
        }
    }
    let mut expected: BTreeMap<u32, usize> = BTreeMap::new();
    for line in [10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 22] {
        expected.insert(line, 4000);
    }
    expected.insert(21, 32_000);
    assert_eq!(by_line, expected);
}

#[test]
fn sizes_alignments_and_copies_are_as_asked() {
    let bench = Bench::new();
    let options = ["-fno-builtin", "-DPVALLOC=pvalloc"];
    let program = bench.build("four.c", FOUR_THREADS, &options);
    let run = bench.run(&program, &[]);
    let mut seen = BTreeMap::new();
    for call in run.succeeded().only().calls_from("four.bin") {
        if let Action::Alloc {
            call,
            size,
            count,
            alignment,
            address,
            ..
        } = call.event.action
        {
            assert_ne!(address, 0);
            if !matches!(call, AllocCall::Malloc) {
                seen.insert(call, (size, count, alignment));
            }
        }
        if let Action::ReallocEnd {
            call,
            size: size @ (100 | 40),
            count,
            old,
            ..
        } = call.event.action
        {
            assert_ne!(old, 0);
            seen.insert(call, (size, count, 0));
        }
    }
    let expected = BTreeMap::from([
        (AllocCall::Calloc, (12, 3, 0)),
        (AllocCall::AlignedAlloc, (128, 0, 64)),
        (AllocCall::PosixMemalign, (48, 0, 32)),
        (AllocCall::Memalign, (40, 0, 256)),
        (AllocCall::Valloc, (10, 0, 4096)),
        (AllocCall::Pvalloc, (10, 0, 4096)),
        (AllocCall::Strdup, (6, 0, 0)),
        (AllocCall::Strndup, (4, 0, 0)),
        (AllocCall::Wcsdup, (16, 0, 0)),
        (AllocCall::Realloc, (100, 0, 0)),
        (AllocCall::Reallocarray, (40, 5, 0)),
    ]);
    assert_eq!(seen, expected);
}

#[test]
fn the_same_counts_under_other_allocators() {
    let mut below = vec![(
        "jemalloc",
        std::path::PathBuf::from("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"),
    )];
    let larder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/lib/liblarder.so");
    if larder.exists() {
        below.push(("larder", larder));
    }
    let bench = Bench::new();
    let program = bench.build(
        "four.c",
        FOUR_THREADS,
        &["-fno-builtin", "-DPVALLOC=valloc"],
    );
    // Debian's jemalloc has no pvalloc of its own, so a program that calls it crashes there.
    let mut expected = BTreeMap::from(FOUR_THREADS_COUNTS);
    expected.remove("pvalloc");
    expected.insert("valloc", 2);
    for (name, library) in below {
        assert!(
            library.exists(),
            "{} is missing: install libjemalloc2",
            library.display()
        );
        let run = bench.run_with(&program, &[], |command| {
            command.env("LD_PRELOAD", preload(&library));
        });
        // jemalloc's realloc(p, 0) returns a block; the program then returns 1.
        let code = run.output.status.code();
        assert!(
            code == Some(0) || (name == "jemalloc" && code == Some(1)),
            "{name}: {code:?}"
        );
        let trace = run.only().assert_whole();
        assert_eq!(trace.counts("four.bin"), expected, "{name}");
    }
}

/// Ends with 0 when each operator does what it is to do.
const OPERATORS: &str = r#"
#include <new>
#include <cstdio>
#include <cstdlib>
struct alignas(64) Wide { char bytes[64]; };
static void *reserve;
static void give_up_reserve() {
  if (reserve) { std::free(reserve); reserve = nullptr; } else { std::set_new_handler(nullptr); }
}
template <class T> __attribute__((noinline)) T *hide(T *p) { asm volatile("" : "+r"(p)); return p; }
__attribute__((noinline)) static bool too_much() {
  try {
    volatile size_t size = (size_t)1 << 62;
    hide((char *)operator new(size));
  } catch (const std::bad_alloc &) {
    return true;
  }
  return false;
}
int main() {
  delete hide(new int);
  delete[] hide(new int[5]);
  delete hide(new Wide);
  delete[] hide(new Wide[2]);
  operator delete(hide(operator new(7, std::nothrow)), std::nothrow);
  operator delete[](hide(operator new[](9, std::nothrow)), std::nothrow);
  operator delete(hide(operator new(11)), (size_t)11);
  volatile size_t size = (size_t)1 << 62;
  if (operator new(size, std::nothrow)) return 1;
  if (!too_much()) return 2;
  reserve = std::malloc(1000);
  std::set_new_handler(give_up_reserve);
  if (!too_much()) return 3;
  return reserve != nullptr ? 4 : 0;
}
"#;

#[test]
fn operators_new_and_delete_in_all_forms() {
    let bench = Bench::new();
    let program = bench.build("new.cc", OPERATORS, &["-fno-builtin", "-std=c++17"]);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    let counts = trace.counts("new.bin");
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert_eq!(of("operator new"), 4 + 3);
    assert_eq!(of("operator new[]"), 3);
    assert_eq!(of("operator delete"), 4);
    assert_eq!(of("operator delete[]"), 3);
    // The new-handler's own free, and the end of two exceptions.
    assert_eq!((of("malloc"), of("free")), (1, 1 + 2));
    let failed = trace.calls_from("new.bin").filter(|call| {
        matches!(
            call.event.action,
            Action::Alloc {
                call: AllocCall::New,
                address: 0,
                ..
            }
        )
    });
    assert_eq!(failed.count(), 3);
    let stated: Vec<u64> = trace
        .calls_from("new.bin")
        .filter_map(|call| match call.event.action {
            Action::Free {
                call: FreeCall::Delete,
                size,
                alignment: 64,
                ..
            } => Some(size),
            _ => None,
        })
        .collect();
    assert_eq!(stated, [64]);
    assert_eq!(trace.losses.truncated_stacks, 0);
}

#[test]
fn a_rust_program_is_recorded() {
    let bench = Bench::new();
    let source = bench.path("boxes.rs");
    let program = bench.path("boxes");
    let text = "fn main() { let v: Vec<Box<[u8; 77]>> = (0..500).map(|n| Box::new([n as u8; 77])).collect(); \
                println!(\"{}\", v.iter().map(|b| b[3] as usize).sum::<usize>()); }";
    std::fs::write(&source, text).expect("written");
    let built = std::process::Command::new("rustc")
        .args(["-g", "-o"])
        .args([&program, &source])
        .output()
        .expect("rustc runs");
    assert!(built.status.success());
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    let boxes = trace.calls.iter().filter(|call| {
        matches!(
            call.event.action,
            Action::Alloc {
                call: AllocCall::Malloc,
                size: 77,
                ..
            }
        )
    });
    assert_eq!(boxes.count(), 500);
    assert_eq!(trace.losses.truncated_stacks, 0);
}

#[test]
fn a_realloc_chain_keeps_its_block() {
    let source = r#"
#include <stdlib.h>
#include <string.h>
int main(void) {
  char *p = 0;
  for (size_t n = 1; n < 3000000; n = n * 3 / 2 + 1) { p = realloc(p, n); p[n - 1] = 1; }
  volatile size_t huge = (size_t)1 << 62;
  char *q = realloc(p, huge);
  if (q) return 1;
  free(p);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("chain.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    let mut block = 0;
    let mut failed = 0;
    for call in trace.calls_from("chain.bin") {
        match call.event.action {
            Action::ReallocEnd { old, address, .. } => {
                assert_eq!(old, block);
                if address == 0 {
                    failed += 1
                } else {
                    block = address
                }
            }
            Action::Free { address, .. } => assert_eq!(address, block),
            _ => {}
        }
    }
    assert_eq!(failed, 1);
}

#[test]
fn times_are_coarse_only_while_one_thread_records() {
    let bench = Bench::new();
    let program = bench.build(
        "times.c",
        r#"
#include <pthread.h>
#include <stdlib.h>
static void *work(void *unused) {
  for (int i = 0; i < 20000; i++) free(malloc(10 + i % 7));
  return unused;
}
int main(int argc, char **argv) {
  (void)argv;
  work(0);
  pthread_t thread;
  if (argc > 1) pthread_create(&thread, 0, work, 0), work(0), pthread_join(thread, 0);
  return 0;
}
"#,
        &["-fno-builtin", "-pthread"],
    );
    let fine = |arguments: &[&str]| {
        let run = bench.run(&program, arguments);
        let trace = run.succeeded().only().assert_whole();
        let calls = trace.assert_addresses_make_sense().calls.iter();
        calls.filter(|call| call.event.time % 32 != 0).count()
    };
    assert_eq!(fine(&[]), 0);
    assert!(fine(&["two"]) > 1000);
}
