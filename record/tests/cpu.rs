//! Samples of processor time: they show what ran, in each thread, and the program sees no difference.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, Recorded, Recording, Run, cpu_library, lines, recorder};
use larder_trace::{Action, Origin, Sampling, Trace, trace_files};

/// `spin` takes so much processor time, whatever else the machine does.
const SPIN: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define WANT(what) do { if (!(what)) { _exit(__LINE__ % 250 + 1); } } while (0)
#define OWN __attribute__((noinline, noclone))
#define KEEP_FRAME __asm__ volatile("" ::: "memory")
static volatile unsigned long sink;
OWN double used(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  KEEP_FRAME;
  return now.tv_sec + now.tv_nsec / 1e9;
}
OWN void spin(double seconds) {
  double end = used() + seconds;
  do {
    for (int i = 0; i < 10000; i++) sink += i;
  } while (used() < end);
}
OWN void three(void) { spin(0.9); KEEP_FRAME; }
OWN void one(void) { spin(0.3); KEEP_FRAME; }
"#;

fn build(bench: &Bench, rest: &str) -> std::path::PathBuf {
    bench.build("cpu.c", &format!("{SPIN}{rest}"), &["-fno-builtin", "-O2"])
}

fn preloaded() -> OsString {
    let mut list = recorder().into_os_string();
    list.push(":");
    list.push(cpu_library());
    list
}

/// A virtual machine that its host stops has no ticks, and so no samples, but counts the time as the program's. Such
/// a run shows nothing, so it is repeated.
const ATTEMPTS: usize = 8;
const MOST_MISSING: f64 = 0.04;

/// A thread's first and last sample may come before its stream is there, or after; each is a tick of at most 10 ms.
const MOST_LOST_NS: u64 = 40_000_000;
/// And the first and last of both threads may interrupt what starts and ends them.
const MOST_CUT: usize = 4;

fn run(bench: &Bench, program: &Path, arguments: &[&str], rate: &str) -> Run {
    let mut run = run_once(bench, program, arguments, rate);
    for _ in 1..ATTEMPTS {
        if missing(&run) <= MOST_MISSING {
            break;
        }
        run = run_once(bench, program, arguments, rate);
    }
    run
}

/// The largest share of a process's time that is in no sample.
fn missing(run: &Run) -> f64 {
    let sampled = run.traces.iter().map(|trace| {
        let calls = trace.calls.iter().map(|call| match call.event.action {
            Action::Sample { cpu_ns, .. } => cpu_ns,
            _ => 0,
        });
        calls.sum::<u64>() as f64
    });
    let shares = sampling(run)
        .into_iter()
        .zip(sampled)
        .map(|(all, sampled)| {
            let brief = all.cpu_ns < 100_000_000;
            if brief {
                0.0
            } else {
                1.0 - sampled / all.cpu_ns as f64
            }
        });
    shares.fold(0.0, f64::max)
}

fn run_once(bench: &Bench, program: &Path, arguments: &[&str], rate: &str) -> Run {
    let list = preloaded();
    bench.run_with(program, arguments, |command| {
        command.env("LD_PRELOAD", list);
        command.env("LARDER_RECORD_CPU", rate);
    })
}

fn sampling(run: &Run) -> Vec<Sampling> {
    let files = trace_files(&run.folder).expect("files");
    let opened = files.iter().map(|file| Trace::open(file).expect("a trace"));
    opened.map(|trace| trace.sampling()).collect()
}

/// Nanoseconds and samples with each of the program's functions on the stack, and of all under "".
fn sums(trace: &Recorded, program: &Path) -> BTreeMap<String, (u64, u64)> {
    let own = program.file_name().and_then(|name| name.to_str());
    let own = own.expect("a name");
    let mut names: HashMap<u64, String> = HashMap::new();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let samples = trace
        .calls
        .iter()
        .filter_map(|call| match call.event.action {
            Action::Sample { cpu_ns, .. } => Some((cpu_ns, &call.frames)),
            _ => None,
        });
    let samples: Vec<_> = samples.collect();
    let frames = samples.iter().flat_map(|(_, frames)| frames.iter());
    let mut addresses: Vec<u64> = frames.filter(|f| f.0 == own).map(|f| f.1).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let found = lines(program, addresses.iter().copied());
    names.extend(
        addresses
            .into_iter()
            .zip(found.into_iter().map(|(name, _)| name)),
    );
    for (cpu_ns, frames) in samples {
        let inside = frames.iter().filter(|frame| frame.0 == own);
        let mut on_stack: Vec<&str> = inside.map(|frame| &*names[&frame.1]).collect();
        on_stack.push("");
        on_stack.sort_unstable();
        on_stack.dedup();
        for name in on_stack {
            let sum = sums.entry(name.to_owned()).or_default();
            *sum = (sum.0 + cpu_ns, sum.1 + 1);
        }
    }
    sums
}

