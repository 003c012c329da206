//! `record --aggregate`: the report of counters is that of a full trace of the same run, apart from
//! what counters cannot know; whatever ends the program, they are there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::*;
use serde_json::Value;
use tempfile::TempDir;

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

/// The tool, with the recorder of this build.
struct Built(TempDir);

impl Built {
    fn new() -> Self {
        Self(built_libraries())
    }

    fn record(&self, trace: &Path, options: &[&str], command: &[&OsStr]) -> Output {
        let mut record = larder();
        record.env("LARDER_LIB", self.0.path());
        record.args(["record", "--no-larder", "-o"]).arg(trace);
        output(record.args(options).arg("--").args(command))
    }
}

/// A program of one call, counted: its trace.
fn counted(directory: &Path) -> PathBuf {
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n";
    let program = compile(directory, "one.c", source, &["-g", "-fno-builtin"]);
    let trace = directory.join("test.trace");
    let recorded = Built::new().record(&trace, &["--aggregate"], &[program.as_os_str()]);
    assert_success(&recorded);
    trace
}

/// A program and its library, recorded in both ways.
fn both(directory: &Path, arguments: &[&str]) -> (Value, Value) {
    let flags = ["-g", "-O0", "-fno-builtin", "-pthread", "-ldl"];
    let program = compile(directory, "all.c", SOURCE, &flags);
    let shared = ["-g", "-shared", "-fPIC", "-fno-builtin"];
    let library = compile(directory, "library.c", LIBRARY, &shared);
    let mut words = vec![program.as_os_str(), library.as_os_str()];
    words.extend(arguments.iter().map(OsStr::new));
    let built = Built::new();
    let run = |name: &str, options: &[&str]| {
        let trace = directory.join(name);
        built.record(&trace, options, &words);
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
    let trace = counted(directory.path());
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
    build_lab();
    for command in ["advise", "html", "timeline", "flamegraph", "replay"] {
        let refused = output(larder().arg(command).arg(&trace));
        assert_fails(&refused, 125, &["counters", "--aggregate"]);
    }
}

#[test]
fn counters_of_a_damaged_trace_are_read_as_far_as_they_go() {
    let directory = temporary();
    let trace = counted(directory.path());
    let mut files = fs::read_dir(&trace).expect("the trace");
    let file = files.next().expect("a file").expect("a file").path();
    let whole = fs::read(&file).expect("readable");
    let at = whole
        .windows(5)
        .position(|bytes| bytes == b"LCHK\x05")
        .expect("a chunk of counters");
    // Cut within the counters, and bytes of them turned over.
    fs::write(&file, &whole[..at + 90]).expect("writable");
    let cut = report_json(&trace, &[]);
    assert_eq!(cut["counters"]["allocations"], 0);
    assert_eq!(cut["losses"]["complete"], false);
    let mut flipped = whole.clone();
    for byte in &mut flipped[at + 80..at + 100] {
        *byte ^= 0xff;
    }
    fs::write(&file, &flipped).expect("writable");
    let damaged = report_json(&trace, &[]);
    assert_eq!(damaged["counters"]["allocations"], 0);
    assert_eq!(damaged["counters"]["frees"], 0);
    assert_eq!(damaged["losses"]["complete"], false);
    let text = report_text(&trace, &[]);
    assert!(text.contains("checksum"), "{text}");
}

/// What goes on in processes and threads at once; counts are the same in each run.
const AT_ONCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 4, kRounds = 200, kBlocks = 50 };
static void *volatile kept;
static void *shared[kThreads][kBlocks];
static pthread_barrier_t barrier;

// Each thread frees what its neighbour made.
static void *hand_on(void *argument) {
  long me = (long)argument;
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < kBlocks; i++) shared[me][i] = malloc(24 + me);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < kBlocks; i++) free(shared[(me + 1) % kThreads][i]);
    pthread_barrier_wait(&barrier);
  }
  return argument;
}

static void *churn(void *argument) {
  for (int i = 0; i < 20000; i++) free(realloc(malloc(40), 80));
  return argument;
}

static void in_threads(void *(*work)(void *), void (*meanwhile)(void)) {
  pthread_t threads[kThreads];
  pthread_barrier_init(&barrier, NULL, kThreads);
  for (long i = 0; i < kThreads; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)i)) abort();
  if (meanwhile) meanwhile();
  for (int i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
}

