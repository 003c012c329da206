//! Threads that come and go, fork, vfork, spawn, exec.

use std::collections::BTreeSet;

use crate::support::Bench;
use larder_trace::{Action, Origin};

#[test]
fn short_threads_lose_nothing_and_share_streams() {
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
static pthread_key_t key;
static void *work(void *unused) {
  pthread_setspecific(key, malloc(888));
  for (int i = 0; i < 10; i++) free(malloc(777));
  return unused;
}
int main(void) {
  pthread_key_create(&key, free);
  for (int i = 0; i < 2000; i++) {
    pthread_t t;
    pthread_create(&t, 0, work, 0);
    pthread_join(t, 0);
  }
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("short.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    let of = |wanted: u64| {
        let is = |a: &Action| matches!(a, Action::Alloc { size, .. } if *size == wanted);
        trace
            .calls
            .iter()
            .filter(|call| is(&call.event.action))
            .count()
    };
    assert_eq!((of(777), of(888)), (20_000, 2000));
    let starts = trace
        .calls
        .iter()
        .filter(|c| c.event.action == Action::ThreadStart)
        .count();
    assert_eq!(starts, 2001);
    // A stream a thread would be 16 MiB.
    assert!(trace.length < 2 << 20, "{}", trace.length);
}

#[test]
fn children_of_fork_record_into_their_own_files() {
    let source = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  void *before = malloc(111);
  for (int i = 0; i < 5; i++) {
    if (fork() == 0) {
      free(before);
      for (int j = 0; j < 1000; j++) free(malloc(222));
      if (i == 4) execl("/bin/true", "true", (char *)0);
      if (i == 3) _exit(0);
      exit(0);
    }
  }
  while (wait(0) > 0) {}
  free(malloc(333));
  free(before);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("fork.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    run.succeeded();
    assert_eq!(run.traces.len(), 7);
    let parent = run
        .traces
        .iter()
        .find(|t| t.process.origin == Origin::Start)
        .expect("parent");
    parent.assert_whole();
    let children: Vec<_> = run
        .traces
        .iter()
        .filter(|t| t.process.origin == Origin::Fork)
        .collect();
    assert_eq!(children.len(), 5);
    for child in children {
        assert_eq!(child.process.ppid, parent.process.pid);
        assert_eq!(child.losses.calls(), 0);
        assert_eq!(child.damage, []);
        let of = |wanted: u64| {
            let is = |a: &Action| matches!(a, Action::Alloc { size, .. } if *size == wanted);
            child
                .calls
                .iter()
                .filter(|call| is(&call.event.action))
                .count()
        };
        assert_eq!((of(111), of(222), of(333)), (0, 1000, 0));
        assert!(child.calls_from("fork.bin").all(|call| call.complete));
    }
}

#[test]
fn forks_among_busy_threads_never_hang() {
    let source = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int stop;
static void *work(void *seed) {
  unsigned state = (unsigned)(long)seed;
  void *held[64] = {0};
  while (!stop) {
    state = state * 1103515245 + 12345;
    int i = state >> 20 & 63;
    free(held[i]);
    held[i] = malloc(state >> 8 & 1023);
  }
  for (int i = 0; i < 64; i++) free(held[i]);
  return 0;
}
int main(void) {
  pthread_t t[4];
  for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, work, (void *)i);
  for (int i = 0; i < 150; i++) {
    pid_t child = fork();
    if (child == 0) {
      for (int j = 0; j < 100; j++) free(malloc(222));
      _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) { printf("%x\n", status); return 1; }
  }
  stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("storm.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    run.succeeded();
    assert_eq!(run.traces.len(), 151);
    for trace in &run.traces {
        assert_eq!((trace.losses.calls(), &trace.damage[..]), (0, &[][..]));
        assert!(trace.ordered);
        if trace.process.origin == Origin::Start {
            trace.assert_whole();
        } else {
            let of = |a: &Action| matches!(a, Action::Alloc { size: 222, .. });
            assert_eq!(
                trace.calls.iter().filter(|c| of(&c.event.action)).count(),
                100
            );
        }
    }
}

#[test]
fn vfork_spawn_and_system_leave_the_parent_whole() {
    let source = r#"
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(void) {
  for (int i = 0; i < 50; i++) {
    pid_t child = vfork();
    if (child == 0) {
      free(malloc(444));
      execl("/bin/true", "true", (char *)0);
      _exit(1);
    }
    if (child < 0) return 1;
    int status;
    waitpid(child, &status, 0);
    if (status) return 2;
    free(malloc(555));
  }
  char *arguments[] = {"true", 0};
  pid_t child;
  if (posix_spawn(&child, "/bin/true", 0, 0, arguments, environ)) return 3;
  waitpid(child, 0, 0);
  if (system("exit 5") != 5 << 8) return 4;
  FILE *pipe = popen("echo hello", "r");
  char line[16];
  if (!fgets(line, sizeof line, pipe) || pclose(pipe)) return 5;
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("vfork.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    run.succeeded();
    let parent = run
        .traces
        .iter()
        .find(|t| t.process.executable.ends_with(b"vfork.bin"));
    let parent = parent.expect("the parent's trace");
    assert_eq!(parent.damage, []);
    assert_eq!(parent.losses.vfork, 100);
    parent.assert_addresses_make_sense();
    let of = |wanted: u64| {
        let is = |a: &Action| matches!(a, Action::Alloc { size, .. } if *size == wanted);
        parent
            .calls
            .iter()
            .filter(|call| is(&call.event.action))
            .count()
    };
    assert_eq!((of(444), of(555)), (0, 50));
    let programs: BTreeSet<_> = run
        .traces
        .iter()
        .map(|t| t.process.argv[0].clone())
        .collect();
    assert!(programs.contains(b"true".as_slice()) && programs.contains(b"sh".as_slice()));
}

#[test]
fn many_threads_at_once_agree_on_the_order() {
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
#include <stdatomic.h>
enum { SLOTS = 64 };
static _Atomic(void *) slot[SLOTS];
static void *work(void *seed) {
  unsigned state = (unsigned)(long)seed * 77 + 1;
  for (int i = 0; i < 20000; i++) {
    state = state * 1103515245 + 12345;
    free(atomic_exchange(&slot[state >> 16 & (SLOTS - 1)], malloc(48)));
  }
  return 0;
}
int main(void) {
  pthread_t t[8];
  for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void *)i);
  for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
  for (int i = 0; i < SLOTS; i++) free(slot[i]);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("order.c", source, &["-fno-builtin"]);
    for _ in 0..3 {
        bench.run(&program, &[]).succeeded().only().assert_whole();
    }
}