/// Asserts a share of all samples' time, to within six standard errors and two samples.
fn assert_share(sums: &BTreeMap<String, (u64, u64)>, function: &str, expected: f64) {
    let (all_ns, samples) = sums[""];
    let ns = sums.get(function).map_or(0, |sum| sum.0);
    let share = ns as f64 / all_ns as f64;
    let error = (expected * (1.0 - expected) / samples as f64).sqrt();
    let most = 6.0 * error + 2.0 / samples as f64;
    let off = (share - expected).abs();
    assert!(
        off <= most,
        "{function}: {share}, not {expected} ± {most}: {sums:?}"
    );
}

/// Asserts that the samples' time is that much.
fn assert_seconds(sums: &BTreeMap<String, (u64, u64)>, function: &str, expected: f64) {
    let seconds = sums.get(function).map_or(0, |sum| sum.0) as f64 / 1e9;
    let off = (seconds / expected - 1.0).abs();
    assert!(
        off < 0.15,
        "{function}: {seconds} s, not {expected}: {sums:?}"
    );
}

#[test]
fn threads_are_sampled_by_their_processor_time() {
    const PROGRAM: &str = r#"
static void *work(void *unused) { one(); return unused; }
int main(void) {
  pthread_t thread;
  WANT(!pthread_create(&thread, 0, work, (void *)7));
  three();
  void *result;
  WANT(!pthread_join(thread, &result) && result == (void *)7);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    for rate in ["997", "50", "10000"] {
        let run = run(&bench, &program, &[], rate);
        let trace = run.succeeded().only().assert_whole();
        let sums = sums(trace, &program);
        assert_share(&sums, "three", 0.75);
        assert_share(&sums, "one", 0.25);
        // The thread begins in the recorder, of which no frame stays.
        assert_share(&sums, "work", 0.25);
        assert_share(&sums, "main", 0.75);
        assert_seconds(&sums, "", 1.2);
        let sampling = sampling(&run)[0];
        assert_eq!(sampling.rate_hz.to_string(), rate);
        assert!(sampling.lost_ns <= MOST_LOST_NS, "{sampling:?}");
        let noted = sampling.cpu_ns as f64 / sums[""].0 as f64;
        assert!((noted - 1.0).abs() < 0.1, "{sampling:?} {sums:?}");
        let cut = trace.calls.iter().filter(|call| !call.complete).count();
        assert!(cut <= MOST_CUT, "{cut} cut stacks");
    }
}

#[test]
fn children_of_fork_and_images_of_exec_are_sampled_too() {
    const PROGRAM: &str = r#"
int main(int argc, char **argv) {
  if (argc > 1) {
    three();
    return 0;
  }
  pid_t child = fork();
  if (child == 0) {
    one();
    _exit(5);
  }
  int status;
  spin(0.2);
  WANT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
  execl(argv[0], argv[0], "again", (char *)0);
  return 1;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    let run = run(&bench, &program, &[], "997");
    run.succeeded();
    assert_eq!(run.traces.len(), 3, "{}", run.stderr());
    for trace in &run.traces {
        let sums = sums(trace.assert_whole(), &program);
        match (trace.process.origin, trace.process.image) {
            (Origin::Fork, _) => assert_seconds(&sums, "one", 0.3),
            (_, 0) => assert_seconds(&sums, "spin", 0.2),
            _ => assert_seconds(&sums, "three", 0.9),
        }
    }
}

#[test]
fn a_program_that_blocks_or_waits_for_all_signals_is_sampled_and_gets_only_its_own() {
    const PROGRAM: &str = r#"
static sigset_t all;
static void *wait_for_all(void *unused) {
  int signal = 0;
  WANT(!sigwait(&all, &signal) && signal == SIGUSR1);
  one();
  siginfo_t info;
  WANT(sigwaitinfo(&all, &info) == SIGUSR2 && info.si_value.sival_int == 42);
  return unused;
}
int main(void) {
  sigset_t now;
  pthread_t thread;
  sigfillset(&all);
  WANT(!sigprocmask(SIG_BLOCK, &all, 0) && !pthread_sigmask(SIG_SETMASK, &all, &now));
  WANT(sigismember(&now, SIGUSR1) == 1);
  WANT(!pthread_create(&thread, 0, wait_for_all, 0));
  three();
  WANT(!pthread_kill(thread, SIGUSR1));
  spin(0.1);
  union sigval value = {.sival_int = 42};
  WANT(!pthread_sigqueue(thread, SIGUSR2, value));
  WANT(!pthread_join(thread, 0));
  WANT(!sigpending(&now) && sigismember(&now, SIGUSR1) == 0);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    let run = run(&bench, &program, &[], "997");
    let sums = sums(run.succeeded().only().assert_whole(), &program);
    assert_seconds(&sums, "three", 0.9);
    assert_seconds(&sums, "one", 0.3);
}

#[test]
fn a_program_s_own_profiling_timer_and_real_time_signals_work() {
    const PROGRAM: &str = r#"
static volatile int ticks, real_time[65];
static void on_tick(int signal) { ticks += signal == SIGPROF; }
static void on_real_time(int signal, siginfo_t *info, void *context) {
  real_time[signal] += info->si_code == SI_TKILL && context;
}
int main(void) {
  struct itimerval every = {{0, 10000}, {0, 10000}};
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_tick;
  WANT(!sigaction(SIGPROF, &action, 0) && !setitimer(ITIMER_PROF, &every, 0));
  action.sa_sigaction = on_real_time;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
    WANT(!sigaction(s, &action, &before) && before.sa_handler == SIG_DFL);
    WANT(!sigaction(s, 0, &before) && before.sa_sigaction == on_real_time && before.sa_flags & SA_SIGINFO);
  }
  three();
  for (int s = SIGRTMIN; s <= SIGRTMAX; s++) WANT(!raise(s) && real_time[s] == 1);
  for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
    WANT(signal(s, SIG_IGN) == (sighandler_t)on_real_time);
    WANT(!raise(s) && signal(s, SIG_DFL) == SIG_IGN);
  }
  WANT(ticks > 10);
  int status;
  for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
    pid_t child = fork();
    if (child == 0) {
      raise(s);
      _exit(0);
    }
    WANT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == s);
  }
  return 0;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    let run = run(&bench, &program, &[], "997");
    let sums = sums(&run.succeeded().traces[0], &program);
    assert_seconds(&sums, "three", 0.9);
}

