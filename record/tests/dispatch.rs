//! Every system call, by the kernel's dispatch: each is in the trace with its stack, and the program sees no
//! difference, whatever it does with signals, threads and children.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, Recorded, Recording, Run, cpu_library, recorder};
use larder_trace::{Action, Origin, SystemCall};

const BEGIN: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
#define WANT(x) do { if (!(x)) { fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno); exit(1); } } while (0)
__attribute__((noinline, noclone)) static long bare(long number) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
  return result;
}
"#;

const COUNTED: &str = r#"
static void *loop(void *u) {
  for (int i = 0; i < 1000; i++) bare(SYS_gettid);
  return u;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 500; i++) bare(SYS_getppid);
  FILE *null = fopen("/dev/null", "w");
  for (int i = 0; i < 300; i++) {
    fprintf(null, "%d\n", 1000 + i);
    fflush(null);
  }
  for (int i = 0; i < 4; i++) WANT(!pthread_create(&threads[i], 0, loop, 0));
  for (int i = 0; i < 4; i++) WANT(!pthread_join(threads[i], 0));
  int ends[2];
  char text[3];
  WANT(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  for (int i = 0; i < 5; i++) WANT(send(ends[0], "abc", 3, 0) == 3 && recv(ends[1], text, 2 + i % 2, 0) > 1);
  errno = 77;
  WANT(bare(SYS_getuid) == getuid() && errno == 77);
  WANT(bare(9999) == -ENOSYS && errno == 77);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 70; i++) bare(SYS_getppid);
    _exit(3);
  }
  int status;
  WANT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
  child = bare(SYS_fork);
  if (child == 0) {
    for (int i = 0; i < 50; i++) bare(SYS_getppid);
    _exit(4);
  }
  WANT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
  return 0;
}
"#;

