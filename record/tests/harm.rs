//! The program is never harmed, and the trace records what it lacks.

use std::process::Command;

use crate::support::{Bench, Recorded, Recording, Run};
use larder_trace::{Action, EndState, Origin, StopReason, Trace, trace_files};

fn allocations_of(run: &Run, size: u64) -> Vec<usize> {
    let count = |trace: &Recorded| {
        let of_size = |call: &&Recording| matches!(call.event.action, Action::Alloc { size: s, .. } if s == size);
        trace.calls.iter().filter(of_size).count()
    };
    run.traces.iter().map(count).collect()
}

#[test]
fn a_killed_program_leaves_every_call() {
    let source = r#"
#include <signal.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  int n = atoi(argv[1]);
  for (int i = 0; i < n; i++) free(malloc(777));
  kill(0, 0);
  raise(SIGKILL);
}
"#;
    let bench = Bench::new();
    let program = bench.build("killed.c", source, &["-fno-builtin"]);
    for count in ["5", "20000", "200000"] {
        let run = bench.run(&program, &[count]);
        assert!(!run.output.status.success());
        let trace = run.only().assert_whole();
        assert_eq!(
            allocations_of(&run, 777),
            [count.parse::<usize>().expect("a number")]
        );
        assert_eq!(trace.damage, []);
    }
}

