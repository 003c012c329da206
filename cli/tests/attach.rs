//! `larder record PID`: programs that run already are recorded for a while, and go on as if they had not been.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::running::{Running, ended_if_it_hangs, first_words, wait_until};
use crate::common::*;

/// Each byte of stdin is a round: main and two threads make known calls. At its end it says what it has computed.
const ROUNDS: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static sem_t go, done;
static volatile int end;
static _Atomic long sum;
static void* old[100];
static void* (*volatile late)(size_t);
static void* work(void* unused) {
  for (;;) {
    sem_wait(&go);
    if (end) return unused;
    for (int i = 0; i < 1000; ++i) {
      char* block = malloc(24);  // @work
      block[0] = 1;
      sum += block[0];
      free(block);
    }
    char* text = strdup("text");  // @strdup
    sum += strlen(text);
    free(text);
    sem_post(&done);
  }
}
int main(int count, char** arguments) {
  pthread_t threads[2];
  int next = 0;
  for (int i = 0; i < 100; ++i) old[i] = malloc(100);
  sem_init(&go, 0, 0);
  sem_init(&done, 0, 0);
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, NULL);
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
    for (int i = 0; i < 2; ++i) sem_post(&go);
    for (int i = 0; i < 2; ++i) sem_wait(&done);
    for (int i = 0; i < 10; ++i) free(old[next++ % 100]), old[(next - 1) % 100] = NULL;
    for (int i = 0; i < 5; ++i) free(realloc(calloc(3, 10), 60));  // @main
    if (late == NULL && count > 1) {
      void* plugin = dlopen(arguments[1], RTLD_NOW);
      if (plugin == NULL) return 2;
      late = (void* (*)(size_t))dlsym(plugin, "late");
    }
    if (late != NULL) free(late(77));
    puts("done");
    fflush(stdout);
  }
  end = 1;
  for (int i = 0; i < 2; ++i) sem_post(&go);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("%ld\n", sum);
  return 0;
}
"#;

const PLUGIN: &str = r#"
#include <stdlib.h>
void* late(size_t size) {
  void* block = malloc(size);  // @late
  return block;
}
"#;

fn plugin(directory: &Path) -> PathBuf {
    compile(directory, "plugin.c", PLUGIN, &["-g", "-shared", "-fPIC"])
}

fn rounds(directory: &Path, flags: &[&str]) -> PathBuf {
    let all = [&["-g", "-O1", "-fno-builtin", "-pthread"], flags].concat();
    compile(directory, "rounds.c", ROUNDS, &all)
}

fn ready(command: &mut Command) -> Running {
    Running::once_it_says("ready\n", command)
}

/// A recording that runs.
struct Recording {
    tool: Running,
    trace: PathBuf,
}

impl Recording {
    #[track_caller]
    fn start(process: u32, trace: &Path) -> Self {
        let mut command = larder();
        command.arg("record").arg("-o").arg(trace);
        command.arg(process.to_string());
        let mut tool = Running::start(command.stderr(Stdio::piped()));
        first_words("end with Ctrl-C\n", tool.stderr.as_mut().expect("a pipe"));
        Self {
            tool,
            trace: trace.to_owned(),
        }
    }

    /// Not by Ctrl-C's signal, which is ignored where the tests run in the background of a shell.
    #[track_caller]
    fn end(mut self) {
        // SAFETY: sends a signal to a child that was not waited for.
        unsafe { libc::kill(self.tool.id() as i32, libc::SIGTERM) };
        assert!(self.tool.wait().success());
    }

    /// The report after its end.
    #[track_caller]
    fn report(self) -> Value {
        let trace = self.trace.clone();
        self.end();
        report_json(&trace, &[])
    }
}

/// Sends the end of stdin; the last line.
#[track_caller]
fn last_words(mut program: Running) -> String {
    drop(program.stdin.take());
    let words = std::io::read_to_string(program.stdout.take().expect("a pipe"));
    assert!(program.wait().success());
    words.expect("words")
}