static void forks(void) {
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    if (child == 0) {
      for (int j = 0; j < 100; j++) free(malloc(222));
      kept = malloc(111);
      if (i % 3 == 0) execl("/proc/self/exe", "child", "again", (char *)0);
      if (i % 3 == 1) _exit(0);
      exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
  }
}

static void spawn(void) {
  char *words[] = {(char *)"child", (char *)"again", NULL};
  for (int i = 0; i < 5; i++) {
    pid_t child = vfork();
    if (child == 0) {
      execv("/proc/self/exe", words);
      _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ)) abort();
    if (waitpid(child, &status, 0) != child || status != 0) abort();
  }
}

static sigjmp_buf out;
static void on_signal(int number) {
  free(malloc(333));
  kept = malloc(17);
  if (number == SIGUSR2) siglongjmp(out, 1);
}

static void signals(void) {
  signal(SIGUSR1, on_signal);
  signal(SIGUSR2, on_signal);
  for (volatile int i = 0; i < 500; i++) {
    raise(SIGUSR1);
    if (sigsetjmp(out, 1) == 0) raise(SIGUSR2);
  }
}

static void keep_errno(void) {
  for (int i = 0; i < 300; i++) {
    errno = 77;
    free(calloc(i + 1, 16));
    kept = strdup("errno");
    if (errno != 77) abort();
  }
}

// When the first thread has ended: that loads libgcc_s, which allocates.
static void *last(void *argument) {
  for (int i = 0; i < 100; i++) kept = malloc(60);
  pthread_join(*(pthread_t *)argument, NULL);
  exit(0);
}

int main(int count, char **words) {
  const char *mode = words[count - 1];
#define IS(name) (strcmp(mode, name) == 0)
  kept = malloc(1000);
  if (IS("again")) return 0;
  if (IS("hand on")) in_threads(hand_on, NULL);
  if (IS("forks")) in_threads(churn, forks);
  if (IS("spawn")) spawn();
  if (IS("signals")) signals();
  if (IS("errno")) keep_errno();
  if (IS("thread ends")) {
    static pthread_t first;
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, last, &first);
    pthread_exit(NULL);
  }
  if (IS("quick")) quick_exit(0);
  if (IS("abort")) abort();
  if (IS("exec")) execl("/proc/self/exe", "child", "again", (char *)0);
  return 0;
}
"#;

#[test]
fn threads_forks_signals_and_ends_are_counted_to_the_call() {
    let directory = temporary();
    let flags = ["-g", "-O0", "-fno-builtin", "-pthread"];
    let program = compile(directory.path(), "at_once.c", AT_ONCE, &flags);
    let built = Built::new();
    let run = |mode: &str, name: &str, options: &[&str]| {
        let trace = directory.path().join(format!("{mode}-{name}"));
        let command = [program.as_os_str(), OsStr::new(mode)];
        let recorded = built.record(&trace, options, &command);
        (code(&recorded), report_json(&trace, &[]))
    };
    let modes = [
        ("hand on", 1, 40_000),
        ("forks", 28, 160_000),
        ("spawn", 11, 11),
        ("signals", 1, 2000),
        ("errno", 1, 600),
        ("thread ends", 1, 101),
        ("quick", 1, 1),
        ("abort", 1, 1),
        ("exec", 2, 2),
    ];
    for (mode, images, least) in modes {
        let (full_code, full) = run(mode, "full", &[]);
        let (counted_code, counted) = run(mode, "counted", &["--aggregate"]);
        assert_eq!(full_code, counted_code, "{mode}");
        assert_eq!(full_code != 0, mode == "abort", "{mode}");
        assert_eq!(sites(&full), sites(&counted), "{mode}");
        let mut counters = [full["counters"].clone(), counted["counters"].clone()];
        assert!(
            counters[0]["allocations"].as_u64() >= Some(least),
            "{mode}: {}",
            counters[0]
        );
        // Threads at once reach their highest sum in the order of the moment.
        if ["hand on", "forks"].contains(&mode) {
            counters = counters.map(|mut counters| {
                counters.as_object_mut().unwrap().remove("peak_bytes");
                counters
            });
        }
        assert_eq!(counters[0], counters[1], "{mode}");
        for report in [&full, &counted] {
            let processes = report["processes"].as_array().expect("processes");
            assert_eq!(processes.len(), images, "{mode}");
            for process in processes {
                assert_eq!(process["losses"]["calls"], 0, "{mode}");
                assert_eq!(
                    process["losses"]["damage"],
                    Value::Array(Vec::new()),
                    "{mode}"
                );
            }
        }
    }
}