#[test]
fn every_way_to_end_leaves_every_call() {
    let source = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *work(void *how) {
  for (int i = 0; i < 3000; i++) free(malloc(777));
  if (!strcmp(how, "thread")) exit(0);
  return 0;
}
int main(int argc, char **argv) {
  char *how = argv[1];
  pthread_t t;
  pthread_create(&t, 0, work, how);
  pthread_join(t, 0);
  if (!strcmp(how, "exit")) exit(0);
  if (!strcmp(how, "_exit")) _exit(0);
  if (!strcmp(how, "quick_exit")) quick_exit(0);
  if (!strcmp(how, "syscall")) syscall(SYS_exit_group, 0);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
  if (!strcmp(how, "exec")) { char *const none[] = {"/bin/true", 0}; execv("/bin/true", none); }
  if (!strcmp(how, "clean")) { char *const none[] = {"/bin/true", 0}, *const env[] = {0}; execve("/bin/true", none, env); }
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("ways.c", source, &["-fno-builtin"]);
    for how in [
        "return",
        "exit",
        "_exit",
        "quick_exit",
        "syscall",
        "abort",
        "segv",
        "thread",
        "exec",
        "clean",
    ] {
        let run = bench.run(&program, &[how]);
        let first = run.traces.first().expect("a trace");
        first.assert_whole();
        assert_eq!(allocations_of(&run, 777)[0], 3000, "{how}");
        let images = if how == "exec" { 2 } else { 1 };
        assert_eq!(run.traces.len(), images, "{how}");
        let end = match how {
            "return" | "exit" | "thread" | "quick_exit" => first.process.end,
            "exec" | "clean" => {
                assert_eq!(first.process.end, EndState::Exec, "{how}");
                EndState::Exec
            }
            _ => EndState::Running,
        };
        assert_eq!(first.process.end, end, "{how}");
        if how == "exec" {
            assert_eq!(run.traces[1].process.origin, Origin::Exec);
            assert_eq!(run.traces[1].process.pid, first.process.pid);
        }
    }
}

const WRITER: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static unsigned long state = 1;
int main(void) {
  unsigned long sum = 0;
  for (int i = 0; i < 400000; i++) {
    state = state * 6364136223846793005UL + 1;
    size_t size = 100000 + (state >> 44);
    char *p = malloc(size);
    sum += p != 0;
    free(p);
  }
  sigset_t pending;
  sigpending(&pending);
  printf("%lu %d\n", sum, sigismember(&pending, SIGXFSZ));
  return 3;
}
"#;

fn assert_lost_honestly(run: &Run, reason: StopReason) {
    assert_eq!(run.output.status.code(), Some(3), "{}", run.stderr());
    assert_eq!(run.stdout(), "400000 0\n");
    assert_eq!(run.stderr(), "");
    let trace = run.only();
    assert_eq!(trace.process.stop, reason);
    assert!(trace.losses.after_stop > 100_000, "{:?}", trace.losses);
    let recorded = trace.calls_from("writer.bin").count() as u64;
    assert!(recorded > 1000);
    let all = 800_000;
    let lost = trace.losses.after_stop;
    // The sum includes libc's own allocations for the output.
    assert!(
        (all..all + 50).contains(&(recorded + lost)),
        "{recorded} + {lost}"
    );
    trace.assert_addresses_make_sense();
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_program() {
    let bench = Bench::new();
    let program = bench.build("writer.c", WRITER, &["-fno-builtin"]);
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=600k", "tmpfs"])
        .arg(&disk)
        .status()
        .expect("mount runs");
    assert!(
        mounted.success(),
        "this test mounts a small tmpfs: run it as root"
    );
    struct Unmount(std::path::PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let _unmount = Unmount(disk.clone());
    let run = bench.run_into(&disk, &program, &[], |_| {});
    assert_lost_honestly(&run, StopReason::DiskFull);
}

#[test]
fn a_limit_on_file_sizes_stops_the_recording_and_not_the_program() {
    let bench = Bench::new();
    bench.build("writer.c", WRITER, &["-fno-builtin"]);
    let command = format!("ulimit -f 500; exec {}", bench.path("writer.bin").display());
    let traces = bench.path("trace");
    std::fs::create_dir(&traces).expect("a folder");
    let run = bench.run_into(&traces, "/bin/bash".as_ref(), &["-c", &command], |_| {});
    let traces: Vec<_> = run
        .traces
        .into_iter()
        .filter(|t| t.calls_from("writer.bin").count() > 0)
        .collect();
    let run = Run { traces, ..run };
    assert_lost_honestly(&run, StopReason::FileTooLarge);
}

const EXACT: &str = r#"
#include <stdlib.h>
int main(void) {
  for (unsigned long i = 0; i < 200000; i++) free(malloc(i * i % 10000));
  return 3;
}
"#;

#[test]
fn the_call_that_finds_the_disk_full_is_counted_too() {
    let bench = Bench::new();
    bench.build("exact.c", EXACT, &["-fno-builtin"]);
    let command = format!("ulimit -f 300; exec {}", bench.path("exact.bin").display());
    let traces = bench.path("trace");
    std::fs::create_dir(&traces).expect("a folder");
    let run = bench.run_into(&traces, "/bin/bash".as_ref(), &["-c", &command], |_| {});
    assert_eq!(run.output.status.code(), Some(3), "{}", run.stderr());
    let recorded = |trace: &Recorded| trace.calls_from("exact.bin").count() as u64;
    let trace = run.traces.iter().find(|trace| recorded(trace) > 0);
    let trace = trace.expect("a trace of the program");
    assert_eq!(trace.process.stop, StopReason::FileTooLarge);
    assert_eq!(recorded(trace) + trace.losses.after_stop, 400_000);
}

#[test]
fn no_folder_no_permission_and_nonsense_are_one_line() {
    let bench = Bench::new();
    let program = bench.build("small.c", "int main(void) { return 7; }", &[]);
    let missing = bench.path("mis sing");
    let run = bench.run_into(&missing, &program, &[], |_| {});
    assert_eq!(run.output.status.code(), Some(7));
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    assert!(
        run.stderr().contains("mis sing: it does not exist"),
        "{}",
        run.stderr()
    );

    let run = bench.run_with(&program, &[], |command| {
        command.env("LARDER_RECORD_FORK", "perhaps");
    });
    assert_eq!(run.output.status.code(), Some(7));
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    assert!(run.stderr().contains("LARDER_RECORD_FORK"));
    assert_eq!(run.traces.len(), 1);

    let run = bench.run_with(&program, &[], |command| {
        command.env_remove("LARDER_TRACE_DIR");
    });
    assert_eq!(
        (run.output.status.code(), run.stderr().as_str()),
        (Some(7), "")
    );
}

#[test]
fn errno_is_left_alone() {
    let source = r#"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
static int check(void) {
  for (int i = 0; i < 100000; i++) {
    errno = 4321;
    void *p = malloc(i % 3000 + 1);
    if (!p || errno != 4321) return 1;
    p = realloc(p, i % 5000 + 1);
    if (!p || errno != 4321) return 2;
    free(p);
    if (errno != 4321) return 3;
    free(strdup("text"));
    if (errno != 4321) return 4;
  }
  volatile size_t huge = (size_t)1 << 62;
  errno = 0;
  if (malloc(huge) || errno != ENOMEM) return 5;
  errno = 0;
  if (calloc(huge, 16) || errno != ENOMEM) return 6;
  errno = 0;
  if (reallocarray(0, huge, 16) || errno != ENOMEM) return 7;
  void *kept = &kept;
  errno = 4321;
  if (posix_memalign(&kept, 3, 8) != EINVAL || kept != &kept || errno != 4321) return 8;
  return 0;
}
static void *work(void *unused) { (void)unused; return (void *)(long)check(); }
int main(void) {
  void *result;
  pthread_t t;
  pthread_create(&t, 0, work, 0);
  pthread_join(t, &result);
  if (result) return (int)(long)result;
  if (fork() == 0) _exit(check());
  int status;
  wait(&status);
  return status ? 99 : check();
}
"#;
    let bench = Bench::new();
    let program = bench.build("errno.c", source, &["-fno-builtin", "-D_GNU_SOURCE"]);
    let run = bench.run(&program, &[]);
    run.succeeded();
    assert_eq!(run.traces.len(), 2);
}

#[test]
fn closed_descriptors_are_neither_missed_nor_misused() {
    let source = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
  for (int i = 0; i < 50000; i++) free(malloc(777));
  closefrom(3);
  int fds[600];
  for (int i = 0; i < 600; i++) fds[i] = open(argv[1], O_RDWR | O_CREAT, 0600);
  for (int i = 0; i < 200000; i++) free(malloc(777));
  struct stat now;
  fstat(fds[599], &now);
  return now.st_size != 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("close.c", source, &["-fno-builtin"]);
    let victim = bench.path("victim");
    let run = bench.run(&program, &[victim.to_str().expect("text")]);
    run.succeeded().only().assert_whole();
    assert_eq!(allocations_of(&run, 777), [250_000]);
}

#[test]
fn a_first_call_under_the_lock_of_the_locale_does_not_hang() {
    let library = r#"
#define _GNU_SOURCE
#include <locale.h>
__attribute__((constructor)) static void first(void) { newlocale(LC_CTYPE_MASK, "C.UTF-8", 0); }
void linked(void) {}
"#;
    let source = r#"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
void linked(void);
int main(void) {
  linked();
  setlocale(LC_ALL, "C.UTF-8");
  free(malloc(777));
  puts("done");
  return 0;
}
"#;
    let bench = Bench::new();
    let library = bench.build("first.c", library, &["-shared", "-fPIC"]);
    let path = library.to_str().expect("text");
    let program = bench.build("locale.c", source, &["-fno-builtin", path]);
    let run = bench.run(&program, &[]);
    assert_eq!(run.succeeded().stdout(), "done\n");
    assert_eq!(allocations_of(&run, 777).len(), 1);
}

#[test]
fn signal_handlers_that_allocate_are_recorded_or_counted() {
    let source = r#"
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
static volatile int done;
static void handler(int sig) { (void)sig; done++; }
int main(void) {
  struct sigaction action = {.sa_handler = handler};
  sigaction(SIGALRM, &action, 0);
  struct itimerval timer = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &timer, 0);
  int calls = 0;
  while (done < 500) { free(malloc(777)); calls++; }
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("alarm.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    assert_eq!(trace.losses.truncated_stacks, 0);
}

#[test]
fn cut_and_flipped_traces_are_read_without_a_panic() {
    let source = r#"
#include <stdlib.h>
#include <pthread.h>
static void *work(void *p) {
  for (int i = 0; i < 8000; i++) p = realloc(p, 1 + i * 7 % 1000);
  return p;
}
int main(void) {
  pthread_t t[3];
  for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, work, 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("some.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    run.succeeded();
    let file = trace_files(&run.folder).expect("a trace").remove(0);
    let good = std::fs::read(&file).expect("read");
    let whole = drain(&file).expect("readable");
    let bad = bench.path("bad.ltrace");
    let mut random = 12345u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    for round in 0..300 {
        let mut bytes = good.clone();
        if round % 3 == 0 {
            bytes.truncate(next(good.len()));
        }
        for _ in 0..round % 5 {
            if !bytes.is_empty() {
                let at = next(bytes.len());
                bytes[at] ^= 1 << next(8);
            }
        }
        std::fs::write(&bad, &bytes).expect("written");
        if let Ok(count) = drain(&bad) {
            assert!(count <= whole, "{count} of {whole}");
        }
    }
}

fn drain(file: &std::path::Path) -> Result<usize, larder_trace::TraceError> {
    let trace = Trace::open(file)?;
    let mut events = trace.events();
    let mut count = 0;
    while events.next().is_some() {
        count += 1;
    }
    Ok(count)
}

#[test]
fn the_smallest_stacks_suffice() {
    let source = r#"
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static char alternate[16384 + 8192];
static void handler(int sig) { (void)sig; for (int i = 0; i < 100; i++) free(malloc(777)); }
static void *work(void *unused) {
  for (int i = 0; i < 1000; i++) free(malloc(777));
  return unused;
}
int main(void) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 16384);
  pthread_t t;
  if (pthread_create(&t, &small, work, 0)) return 1;
  pthread_join(t, 0);
  memset(alternate, 'x', sizeof alternate);
  stack_t stack = {.ss_sp = alternate + 16384, .ss_size = 8192};
  sigaltstack(&stack, 0);
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, 0);
  raise(SIGUSR1);
  for (int i = 0; i < 16384; i++) if (alternate[i] != 'x') return 2;
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("small.c", source, &["-fno-builtin"]);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    assert_eq!(allocations_of(&run, 777), [1100]);
    assert_eq!(trace.losses.truncated_stacks, 0);
}

#[test]
fn what_lies_below_a_small_stack_of_the_main_thread_is_left_alone() {
    let source = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
enum { BELOW = 65536, STACK = 8192 };
static ucontext_t back, there;
static void work(void) { for (int i = 0; i < 100; i++) free(malloc(777)); }
int main(void) {
  // The next mapping is often here, next to the one with the thread's control block.
  char *end = (char *)((uintptr_t)__builtin_thread_pointer() & -4096ul);
  while (!msync(end - 4096, 4096, MS_ASYNC)) end -= 4096;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  char *low = mmap(end - STACK - BELOW, BELOW + STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (low == MAP_FAILED) return 3;
  if (getcontext(&there)) return 1;
  memset(low, 'x', BELOW);
  there.uc_stack.ss_sp = low + BELOW;
  there.uc_stack.ss_size = STACK;
  there.uc_link = &back;
  makecontext(&there, work, 0);
  if (swapcontext(&back, &there)) return 1;
  for (int i = 0; i < BELOW; i++) if (low[i] != 'x') return 2;
  return 0;
}
"#;
    let options = ["-fno-builtin", "-Wl,-z,now"];
    let mut runs = (0..50).map(|_| {
        let bench = Bench::new();
        bench.run(&bench.build("below.c", source, &options), &[])
    });
    // One process in ten has something else there.
    let has_room = |run: &Run| run.output.status.code() != Some(3);
    let run = runs.find(has_room).expect("room beside the control block");
    let trace = run.succeeded().only().assert_whole();
    assert_eq!(allocations_of(&run, 777), [100]);
    assert_eq!(trace.losses.truncated_stacks, 0);
}

#[test]
fn a_frame_pointer_above_the_stack_is_not_read() {
    let source = r#"
#include <stdlib.h>
#include <string.h>
__asm__(
  ".text\n.globl odd\n.type odd, @function\nodd:\n.cfi_startproc\n"
  "sub $8, %rsp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, 32000\n"
  "mov $777, %edi\ncall malloc\nmov %rax, %rdi\ncall free\n"
  "add $8, %rsp\nret\n.cfi_endproc\n.size odd, . - odd\n");
void odd(void);
static void deep(void) { volatile char room[65536]; memset((char *)room, 0, sizeof room); odd(); room[0]++; }
int main(void) {
  deep();
  for (int i = 0; i < 100; i++) odd();
  return 0;
}
"#;
    let bench = Bench::new();
    let program = bench.build("odd.c", source, &["-fno-builtin", "-fomit-frame-pointer"]);
    let run = bench.run(&program, &[]);
    run.succeeded().only().assert_whole();
    assert_eq!(allocations_of(&run, 777), [101]);
}

#[test]
fn what_lies_below_a_stack_that_a_thread_was_given_is_left_alone() {
    let source = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
enum { BELOW = 65536, STACK = 16384 };
__attribute__((noinline)) static void *deep(int n) {
  volatile char room[256];
  room[0] = 1;
  void *block = n ? deep(n - 1) : malloc(777);
  room[1] = 2;
  return block;
}
static void *work(void *unused) {
  for (int i = 0; i < 100; i++) free(deep(20));
  return unused;
}
int main(void) {
  char *low = mmap(0, BELOW + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (low == MAP_FAILED) return 1;
  memset(low, 'x', BELOW);
  pthread_attr_t given;
  pthread_attr_init(&given);
  pthread_t t;
  if (pthread_attr_setstack(&given, low + BELOW, STACK)) return 1;
  if (pthread_create(&t, &given, work, 0) || pthread_join(t, 0)) return 1;
  for (int i = 0; i < BELOW; i++) if (low[i] != 'x') return 2;
  return 0;
}
"#;
    let bench = Bench::new();
    let options = ["-fno-builtin", "-Wl,-z,now"];
    let program = bench.build("given.c", source, &options);
    let run = bench.run(&program, &[]);
    let trace = run.succeeded().only().assert_whole();
    assert_eq!(allocations_of(&run, 777), [100]);
    assert_eq!(trace.losses.truncated_stacks, 0);
}