const SIGNALS: &str = r#"
static volatile int came;
static void on_signal(int signal) { came += 1 + 0 * signal; bare(SYS_getppid); }
static void nothing(int signal) { bare(SYS_getppid + 0 * signal); }
static jmp_buf back;
static void jump(int signal) { longjmp(back, signal); }
static volatile long tid;
static void *blocked(void *fd) {
  char c;
  tid = gettid();
  return (void *)read(*(int *)fd, &c, 1);
}
static void wait_until_blocked(long thread) {
  char name[64], text[512] = "";
  snprintf(name, sizeof name, "/proc/self/task/%ld/stat", thread);
  do {
    FILE *file = fopen(name, "r");
    WANT(file && fgets(text, sizeof text, file));
    fclose(file);
  } while (strrchr(text, ')')[2] != 'S');
}
static void tick(int on) {
  struct itimerval every = {{0, 10000 * on}, {0, 10000 * on}};
  WANT(!setitimer(ITIMER_REAL, &every, 0));
}
static int exit_code(pid_t child) {
  int status;
  WANT(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}
static void masks(void) {
  sigset_t all, old, now, usr, but;
  sigfillset(&all);
  WANT(!sigprocmask(SIG_SETMASK, &all, &old));
  WANT(bare(SYS_getppid) > 0);
  WANT(!sigprocmask(SIG_SETMASK, 0, &now) && sigismember(&now, SIGUSR1) && sigismember(&now, SIGTERM));
  WANT(!sigprocmask(SIG_SETMASK, &old, 0));
  WANT(!sigprocmask(SIG_SETMASK, 0, &now) && !sigismember(&now, SIGUSR1));
  struct sigaction action = {.sa_handler = on_signal, .sa_mask = all}, was;
  WANT(!sigaction(SIGUSR1, &action, 0));
  WANT(!sigaction(SIGUSR1, 0, &was) && was.sa_handler == on_signal && sigismember(&was.sa_mask, SIGTERM));
  WANT(!raise(SIGUSR1) && came == 1);
  sigemptyset(&usr);
  sigaddset(&usr, SIGUSR1);
  but = all;
  sigdelset(&but, SIGUSR1);
  struct pollfd none = {-1, 0, 0};
  struct epoll_event event;
  int poller = epoll_create1(0);
  sigprocmask(SIG_BLOCK, &usr, &old);
  WANT(!raise(SIGUSR1) && came == 1);
  WANT(sigsuspend(&but) == -1 && errno == EINTR && came == 2);
  WANT(!raise(SIGUSR1) && ppoll(&none, 1, 0, &but) == -1 && errno == EINTR && came == 3);
  WANT(!raise(SIGUSR1) && pselect(0, 0, 0, 0, 0, &but) == -1 && errno == EINTR && came == 4);
  WANT(!raise(SIGUSR1) && epoll_pwait(poller, &event, 1, -1, &but) == -1 && errno == EINTR && came == 5);
  sigprocmask(SIG_SETMASK, &old, 0);
}
static void interrupted(int fd) {
  char c;
  struct sigaction action = {.sa_handler = nothing};
  WANT(!sigaction(SIGALRM, &action, 0));
  tick(1);
  WANT(read(fd, &c, 1) == -1 && errno == EINTR);
  struct sigaction leave = {.sa_handler = jump, .sa_flags = SA_NODEFER};
  WANT(!sigaction(SIGALRM, &leave, 0));
  if (!setjmp(back)) {
    read(fd, &c, 1);
    WANT(0);
  }
  tick(0);
  WANT(bare(SYS_getppid) > 0);
  pthread_t thread;
  void *result;
  WANT(!pthread_create(&thread, 0, blocked, &fd));
  while (!tid) bare(SYS_sched_yield);
  wait_until_blocked(tid);
  WANT(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);
}
static void stacks(void) {
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536}, was;
  came = 0;
  WANT(!sigaltstack(&stack, 0) && !sigaltstack(0, &was) && was.ss_sp == stack.ss_sp && was.ss_flags == 0);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  WANT(!sigaction(SIGUSR2, &action, 0) && !raise(SIGUSR2) && came == 1);
  WANT(bare(SYS_getppid) > 0);
  stack.ss_flags = SS_DISABLE;
  WANT(!sigaltstack(&stack, 0));
}
static void own(void) {
  struct sigaction action = {.sa_handler = on_signal}, was;
  WANT(!sigaction(SIGSYS, &action, &was) && was.sa_handler == SIG_DFL);
  WANT(!raise(SIGSYS) && came == 2);
  WANT(!sigaction(SIGSYS, 0, &was) && was.sa_handler == on_signal);
  WANT(syscall(SYS_rt_sigaction, SIGSYS, (void *)8, 0, 8) == -1 && errno == EFAULT);
  WANT(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, 0, 8) == -1 && errno == EFAULT);
  WANT(syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, 0, 8) == -1 && errno == EFAULT);
}
static void children(void) {
  char *arguments[] = {"sh", "-c", "exit 5", 0}, line[20];
  pid_t child = vfork();
  if (child == 0) {
    bare(SYS_getppid);
    _exit(4);
  }
  WANT(exit_code(child) == 4);
  WANT(!posix_spawnp(&child, "sh", 0, 0, arguments, environ) && exit_code(child) == 5);
  WANT(system("exit 6") == 6 << 8);
  FILE *pipe = popen("echo hello", "r");
  WANT(fgets(line, sizeof line, pipe) && !strcmp(line, "hello\n") && !pclose(pipe));
  struct sigaction ignore = {.sa_handler = SIG_DFL};
  WANT(!sigaction(SIGSYS, &ignore, 0));
  child = fork();
  if (child == 0) raise(SIGSYS);
  int status;
  WANT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}
int main(void) {
  int ends[2];
  WANT(!pipe(ends));
  masks();
  interrupted(ends[0]);
  stacks();
  own();
  children();
  puts("the end");
  return 9;
}
"#;

const FILTERED: &str = r#"
int main(void) {
  for (int i = 0; i < 10; i++) bare(SYS_getppid);
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {5, filter};
  WANT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  WANT(write(1, "in\n", 3) == 3);
  _exit(8);
}
"#;

