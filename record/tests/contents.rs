//! With `LARDER_RECORD_CONTENTS` the trace has the contents of blocks at their end, and no program fails
//! because of it.

use std::collections::HashMap;

use crate::support::{Bench, Recorded, Run};
use larder_trace::{Action, Fingerprint};

/// A block's life in the trace.
#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    held: Option<Fingerprint>,
    freed: bool,
}

/// All blocks of a trace, in the order of their frees; live ones come last.
fn blocks(trace: &Recorded) -> Vec<Block> {
    let (mut live, mut ended) = (HashMap::new(), Vec::new());
    for call in &trace.calls {
        let new = |size| Block {
            size,
            held: None,
            freed: false,
        };
        match call.event.action {
            Action::Alloc { address, size, .. } => ended.extend(live.insert(address, new(size))),
            Action::Free { address, .. } => {
                let freed = live.remove(&address);
                ended.extend(freed.map(|block| Block {
                    freed: true,
                    ..block
                }));
            }
            Action::ReallocEnd {
                old, address, size, ..
            } if address != 0 || size == 0 => {
                ended.extend(live.remove(&old));
                ended.extend(live.insert(address, new(size)));
            }
            Action::Contents {
                address,
                fingerprint,
            } => {
                let block = live.get_mut(&address).expect("a live block");
                block.held = Some(fingerprint);
            }
            _ => {}
        }
    }
    ended.extend(live.into_values());
    ended
}

fn run(bench: &Bench, name: &str, source: &str) -> Run {
    let program = bench.build(name, source, &["-O1", "-fno-builtin", "-ldl"]);
    let run = bench.run_with(&program, &[], |command| {
        command.env("LARDER_RECORD_CONTENTS", "1");
    });
    run.succeeded();
    run
}

/// The blocks of a size that only the program uses.
fn of(blocks: &[Block], size: u64) -> Vec<Block> {
    let of_size = blocks.iter().filter(|block| block.size == size);
    of_size.copied().collect()
}

fn held(blocks: &[Block], size: u64) -> Vec<Fingerprint> {
    let of = of(blocks, size);
    of.iter()
        .map(|b| b.held.unwrap_or_else(|| panic!("{b:?}: not read")))
        .collect()
}

#[test]
fn freed_and_live_blocks_have_their_contents() {
    let source = r#"
#include <stdlib.h>
#include <string.h>
int main(void) {
  char text[1001];
  for (int i = 0; i < 1000; i++) text[i] = (char)(i * 37 % 100 + 1);
  text[1000] = 0;
  char *a = strdup(text), *b = malloc(1001), *c = malloc(1001);
  memcpy(b, text, 1001);
  memcpy(c, text, 1001);
  c[700] ^= 1;
  free(a);
  free(b);
  free(c);
  char *left = malloc(333), *right = malloc(333);
  memcpy(left, text, 333);
  memcpy(right, text, 333);
  double *numbers = calloc(50, 8);
  for (int i = 0; i < 50; i++) numbers[i] = i + 0.5;
  free(numbers);
  unsigned *some = calloc(101, 4);
  for (int i = 1; i < 101; i++) some[i] = i;
  free(some);
  char *bytes = calloc(1, 507);
  memcpy(bytes, text, 507);
  bytes = realloc(bytes, 5077);
  free(realloc(bytes, 50771));
  free(malloc(0));
  free(realloc(malloc(4441), (size_t)1 << 62) ? 0 : left);
  return 0;
}
"#;
    let bench = Bench::new();
    let run = run(&bench, "held.c", source);
    let blocks = blocks(run.only().assert_whole());
    let texts = held(&blocks, 1001);
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[1].hash, texts[2].hash);
    let left = held(&blocks, 333);
    assert_eq!(left[0], left[1]);
    assert_eq!(
        of(&blocks, 333).iter().map(|b| b.freed).collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(held(&blocks, 400)[0].flags, Fingerprint::NO_ZEROS);
    assert_eq!(held(&blocks, 404)[0].flags, 0);
    let data = Fingerprint::DENSE | Fingerprint::NO_ZEROS | Fingerprint::DATA;
    assert_eq!(held(&blocks, 507)[0].flags, data, "before its realloc");
    assert_eq!(of(&blocks, 5077)[0].held, None, "a buffer that grows");
    assert_eq!(held(&blocks, 50771)[0].flags, 0);
    assert!(of(&blocks, 0).iter().all(|block| block.held.is_none()));
    let kept = of(&blocks, 4441);
    assert!(
        kept[0].held.is_some() && !kept[0].freed,
        "its realloc failed"
    );
}