#[test]
fn reads_and_waits_are_not_interrupted() {
    const PROGRAM: &str = r#"
static int pipes[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *reads(void *unused) {
  char byte;
  for (int i = 0; i < 300; i++) {
    WANT(read(pipes[0], &byte, 1) == 1);
    spin(0.001);
    WANT(!pthread_mutex_lock(&lock) && !pthread_mutex_unlock(&lock));
  }
  return unused;
}
int main(void) {
  pthread_t thread;
  int status;
  WANT(!pipe(pipes) && !pthread_create(&thread, 0, reads, 0));
  for (int i = 0; i < 300; i++) {
    WANT(!pthread_mutex_lock(&lock));
    WANT(write(pipes[1], "x", 1) == 1);
    spin(0.001);
    WANT(!pthread_mutex_unlock(&lock));
  }
  WANT(!pthread_join(thread, 0));
  pid_t child = fork();
  if (child == 0) {
    spin(0.05);
    _exit(0);
  }
  WANT(waitpid(child, &status, 0) == child && status == 0);
  errno = 77;
  spin(0.1);
  WANT(errno == 77);
  return 0;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    let run = run(&bench, &program, &[], "10000");
    let sums = sums(&run.succeeded().traces[0], &program);
    // Threads that run 1 ms at a time are seldom met by a tick: on a busy machine a sample is up to 60 ms, so that a
    // few outside of `spin` would be a large part.
    assert_seconds(&sums, "", 0.7);
}

#[test]
fn short_threads_count_on_average_and_give_their_timers_back() {
    const PROGRAM: &str = r#"
static void *brief(void *unused) { spin(0.002); return unused; }
static void *tiny(void *unused) { spin(0.3); return unused; }
int main(void) {
  struct rlimit few = {50, 50};
  pthread_attr_t attributes;
  pthread_t threads[8];
  WANT(!setrlimit(RLIMIT_SIGPENDING, &few));
  for (int i = 0; i < 100; i++) {
    for (int t = 0; t < 4; t++) WANT(!pthread_create(&threads[t], 0, brief, 0));
    for (int t = 0; t < 4; t++) WANT(!pthread_join(threads[t], 0));
  }
  WANT(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 24 << 10));
  for (int t = 0; t < 2; t++) WANT(!pthread_create(&threads[t], &attributes, tiny, 0));
  for (int t = 0; t < 2; t++) WANT(!pthread_join(threads[t], 0));
  return 0;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    // `run` would always repeat it: most of these threads end without a sample.
    let run = run_once(&bench, &program, &[], "997");
    let sums = sums(run.succeeded().only().assert_whole(), &program);
    assert_eq!(run.stderr(), "");
    // 400 threads of 2 ms; a sample is one of 4 ms or 10 ms, by the kernel: 80 at least, six standard errors.
    let seconds = sums["brief"].0 as f64 / 1e9;
    assert!((0.3..1.4).contains(&seconds), "{seconds}");
    // Up to a few samples of a thread are lost when it ends on a busy machine.
    assert_seconds(&sums, "tiny", 0.6);
}

/// A timer of its own sends the recorder's signal far more often than the kernel's clock of processor time does.
#[test]
fn the_recorder_may_be_interrupted_anywhere() {
    const PROGRAM: &str = r#"
OWN static void work_within(int turns) {
  void *held[64] = {0};
  for (int i = 0; i < turns; i++) {
    int at = (i * 7) % 64;
    free(held[at]);
    held[at] = malloc(16 + i % 1000);
    if (i % 3 == 0) held[at] = realloc(held[at], 2000 + i % 100);
  }
  for (int i = 0; i < 64; i++) free(held[i]);
  KEEP_FRAME;
}
static void *work(void *turns) {
  int (*chosen)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "larder_record_cpu_signal");
  struct sigevent event;
  struct itimerspec often = {{0, 30000}, {0, 30000}};
  timer_t timer;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = chosen();
  event._sigev_un._tid = syscall(SYS_gettid);
  event.sigev_value.sival_ptr = (void *)0x4c435055;
  WANT(!timer_create(CLOCK_MONOTONIC, &event, &timer) && !timer_settime(timer, 0, &often, 0));
  work_within((int)(long)turns);
  WANT(!timer_delete(timer));
  return 0;
}
int main(void) {
  pthread_t threads[2];
  for (int t = 0; t < 2; t++) WANT(!pthread_create(&threads[t], 0, work, (void *)200000));
  for (int t = 0; t < 2; t++) WANT(!pthread_join(threads[t], 0));
  return 0;
}
"#;
    let bench = Bench::new();
    let program = build(&bench, PROGRAM);
    let run = run(&bench, &program, &[], "997");
    let trace = run.succeeded().only().assert_whole();
    let made = |call: &&Recording| match call.event.action {
        Action::Alloc { size, .. } => (16..1016).contains(&size) && call.frames[0].0 == "cpu.bin",
        _ => false,
    };
    assert_eq!(trace.calls.iter().filter(made).count(), 400_000);
    let inside = trace.calls.iter().filter(|call| {
        matches!(call.event.action, Action::Sample { .. })
            && call
                .frames
                .first()
                .is_some_and(|f| f.0 == "liblarder_record.so")
    });
    assert!(inside.count() > 100, "the recorder was interrupted");
    let sums = sums(trace, &program);
    let (within, all) = (sums["work_within"].1 as f64, sums[""].1 as f64);
    assert!(within / all > 0.9, "{sums:?}");
}

#[test]
fn output_and_exit_codes_are_the_program_s_and_bad_rates_are_refused() {
    let bench = Bench::new();
    let program = build(
        &bench,
        "int main(int argc, char **argv) { puts(argv[1]); spin(0.05); return argc == 2 ? 3 : 4; }",
    );
    for (rate, warned) in [
        ("997", false),
        ("", false),
        ("0", true),
        ("10001", true),
        ("x", true),
    ] {
        let run = run(&bench, &program, &["hello"], rate);
        assert_eq!(run.output.status.code(), Some(3), "{rate}");
        assert_eq!(run.stdout(), "hello\n", "{rate}");
        let stderr = run.stderr();
        assert_eq!(stderr.contains("LARDER_RECORD_CPU"), warned, "{stderr}");
        let taken = sums(run.only(), &program);
        assert_eq!(taken.contains_key(""), rate == "997", "{rate}: {taken:?}");
        assert_eq!(sampling(&run)[0].cpu_ns > 0, rate == "997", "{rate}");
    }
    // Without the recorder the wrappers only forward.
    let status = Command::new(&program)
        .arg("x")
        .env("LD_PRELOAD", cpu_library())
        .status()
        .expect("the program starts");
    assert_eq!(status.code(), Some(3));
}