/// What a handler does not make itself, or does not return: in the parent, in children, and in images that a child
/// executes. Those of libc for itself, too: `clone` of fork, `clone3` or `clone` of a thread and of posix_spawn.
const AROUND: &str = r#"
#include <fcntl.h>
static volatile int came;
static void on_signal(int signal) { came += 1 + 0 * signal; }
static void *nothing(void *u) { return u; }
static void in_thread(int count) {
  pthread_t thread;
  for (int i = 0; i < count; i++) WANT(!pthread_create(&thread, 0, nothing, 0) && !pthread_join(thread, 0));
}
static void wait_for(pid_t child) {
  int status;
  WANT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
}
__attribute__((noinline, noclone)) static pid_t started(char **arguments) {
  pid_t child = vfork();  // Of libc's.
  if (child == 0) execve("/proc/self/exe", arguments, environ);
  return child;
}
static void stacks(void) {
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536}, small = {.ss_sp = stack.ss_sp, .ss_size = 8};
  for (int i = 0; i < 3; i++) WANT(!sigaltstack(&stack, 0));
  WANT(sigaltstack(&small, 0) == -1 && errno == ENOMEM);
  stack.ss_flags = SS_DISABLE;
  WANT(!sigaltstack(&stack, 0));
}
static void execs(void) {
  char *arguments[] = {"again", "end", 0}, *missing[] = {"missing", 0};
  int own = open("/proc/self/exe", O_RDONLY);
  pid_t child = fork();
  if (child == 0) {
    if (execve("/no/such/program", missing, environ) != -1 || errno != ENOENT) _exit(4);
    execve("/proc/self/exe", arguments, environ);
  }
  wait_for(child);
  child = fork();
  if (child == 0) fexecve(own, arguments, environ);
  wait_for(child);
  for (int i = 0; i < 2; i++) wait_for(started(arguments));
  __asm__ volatile("syscall" : "=a"(child) : "a"(58L) : "rcx", "r11", "memory");
  if (child == 0) execve("/proc/self/exe", arguments, environ);
  wait_for(child);
  WANT(!posix_spawn(&child, "/proc/self/exe", 0, 0, arguments, environ));
  wait_for(child);
}
int main(int count, char **arguments) {
  if (count > 1) exit(3 + 0 * (arguments == 0));
  for (int i = 0; i < 4; i++) {
    pid_t child = i < 2 ? fork() : bare(SYS_fork);
    if (child == 0) {
      in_thread(2);
      _exit(3);
    }
    wait_for(child);
  }
  in_thread(5);
  struct sigaction action = {.sa_handler = on_signal}, old;
  WANT(!sigaction(SIGUSR1, &action, 0) && !sigaction(SIGSYS, &action, &old) && !sigaction(SIGSYS, &old, 0));
  for (int i = 0; i < 7; i++) WANT(!raise(SIGUSR1) && came == i + 1);
  stacks();
  execs();
  WANT(syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0) == -1 && errno == EINVAL);
  return 3;
}
"#;

fn build(bench: &Bench, source: &str) -> PathBuf {
    bench.build("calls.c", &format!("{BEGIN}{source}"), &[])
}

fn run(bench: &Bench, source: &str, cpu: bool) -> Run {
    let program = build(bench, source);
    let mut list = recorder().into_os_string();
    if cpu {
        list.push(":");
        list.push(cpu_library());
    }
    bench.run_with(&program, &[], |command| {
        command.env("LD_PRELOAD", list);
        command.env("LARDER_RECORD_KERNEL", "1");
        command.env("LARDER_RECORD_CPU", if cpu { "10000" } else { "" });
    })
}

/// Calls by number, those that libc has no function for.
fn by_number(trace: &Recorded, number: i64) -> Vec<&Recording> {
    let calls = trace.calls.iter();
    calls
        .filter(|recording| {
            matches!(
                recording.event.action,
                Action::SystemCall { call: SystemCall::Syscall, limit, .. } if limit == number as u64
            )
        })
        .collect()
}

fn results(trace: &Recorded, wanted: SystemCall) -> Vec<i64> {
    let calls = trace.calls.iter();
    calls
        .filter_map(|recording| match recording.event.action {
            Action::SystemCall { call, result, .. } if call == wanted => Some(result),
            _ => None,
        })
        .collect()
}

