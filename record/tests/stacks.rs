//! Stacks are complete and right: against libgcc's unwinder, through signals, over dlopen.

use crate::support::Bench;
use larder_trace::{Action, AllocCall};

/// At each allocation of 777 bytes a program prints libgcc's own backtrace.
const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <execinfo.h>
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <wchar.h>
static char out[1 << 24];
static size_t used;
__attribute__((noinline)) static void here(void) {
  void *frames[400];
  free(malloc(777));
  int n = backtrace(frames, 400);
  for (int i = 1; i < n; i++) used += sprintf(out + used, "%p ", frames[i]);
  out[used++] = '\n';
}
"#;

const ORACLE: &str = r#"
__attribute__((noinline)) static int deep(int n, int kind) {
  volatile char room[64];
  room[n % 64] = 1;
  if (n == 0) { here(); return room[0]; }
  if (kind && n % 3 == 0) {
    volatile char *more = alloca(n * 16);
    more[0] = 2;
    return deep(n - 1, kind) + more[0];
  }
  return deep(n - 1, kind) + room[0];
}
/* The same frames below two callers, and the two below two more. */
__attribute__((noinline)) static int left(int n) { return deep(n, n & 1) + 1; }
__attribute__((noinline)) static int right(int n) { return deep(n, n & 1) + 2; }
__attribute__((noinline)) static int north(int n) { return (n & 2 ? left(n / 4) : right(n / 4)) + 3; }
__attribute__((noinline)) static int south(int n) { return (n & 2 ? left(n / 4) : right(n / 4)) + 4; }
static int compare(const void *a, const void *b) {
  if (*(int *)a == 7) here();
  return *(int *)a - *(int *)b;
}
static void handler(int sig, siginfo_t *info, void *context) {
  (void)sig; (void)info; (void)context;
  here();
}
static ucontext_t home, other;
static void coroutine(void) { deep(5, 1); swapcontext(&other, &home); deep(3, 0); }
int main(void) {
  void *warm[2];
  backtrace(warm, 2);
  for (int round = 0; round < 3; round++) {
    for (int n = 0; n < 60; n += 7) { deep(n, 0); deep(n, 1); here(); }
    for (int n = 0; n < 64; n++) n & 1 ? north(n) : south(n);
    int values[] = {5, 7, 3, 9, 1, 2};
    qsort(values, 6, sizeof *values, compare);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    static char alternate[1 << 16];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, 0);
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    raise(SIGUSR2);
    static char own[1 << 18];
    getcontext(&other);
    other.uc_stack.ss_sp = own;
    other.uc_stack.ss_size = sizeof own;
    other.uc_link = &home;
    makecontext(&other, coroutine, 0);
    swapcontext(&home, &other);
    here();
    swapcontext(&home, &other);
  }
  fwrite(out, 1, used, stdout);
  return 0;
}
"#;

/// At each instruction of calls that the loader binds.
const BINDING: &str = r#"
static volatile sig_atomic_t stepping;
/* The trap flag of the interrupted thread. */
static void handler(int sig, siginfo_t *info, void *context) {
  (void)sig; (void)info;
  greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  if (!stepping) { *flags &= ~(greg_t)0x100; return; }
  *flags |= 0x100;
  here();
}
__attribute__((noinline)) static long first(long n) {
  n += labs(n) + (long)wcslen(L"two");
  return n + 1;
}
__attribute__((noinline)) static long second(long n) {
  volatile long keep[3] = {n, n, n};
  n += llabs(n) + (strpbrk("abc", "c") != 0);
  return n + keep[1];
}
static long stepped(long (*function)(long), long n) {
  stepping = 1;
  raise(SIGTRAP);
  n = function(n);
  stepping = 0;
  return n;
}
int main(void) {
  void *warm[2];
  backtrace(warm, 2);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(SIGTRAP, &action, 0);
  long sum = stepped(first, 3);
  static char alternate[1 << 16];
  stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
  sigaltstack(&stack, 0);
  action.sa_flags |= SA_ONSTACK;
  sigaction(SIGTRAP, &action, 0);
  sum += stepped(second, 4);
  fwrite(out, 1, used, stdout);
  return sum == 0;
}
"#;

fn compare_with_oracle(options: &[&str]) {
    compare(ORACLE, options, 60);
}