#[track_caller]
fn assert_rounds(report: &Value, rounds: u64) {
    let counters = &report["counters"];
    let expected = [
        ("mallocs", 2000 * rounds),
        ("strdups", 2 * rounds),
        ("callocs", 5 * rounds),
        ("reallocs", 5 * rounds),
        ("frees", 2017 * rounds),
        ("unknown_frees", 10 * rounds),
    ];
    for (name, count) in expected {
        assert_eq!(counters[name], count, "{name}: {counters:#}");
    }
    for (mark, count) in [("work", 2000), ("strdup", 2), ("main", 10)] {
        let site = site_at(report, "rounds.c", line_of(ROUNDS, mark));
        assert_eq!(site["calls"], count * rounds, "{site:#}");
    }
    let process = &report["processes"][0];
    assert_eq!(process["origin"], "attach");
    assert_eq!(process["losses"]["calls"], 0, "{process:#}");
}

#[test]
fn each_call_is_recorded_from_then_on_and_the_program_goes_on() {
    for flags in [&["-Wl,-z,now"][..], &["-Wl,-z,lazy", "-no-pie"]] {
        let directory = temporary();
        let mut program = ready(&mut Command::new(rounds(directory.path(), flags)));
        program.round();
        let trace = directory.path().join("first.trace");
        let recording = Recording::start(program.id(), &trace);
        (0..3).for_each(|_| program.round());
        assert_rounds(&recording.report(), 3);
        let text = report_text(&trace, &[]);
        assert!(text.contains("recording began while it ran"), "{text}");
        program.round();
        let recording = Recording::start(program.id(), &directory.path().join("second.trace"));
        program.round();
        assert_rounds(&recording.report(), 1);
        program.round();
        assert_eq!(last_words(program), format!("{}\n", 7 * 2 * 1004));
    }
}

#[test]
fn a_library_that_is_loaded_meanwhile_is_recorded_too() {
    let directory = temporary();
    let plugin = plugin(directory.path());
    let mut command = Command::new(rounds(directory.path(), &["-rdynamic"]));
    let mut program = ready(command.arg(plugin));
    let recording = Recording::start(program.id(), &directory.path().join("t"));
    (0..4).for_each(|_| program.round());
    let report = recording.report();
    let site = site_at(&report, "plugin.c", line_of(PLUGIN, "late"));
    assert_eq!(site["calls"], 4, "{site:#}");
    assert_eq!(last_words(program), format!("{}\n", 4 * 2 * 1004));
}

#[test]
fn a_program_on_another_malloc_keeps_it() {
    let directory = temporary();
    let mut command = Command::new(rounds(directory.path(), &[]));
    command.env("LD_PRELOAD", library_directory().join("liblarder.so"));
    let mut program = ready(&mut command);
    let recording = Recording::start(program.id(), &directory.path().join("t"));
    (0..3).for_each(|_| program.round());
    assert_rounds(&recording.report(), 3);
    assert_eq!(last_words(program), format!("{}\n", 3 * 2 * 1004));
}

#[test]
fn a_process_of_another_user_is_recorded_into_a_directory_of_its_own() {
    let directory = temporary();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("set");
    let mut program = ready(&mut without_rights(rounds(directory.path(), &[])));
    let recording = Recording::start(program.id(), &directory.path().join("t"));
    program.round();
    assert_rounds(&recording.report(), 1);
    last_words(program);
}

/// Each byte of stdin is a round.
const OPERATORS: &str = r#"
#include <cstdio>
struct alignas(64) Wide { char bytes[64]; };
static void* volatile kept;
int main() {
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
    for (int i = 0; i < 100; ++i) {
      long* one = new long(i);  // @new
      char* array = new char[i + 1];
      Wide* wide = new Wide;
      kept = one, kept = array, kept = wide;
      delete one;
      delete[] array;
      delete wide;
    }
    std::puts("done");
    std::fflush(stdout);
  }
}
"#;

#[test]
fn an_operator_and_its_malloc_are_one_call() {
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin"];
    let program = compile(directory.path(), "operators.cc", OPERATORS, &flags);
    let mut program = ready(&mut Command::new(program));
    let recording = Recording::start(program.id(), &directory.path().join("t"));
    (0..2).for_each(|_| program.round());
    let report = recording.report();
    let counters = &report["counters"];
    for name in ["news", "deletes", "mallocs", "frees"] {
        assert_eq!(counters[name], 600, "{name}: {counters:#}");
    }
    let site = site_at(&report, "operators.cc", line_of(OPERATORS, "new"));
    assert_eq!(site["calls"], 200, "{site:#}");
    assert_eq!(last_words(program), "");
}