#[test]
fn each_call_is_recorded_whoever_makes_it() {
    let bench = Bench::new();
    let run = run(&bench, COUNTED, false);
    run.succeeded();
    assert_eq!(run.traces.len(), 3, "{}", run.stderr());
    let main = run
        .traces
        .iter()
        .find(|trace| trace.process.origin == Origin::Start);
    let main = main.expect("the program").assert_whole();
    assert_eq!(by_number(main, libc::SYS_getppid).len(), 500);
    assert_eq!(by_number(main, libc::SYS_getuid).len(), 2);
    assert_eq!(results(main, SystemCall::Send), [3; 5]);
    assert_eq!(results(main, SystemCall::Recv), [2, 3, 2, 3, 2]);
    assert_eq!(results(main, SystemCall::Write), [5; 300]);
    let unknown = by_number(main, 9999);
    let failed = unknown[0].event.action;
    assert!(
        matches!(failed, Action::SystemCall { result, .. } if result == -i64::from(libc::ENOSYS)),
        "{failed:?}"
    );
    for call in by_number(main, libc::SYS_getppid) {
        assert!(call.complete);
        let modules: Vec<&str> = call.frames.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(modules[..2], ["calls.bin", "calls.bin"]);
    }
    // In a thread, below its loop, and by libc for itself.
    let mut threads = std::collections::BTreeMap::new();
    for call in by_number(main, libc::SYS_gettid) {
        if call.frames[0].0 == "calls.bin" {
            *threads.entry(call.event.thread).or_insert(0) += 1;
        }
    }
    assert_eq!(threads.into_values().collect::<Vec<_>>(), [1000; 4]);
    let children: Vec<usize> = run
        .traces
        .iter()
        .filter(|trace| trace.process.origin == Origin::Fork)
        .map(|trace| by_number(trace, libc::SYS_getppid).len())
        .collect();
    assert!(children == [70, 50] || children == [50, 70], "{children:?}");
}

#[test]
fn signals_masks_stacks_and_children_are_as_without_it() {
    let bench = Bench::new();
    for cpu in [false, true] {
        let run = run(&bench, SIGNALS, cpu);
        assert_eq!(run.stdout(), "the end\n", "{}", run.stderr());
        assert_eq!(run.output.status.code(), Some(9), "{}", run.stderr());
        assert_eq!(run.stderr(), "");
        let main = run
            .traces
            .iter()
            .find(|trace| trace.process.origin == Origin::Start);
        let main = main.expect("the program");
        assert_eq!(results(main, SystemCall::Ppoll), [-i64::from(libc::EINTR)]);
        // A handler's that came within another call: its stack goes on behind ours. That for SIGSYS is called by
        // ours.
        let in_call = by_number(main, libc::SYS_getppid);
        assert!(in_call.iter().all(|call| call.complete));
        let ours = |call: &&&Recording| call.frames.iter().any(|(name, _)| name.contains("larder"));
        assert_eq!(in_call.iter().filter(ours).count(), 1);
    }
}

#[test]
fn a_program_that_filters_its_calls_is_let_alone() {
    let bench = Bench::new();
    let harmless = FILTERED.replace("SECCOMP_RET_KILL_PROCESS", "SECCOMP_RET_ALLOW");
    let line =
        |what| format!("larder: the program filters its system calls; {what} from here on\n");
    for (source, warning) in [
        (FILTERED, line("it is not recorded")),
        (&harmless[..], line("they are not recorded")),
    ] {
        let run = run(&bench, source, false);
        assert_eq!(run.output.status.code(), Some(8), "{}", run.stderr());
        assert_eq!(run.stdout(), "in\n");
        assert_eq!(run.stderr(), warning);
        assert_eq!(by_number(run.only(), libc::SYS_getppid).len(), 10);
        assert_eq!(results(run.only(), SystemCall::Write), []);
    }
}

/// The calls of `AROUND` by number, with their results; `None` of those that do not return a result of their own.
type Counts = BTreeMap<(i64, Option<i64>), usize>;

const COMPARED: [(i64, &str); 10] = [
    (libc::SYS_fork, "fork"),
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_rt_sigreturn, "rt_sigreturn"),
    (libc::SYS_sigaltstack, "sigaltstack"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_execveat, "execveat"),
    (libc::SYS_exit, "exit"),
    (libc::SYS_exit_group, "exit_group"),
];

/// Children have different numbers in each run.
fn result_of(number: i64, result: i64) -> Option<i64> {
    let ends = [libc::SYS_rt_sigreturn, libc::SYS_exit, libc::SYS_exit_group];
    (!ends.contains(&number)).then_some(result.min(1))
}