#[test]
fn memory_that_cannot_be_read_does_no_harm() {
    let source = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  for (int i = 0; i < 3; i++) {
    /* A guard in the middle, one at the start, all of it; freed as they are. */
    char *block = aligned_alloc(4096, 20480 + 4096 * i);
    memset(block, 7, 20480);
    char *bad = i == 0 ? block + 8192 : block;
    if (mprotect(bad, i == 2 ? 28672 : 4096, PROT_NONE)) return 1;
    if (i < 2 && mprotect(bad, 4096, PROT_READ | PROT_WRITE)) return 1;
    if (i < 2) free(block); /* The third lives at the exit. */
  }
  /* A mapping of its own: free only unmaps it. */
  char *large = malloc(1 << 20);
  if (mprotect((char *)((size_t)large & ~4095ul) + 4096, 65536, PROT_NONE)) return 2;
  free(large);
  char *gone = malloc((1 << 20) + 16);
  memset(gone, 1, 1 << 20);
  if (madvise((char *)((size_t)gone & ~4095ul) + 4096, 65536, MADV_DONTNEED)) return 3;
  free(gone);
  free(malloc((4 << 20) + 1));
  free(calloc(1, 4 << 20));
  return 0;
}
"#;
    let bench = Bench::new();
    let run = run(&bench, "guards.c", source);
    let blocks = blocks(run.only().assert_whole());
    assert!(held(&blocks, 20480)[0].has(Fingerprint::UNIFORM));
    held(&blocks, 24576);
    for unread in [28672, 1 << 20, (4 << 20) + 1] {
        assert_eq!(of(&blocks, unread)[0].held, None, "{unread}");
    }
    held(&blocks, (1 << 20) + 16);
    assert!(held(&blocks, 4 << 20)[0].has(Fingerprint::UNIFORM));
}

/// Threads free and allocate while another one calls exit.
#[test]
fn an_exit_in_the_midst_of_threads_loses_nothing() {
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static _Atomic unsigned rounds[4];
static void *work(void *of) {
  void *blocks[64] = {0};
  for (unsigned i = 0;; i++) {
    ++*(_Atomic unsigned *)of;
    unsigned slot = i * 7 % 64;
    free(blocks[slot]);
    size_t size = i % 9 ? 100 + i % 1000 : 200000;
    blocks[slot] = malloc(size);
    memset(blocks[slot], (int)i, i % 9 ? size : 4096);
  }
  return of;
}
int main(void) {
  pthread_t t;
  for (int i = 0; i < 4; i++) pthread_create(&t, 0, work, &rounds[i]);
  for (int i = 0; i < 5000; i++) strdup("left behind, of no use");
  for (int i = 0; i < 4; i++)
    while (rounds[i] < 1000) sched_yield();
  return 0;
}
"#;
    let bench = Bench::new();
    for _ in 0..5 {
        let run = run(&bench, "threads.c", source);
        let trace = run.only();
        let mut reported = HashMap::new();
        for call in &trace.calls {
            if let Action::Contents { fingerprint, .. } = call.event.action {
                *reported.entry(fingerprint.hash).or_insert(0) += 1;
            }
        }
        assert_eq!(reported.values().max(), Some(&5000));
    }
}

#[test]
fn children_of_fork_and_images_before_exec_record_theirs() {
    let source = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  char *mine = malloc(701);
  memset(mine, 1, 701);
  pid_t child = fork();
  if (child == 0) {
    free(mine); /* The parent's: its size is not known here. */
    char *own = malloc(702);
    memset(own, 2, 702);
    execl("/nowhere", "nowhere", (char *)0); /* Fails. */
    memset(own, 3, 702);
    own[1] = 4;
    execl("/bin/true", "true", (char *)0);
    _exit(1);
  }
  int status;
  waitpid(child, &status, 0);
  return status;
}
"#;
    let bench = Bench::new();
    let run = run(&bench, "fork.c", source);
    let all: Vec<Vec<Block>> = run.traces.iter().map(blocks).collect();
    let with = |size| {
        let mut having = all.iter().filter(|blocks| !of(blocks, size).is_empty());
        having.next().expect("a process with it")
    };
    assert!(held(with(701), 701)[0].has(Fingerprint::UNIFORM));
    assert!(
        !held(with(702), 702)[0].has(Fingerprint::UNIFORM),
        "reported last"
    );
}

#[test]
fn a_duplicate_is_compared_with_a_source_that_may_be_gone() {
    let source = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  char *source = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (source == MAP_FAILED) return 1;
  memset(source, 'x', 8191);
  free(strdup(source + 8191 - 6001));
  char *changed = strdup(source + 8191 - 6002), *later = strdup(source + 8191 - 6003);
  char *grown = realloc(strdup(source + 8191 - 6004), 6006), *stays = strdup(source + 8191 - 6006);
  changed[6000] = 'y';
  free(changed);
  free(grown);
  source[4000] = 'z';
  free(later);
  munmap(source + 4096, 4096);
  char *gone = malloc(1);
  free(stays);
  free(gone);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("source.c", source, &["-O1", "-fno-builtin"]);
    let run = bench.run_with(&program, &[], |command| {
        command.env("LARDER_RECORD_CONTENTS", "1");
        command.env("LARDER_RECORD_COPIES", "0");
    });
    let blocks = blocks(run.succeeded().only().assert_whole());
    let is_as_copied = [6002, 6003, 6004, 6006, 6007]
        .map(|size| held(&blocks, size)[0].has(Fingerprint::AS_COPIED));
    assert_eq!(is_as_copied, [true, false, false, false, false]);
}

#[test]
fn contents_are_recorded_only_on_request() {
    let source = r#"
#include <stdlib.h>
int main(void) {
  for (int i = 0; i < 1000; i++) free(malloc(100));
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("plain.c", source, &["-fno-builtin"]);
    let reported = |run: &Run| {
        let is = |a: &Action| matches!(a, Action::Contents { .. });
        let calls = &run.succeeded().only().assert_whole().calls;
        calls.iter().filter(|call| is(&call.event.action)).count()
    };
    assert_eq!(reported(&bench.run(&program, &[])), 0);
    let run = bench.run_with(&program, &[], |command| {
        command.env("LARDER_RECORD_CONTENTS", "1");
    });
    assert!(reported(&run) >= 1000);
}