#[test]
fn a_program_that_ends_meanwhile_ends_its_recording() {
    let directory = temporary();
    let mut program = ready(&mut Command::new(rounds(directory.path(), &[])));
    let mut recording = Recording::start(program.id(), &directory.path().join("t"));
    program.round();
    assert_eq!(last_words(program), format!("{}\n", 2 * 1004));
    assert!(recording.tool.wait().success());
    let report = report_json(&recording.trace, &[]);
    assert_eq!(report["processes"][0]["end"], "exit");
    assert_eq!(report["counters"]["callocs"], 5);
}

/// What each waits in, or does, while it is stopped: nothing of it may fail. At the end of stdin it ends with 0 if
/// nothing did.
const BUSY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile sig_atomic_t ticks;
static int at_end(void) {
  struct pollfd end = {.fd = 0, .events = POLLIN};
  return poll(&end, 1, 0) == 1;
}
static void tick(int signal) {
  (void)signal;
  for (volatile int i = 0; i < 1000; ++i) continue;
  ++ticks;
}
static int wait_by_epoll(void) {
  int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
  return epoll_wait(set, &event, 1, -1) == 1 ? 0 : 3;
}
static int wait_for_time(void) {
  while (!at_end()) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (poll(NULL, 0, 300) != 0) return 3;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double took = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    if (took < 0.3) return 4;
  }
  return 0;
}
// Floating point, errno, small blocks, and in some programs a signal every millisecond.
static int compute(void) {
  double x = 1, y = 1;
  char* kept[64] = {NULL};
  for (unsigned i = 0; i % 1024 != 0 || !at_end(); ++i) {
    errno = 7;
    for (int k = 0; k < 100; ++k) x = sqrt(x * 3 + k);
    for (int k = 0; k < 100; ++k) y = sqrt(y * 3 + k);
    if (x != y || errno != 7) return 3;
    char** slot = &kept[i % 64];
    if (*slot != NULL && (unsigned char)**slot != i % 64) return 4;
    free(*slot);
    *slot = memset(malloc(1 + i % 300), (int)(i % 64), 1 + i % 300);
  }
  return 0;
}
static void* allocate_once(void* argument) {
  uint32_t random = (uint32_t)(uintptr_t)argument;
  void* blocks[100];
  for (int i = 0; i < 100; ++i) {
    random = random * 1664525 + 1013904223;
    blocks[i] = memset(malloc(8 + (random >> 22)), 1, 8);
  }
  for (int i = 0; i < 100; ++i) free(blocks[i]);
  return NULL;
}
static void* allocate(void* argument) {
  while (!at_end()) allocate_once(argument);
  return NULL;
}
static void* start_threads(void* unused) {
  while (!at_end()) {
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_once, NULL);
    pthread_join(thread, NULL);
  }
  return unused;
}
static void* load(void* plugin) {
  while (!at_end()) {
    void* handle = dlopen(plugin, RTLD_NOW);
    void* (*late)(size_t) = (void* (*)(size_t))dlsym(handle, "late");
    free(late(30));
    dlclose(handle);
  }
  return NULL;
}
static void* fork_on(void* unused) {
  while (!at_end()) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(allocate_once(NULL) == NULL ? 5 : 6);
    if (waitpid(child, &status, 0) != child || status != 5 << 8) abort();
  }
  return unused;
}
int main(int count, char** arguments) {
  const char* kind = count > 1 ? arguments[1] : "";
  if (strcmp(kind, "filtered") == 0) {
    struct sock_filter allow = {.code = BPF_RET, .k = SECCOMP_RET_ALLOW};
    struct sock_fprog program = {.len = 1, .filter = &allow};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 2;
    kind = "epoll";
  }
  puts("ready");
  fflush(stdout);
  if (strcmp(kind, "epoll") == 0) return wait_by_epoll();
  if (strcmp(kind, "time") == 0) return wait_for_time();
  if (strcmp(kind, "signals") == 0) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
  }
  if (strcmp(kind, "threads") == 0) {
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 5; ++i) pthread_create(&threads[i], NULL, allocate, (void*)i);
    pthread_create(&threads[5], NULL, start_threads, NULL);
    pthread_create(&threads[6], NULL, load, arguments[2]);
    pthread_create(&threads[7], NULL, fork_on, NULL);
    for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
    return 0;
  }
  return compute();
}
"#;