fn recorded_counts(run: &Run) -> Counts {
    let mut counts = Counts::new();
    for trace in &run.traces {
        trace.assert_whole();
        for (number, _) in COMPARED {
            for call in by_number(trace, number) {
                if let Action::SystemCall { result, .. } = call.event.action {
                    let is_first =
                        [libc::SYS_execve, libc::SYS_execveat].contains(&number) && result == 0;
                    let modules: Vec<&str> =
                        call.frames.iter().map(|(name, _)| name.as_str()).collect();
                    assert!(call.complete, "{number} {modules:?}");
                    assert_eq!(modules.is_empty(), is_first, "{number}");
                    assert!(
                        !modules.contains(&"liblarder_record.so"),
                        "{number} {modules:?}"
                    );
                    *counts
                        .entry((number, result_of(number, result)))
                        .or_default() += 1;
                }
            }
        }
    }
    counts
}

/// The same without a recorder, by strace.
fn traced_counts(bench: &Bench, program: &Path) -> Counts {
    let log = bench.path("strace.log");
    let status = Command::new("strace")
        .args(["-f", "-qq", "-e", "signal=none", "-o"])
        .args([&log, program])
        .status();
    assert_eq!(status.expect("strace").code(), Some(3));
    let mut counts = Counts::new();
    for line in std::fs::read_to_string(log).expect("its log").lines() {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let line = line.strip_prefix("<... ").unwrap_or(line);
        let name = line.split(['(', ' ']).next().expect("a word");
        let Some((number, _)) = COMPARED.iter().find(|(_, other)| *other == name) else {
            continue;
        };
        let Some((_, result)) = line.rsplit_once(" = ") else {
            continue;
        };
        let result = match result.split(' ').collect::<Vec<_>>()[..] {
            ["-1", "ENOENT", ..] => -i64::from(libc::ENOENT),
            ["-1", "ENOMEM", ..] => -i64::from(libc::ENOMEM),
            ["-1", "EINVAL", ..] => -i64::from(libc::EINVAL),
            [result, ..] => result.parse().unwrap_or(0),
            [] => 0,
        };
        *counts
            .entry((*number, result_of(*number, result)))
            .or_default() += 1;
    }
    counts
}

#[test]
fn what_forks_executes_and_ends_is_counted_as_by_strace() {
    let bench = Bench::new();
    let traced = traced_counts(&bench, &build(&bench, AROUND));
    for cpu in [false, true] {
        let run = run(&bench, AROUND, cpu);
        assert_eq!(run.output.status.code(), Some(3), "{}", run.stderr());
        assert_eq!(run.stderr(), "");
        let counts = recorded_counts(&run);
        assert_eq!(counts, traced);
        let of = |number, result| counts.get(&(number, result)).copied().unwrap_or(0);
        assert_eq!(of(libc::SYS_fork, Some(1)), 2);
        assert_eq!(of(libc::SYS_vfork, Some(1)), 3);
        assert_eq!(of(libc::SYS_rt_sigreturn, None), 7);
        assert_eq!(of(libc::SYS_sigaltstack, Some(0)), 4);
        assert_eq!(of(libc::SYS_sigaltstack, Some(-i64::from(libc::ENOMEM))), 1);
        // The first image, and those of fork, of both kinds of vfork, and of posix_spawn.
        assert_eq!(of(libc::SYS_execve, Some(0)), 6);
        assert_eq!(of(libc::SYS_execveat, Some(0)), 1);
        assert_eq!(of(libc::SYS_execve, Some(-i64::from(libc::ENOENT))), 1);
        // Of 13 threads, and of 11 processes.
        assert_eq!(of(libc::SYS_exit, None), 13);
        assert_eq!(of(libc::SYS_exit_group, None), 11);
    }
}

/// What a thread begins with is as long as a hundred calls.
#[test]
fn the_beginning_of_a_thread_is_not_the_time_of_its_first_call() {
    let bench = Bench::new();
    let run = run(&bench, COUNTED, false);
    let main = run.traces.iter().max_by_key(|trace| trace.calls.len());
    let main = main.expect("the program").assert_whole();
    let mut times = BTreeMap::<u32, Vec<u64>>::new();
    for call in &main.calls {
        if let Action::SystemCall { ticks, .. } = call.event.action {
            times.entry(call.event.thread).or_default().push(ticks);
        }
    }
    let median = |number: usize| {
        let mut all: Vec<u64> = times.values().skip(1).map(|times| times[number]).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    assert_eq!(times.len(), 5);
    assert!(median(0) < 20 * median(1), "{} {}", median(0), median(1));
}