/// `least`: so many stacks are compared.
fn compare(source: &str, options: &[&str], least: usize) {
    let bench = Bench::new();
    let source = [PRELUDE, source].concat();
    let program = bench.build("oracle.c", &source, options);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only();
    let expected: Vec<Vec<u64>> = run
        .stdout()
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map(|word| u64::from_str_radix(&word[2..], 16).expect("an address"))
                .collect()
        })
        .collect();
    let recorded: Vec<_> = trace
        .calls
        .iter()
        .filter(|call| {
            matches!(
                call.event.action,
                Action::Alloc {
                    call: AllocCall::Malloc,
                    size: 777,
                    ..
                }
            )
        })
        .collect();
    assert!(expected.len() > least, "{}", expected.len());
    assert_eq!(recorded.len(), expected.len());
    for (number, (recorded, expected)) in recorded.iter().zip(&expected).enumerate() {
        // Both have `here` innermost, at different calls.
        assert_eq!(recorded.addresses[1..], expected[..], "stack {number}");
        assert!(recorded.complete, "stack {number}: {:x?}", recorded.frames);
    }
}

#[test]
fn stacks_are_those_of_libgcc() {
    compare_with_oracle(&["-fno-builtin"]);
}

#[test]
fn stacks_are_those_of_libgcc_with_frame_pointers() {
    compare_with_oracle(&["-fno-builtin", "-fno-omit-frame-pointer", "-O0"]);
}

#[test]
fn stacks_are_those_of_libgcc_without_pie() {
    compare_with_oracle(&["-fno-builtin", "-no-pie", "-O2"]);
}

#[test]
fn stacks_are_complete_wherever_the_loader_binds_a_function() {
    for pointers in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
        let options = ["-fno-builtin", "-O1", "-Wl,-z,lazy", pointers];
        compare(BINDING, &options, 1000);
    }
}

#[test]
fn a_very_deep_recursion_is_complete() {
    let source = r#"
#include <stdlib.h>
__attribute__((noinline)) static int deep(int n) {
  volatile int keep = n;
  if (n == 0) { free(malloc(777)); return 0; }
  return deep(n - 1) + keep;
}
int main(void) { return deep(20000) == 0; }
"#;
    let bench = Bench::new();
    let program = bench.build("deep.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    let call = trace.calls_from("deep.bin").next().expect("recorded");
    assert!(call.complete);
    assert!(call.frames.len() > 20_001, "{}", call.frames.len());
}

#[test]
fn modules_that_come_and_go_are_followed() {
    let library = |name: &str, size: usize| {
        format!("#include <stdlib.h>\nvoid *{name}(void) {{ return malloc({size}); }}\n")
    };
    let source = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  for (int round = 0; round < 20; round++) {
    for (int i = 1; i < argc; i++) {
      char name[16];
      snprintf(name, sizeof name, "make%d", i);
      void *handle = dlopen(argv[i], RTLD_NOW);
      if (!handle) { puts(dlerror()); return 1; }
      void *(*make)(void) = (void *(*)(void))dlsym(handle, name);
      free(make());
      dlclose(handle);
    }
  }
  return 0;
}
"#;
    let bench = Bench::new();
    let one = bench.build(
        "one.c",
        &library("make1", 1111),
        &["-shared", "-fPIC", "-O0"],
    );
    let two = bench.build(
        "two.c",
        &library("make2", 2222),
        &["-shared", "-fPIC", "-O0"],
    );
    let program = bench.build("load.c", source, &["-fno-builtin"]);
    let paths = [one.to_str().expect("text"), two.to_str().expect("text")];
    let run = bench.run(&program, &paths);
    let trace = run.succeeded().only().assert_whole();
    for (size, module) in [(1111, "one.so"), (2222, "two.so")] {
        let calls: Vec<_> = trace
            .calls
            .iter()
            .filter(|call| matches!(call.event.action, Action::Alloc { size: s, .. } if s == size))
            .collect();
        assert_eq!(calls.len(), 20);
        for call in calls {
            assert!(call.complete);
            assert_eq!(call.frames[0].0, module);
            assert_eq!(call.frames[1].0, "load.bin");
        }
    }
    assert!(
        trace
            .modules
            .iter()
            .any(|(path, gone)| path.ends_with("one.so") && *gone)
    );
}