fn busy(directory: &Path) -> PathBuf {
    let flags = ["-g", "-O1", "-fno-builtin-malloc", "-pthread", "-lm"];
    compile(directory, "busy.c", BUSY, &flags)
}

#[test]
fn whatever_a_thread_does_it_does_not_notice() {
    let directory = temporary();
    let program = busy(directory.path());
    for kind in ["epoll", "time", "compute", "signals"] {
        let running = ready(Command::new(&program).arg(kind));
        for number in 0..3 {
            let trace = directory.path().join(format!("{kind}-{number}"));
            Recording::start(running.id(), &trace).end();
        }
        assert_eq!(last_words(running), "", "{kind}");
    }
}

#[test]
fn threads_that_allocate_all_the_time_are_recorded_again_and_again() {
    let directory = temporary();
    let plugin = plugin(directory.path());
    let mut command = ended_if_it_hangs(busy(directory.path()));
    let running = ready(command.arg("threads").arg(plugin));
    let program = only_child(running.id());
    for number in 0..50 {
        let trace = directory.path().join(number.to_string());
        let recording = Recording::start(program, &trace);
        let file = trace.join(format!("{program}-0.ltrace"));
        // Each of the threads has begun.
        let events = || larder_trace::Trace::open(&file).map_or(0, |trace| trace.event_count());
        wait_until("recorded", || events() > 1000);
        if number % 10 == 0 {
            let losses = &recording.report()["losses"];
            assert_eq!(
                (&losses["calls"], &losses["damaged_parts"]),
                (&0.into(), &0.into())
            );
        } else {
            recording.end();
        }
        fs::remove_dir_all(&trace).expect("removed");
    }
    assert_eq!(last_words(running), "");
}

fn only_child(process: u32) -> u32 {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).expect("children");
    children.trim().parse().expect("one child")
}

#[track_caller]
fn assert_refused(process: u32, words: &[&str]) {
    let directory = temporary();
    let trace = directory.path().join("t");
    let mut command = larder();
    command.arg("record").arg("-o").arg(&trace);
    let refused = output(command.arg(process.to_string()));
    assert_fails(&refused, 125, words);
    assert!(!trace.exists(), "the directory stays");
}

#[test]
fn what_cannot_be_recorded_is_refused_in_one_line() {
    let directory = temporary();
    let mut ended = Running::start(&mut Command::new("true"));
    let gone = ended.id();
    ended.wait();
    assert_refused(gone, &["no such process"]);

    let script = "exec \"$0\" record -o \"$1\" $$";
    let mut own = Command::new("sh");
    own.args(["-c", script])
        .arg(tool())
        .arg(directory.path().join("t"));
    own.env("LARDER_LIB", library_directory());
    assert_fails(&output(&mut own), 125, &["it is this tool"]);

    let filtered = ready(Command::new(busy(directory.path())).arg("filtered"));
    assert_refused(filtered.id(), &["filters its system calls"]);
    last_words(filtered);

    let mut stranger = without_rights(tool());
    stranger
        .args(["record", "1"])
        .current_dir("/tmp")
        .env("LARDER_LIB", library_directory());
    assert_fails(&output(&mut stranger), 125, &["process 1", "be its user"]);

    let program = rounds(directory.path(), &["-static"]);
    let running = ready(&mut Command::new(&program));
    assert_refused(running.id(), &["statically linked"]);
    last_words(running);

    let program = rounds(directory.path(), &[]);
    let mut limited = Command::new("sh");
    let limited = ready(
        limited
            .args(["-c", "ulimit -f 0; exec \"$0\""])
            .arg(&program),
    );
    assert_refused(limited.id(), &["cannot write into the trace directory"]);
    last_words(limited);

    let running = ready(&mut Command::new(&program));
    let recording = Recording::start(running.id(), &directory.path().join("first"));
    assert_refused(running.id(), &["recorded already"]);
    recording.end();
    // SAFETY: signals to a child that was not waited for.
    unsafe { libc::kill(running.id() as i32, libc::SIGSTOP) };
    let stat = format!("/proc/{}/stat", running.id());
    wait_until("stopped", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
    });
    assert_refused(running.id(), &["kill -CONT"]);
    // SAFETY: as above.
    unsafe { libc::kill(running.id() as i32, libc::SIGCONT) };
    last_words(running);
}

#[test]
fn a_recording_whose_tool_was_killed_ends_when_the_next_begins() {
    let directory = temporary();
    let mut program = ready(&mut Command::new(rounds(directory.path(), &[])));
    let mut killed = Recording::start(program.id(), &directory.path().join("first"));
    program.round();
    killed.tool.end();
    program.round();
    let recording = Recording::start(program.id(), &directory.path().join("second"));
    program.round();
    assert_rounds(&recording.report(), 1);
    assert_rounds(&report_json(&killed.trace, &[]), 2);
    last_words(program);
}

#[test]
fn a_recorded_command_is_not_recorded_twice() {
    let directory = temporary();
    let program = rounds(directory.path(), &[]);
    let mut command = larder();
    command
        .arg("record")
        .arg("-o")
        .arg(directory.path().join("t"));
    let mut running = ready(command.arg(&program));
    assert_refused(only_child(running.id()), &["recorded already"]);
    running.round();
    last_words(running);
}

#[test]
fn the_recording_ends_after_its_time() {
    let directory = temporary();
    let running = ready(Command::new(busy(directory.path())).arg("epoll"));
    let mut command = larder();
    command
        .args(["record", "--seconds", "1", "-o"])
        .arg(directory.path().join("t"));
    let recorded = output(command.arg(running.id().to_string()));
    assert_success(&recorded);
    let text = stderr(&recorded);
    assert!(text.contains("; for 1 s, or until Ctrl-C\n"), "{text}");
    assert!(text.contains("larder report"), "{text}");
    last_words(running);
}

/// Serves its own client until the end of stdin.
const PYTHON: &str = r#"
import json, sys
print("ready", flush=True)
total = 0
for line in sys.stdin:
    rows = [json.loads('{"a": [1, 2, {"b": "c" }]}') for _ in range(500)]
    total += sum(row["a"][1] for row in rows) + len(b"x" * 100_000)
    print("done", flush=True)
print(total)
"#;

#[test]
fn python_is_recorded() {
    let directory = temporary();
    let mut command = Command::new("python3");
    let mut program = ready(command.args(["-c", PYTHON]).env("PYTHONMALLOC", "malloc"));
    program.round();
    for number in 0..2 {
        let trace = directory.path().join(number.to_string());
        let recording = Recording::start(program.id(), &trace);
        program.round();
        let report = recording.report();
        let mallocs = report["counters"]["mallocs"].as_u64().expect("a count");
        assert!(mallocs > 2500, "{mallocs}");
    }
    assert_eq!(last_words(program), format!("{}\n", 3 * 101_000));
}

#[test]
fn a_server_is_recorded_under_load() {
    let directory = temporary();
    let socket = directory.path().join("socket");
    // Without `timeout` before it, which would leave it running when the test ends.
    let mut server = Command::new("redis-server");
    server.args([
        "--port",
        "0",
        "--save",
        "",
        "--daemonize",
        "no",
        "--unixsocket",
    ]);
    let server = Running::start(server.arg(&socket).stdout(Stdio::null()));
    wait_until("listening", || socket.exists());
    let load = |requests: &str| {
        let mut load = ended_if_it_hangs("redis-benchmark");
        load.arg("-s")
            .arg(&socket)
            .args(["-q", "-t", "set,lpush", "-n", requests]);
        load.stdout(Stdio::null()).stderr(Stdio::null());
        load
    };
    let mut beside = Running::start(&mut load("100000"));
    let recording = Recording::start(server.id(), &directory.path().join("t"));
    assert_success(&output(&mut load("5000")));
    let report = recording.report();
    let mallocs = report["counters"]["mallocs"].as_u64().expect("a count");
    assert!(mallocs > 5000, "{mallocs}");
    assert!(beside.wait().success());
    let mut ping = Command::new("redis-cli");
    let pong = output(ping.arg("-s").arg(&socket).arg("ping"));
    assert_eq!(stdout(&pong), "PONG\n");
}
