//! `larder leaks`: programs that lose memory, checked when they end and while they run.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::running::{Running, preloaded, preloaded_with};
use crate::common::{
    assert_fails, assert_success, code, compile, larder, library_directory, line_of, output,
    stderr, stdout, temporary, without_rights,
};
use serde_json::Value;

/// Loses 1,000 pairs and a large block, and goes on as a server does: threads that allocate and check
/// what they have, one in read(), one in epoll_wait(), one that sends queued signals to all. At the
/// end of stdin it says what went wrong, and how many signals came.
const SERVER: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct pair { struct pair* other; char rest[40]; };
static _Atomic long work, wrong, sent, came;
static _Atomic int end;

__attribute__((noinline)) static void lose_pair(void) {
  struct pair *first = malloc(sizeof *first), *second = malloc(sizeof *second);  // @pair
  first->other = second;
  second->other = NULL;
  __asm__ volatile("" : : "r"(first) : "memory");
}
__attribute__((noinline)) static void lose_large(void) {
  char* large = memset(malloc(3 << 20), 1, 100);
  __asm__ volatile("" : : "r"(large) : "memory");
}
// Far down the stack, where the next calls leave no gaps.
static void* lose(void* argument) {
  volatile char deep[64 << 10];
  deep[0] = 1;
  lose_large();
  for (int i = 0; i < 1000; ++i) lose_pair();
  for (int i = 0; i < 10; ++i) free(memset(malloc(48), 1, 48));
  return deep[0] == 1 ? argument : NULL;
}
static void* serve(void* argument) {
  uint32_t random = (uint32_t)(uintptr_t)argument;
  static __thread unsigned char* kept[3000];
  while (!end) {
    random = random * 1664525 + 1013904223;
    unsigned char** slot = &kept[random >> 8 & 2047];
    size_t size = 8 + (random >> 16) % (work % 1000 == 0 ? 100000 : 600);
    errno = 7;
    if (*slot != NULL && **slot != (unsigned char)(uintptr_t)slot) ++wrong;
    free(*slot);
    *slot = malloc(size);
    // The whole word: with some of its bytes changed, what a free list has left there leads elsewhere.
    memset(*slot, (unsigned char)(uintptr_t)slot, 8);
    if (errno != 7) ++wrong;
    ++work;
  }
  return NULL;
}
static void* read_on(void* argument) {
  char byte;
  if (read(*(int*)argument, &byte, 1) != 0) ++wrong;
  return NULL;
}
static void* poll_on(void* argument) {
  int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, *(int*)argument, &event);
  if (epoll_wait(set, &event, 1, -1) != 1) ++wrong;
  return NULL;
}
static void* send_on(void* argument) {
  union sigval value = {0};
  while (!end) {
    if (sigqueue(getpid(), SIGRTMIN, value) == 0) ++sent;
    usleep(500);
  }
  return argument;
}
static void note(int signal) { (void)signal; ++came; }

int main(int count, char** arguments) {
  pthread_t thread, threads[8];
  sigset_t signals;
  int ends[2], n = 0;
  if (pipe(ends) != 0) return 2;
  if (count < 2) {
    pthread_create(&thread, NULL, lose, NULL);
    pthread_join(thread, NULL);
  }
  (void)arguments;
  sigemptyset(&signals);
  sigaddset(&signals, SIGRTMIN);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  pthread_create(&threads[n++], NULL, read_on, &ends[0]);
  pthread_create(&threads[n++], NULL, poll_on, &ends[0]);
  pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
  struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
  sigaction(SIGRTMIN, &action, NULL);
  for (uintptr_t i = 1; i <= 3; ++i) pthread_create(&threads[n++], NULL, serve, (void*)i);
  pthread_create(&threads[n++], NULL, send_on, NULL);
  puts("up");
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) != 0) continue;
  end = 1;
  close(ends[1]);
  for (int i = 0; i < n; ++i) pthread_join(threads[i], NULL);
  printf("{\"work\": %ld, \"wrong\": %ld, \"sent\": %ld, \"came\": %ld}\n", work, wrong, sent, came);
  return 0;
}
"#;

fn start(command: &mut Command) -> Running {
    Running::once_it_says("up\n", command.stderr(Stdio::null()))
}

fn leaks(process: &Running, options: &[&str]) -> std::process::Output {
    let id = process.id().to_string();
    output(larder().arg("leaks").args(options).arg(id))
}

/// What it says at its end.
fn end(mut process: Running) -> Value {
    drop(process.stdin.take());
    let mut text = String::new();
    let mut out = process.stdout.take().expect("a pipe");
    out.read_to_string(&mut text).expect("its last words");
    json(&text)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn server(directory: &Path) -> PathBuf {
    let flags = ["-O1", "-g", "-pthread", "-fno-builtin-malloc"];
    compile(directory, "server.c", SERVER, &flags)
}

const PAIRS: u64 = 2 * 1000 * 48;
const LARGE: u64 = 3 << 20;

/// Whether the large block is among what is lost, with the pairs. A thread that is stopped while it
/// frees a large block of its own may have the address in a register, and reaches it then.
#[track_caller]
fn large_is_lost(found: &Value) -> bool {
    let lost = &found["lost"];
    let (bytes, objects) = (lost["bytes"].as_u64(), lost["objects"].as_u64());
    let (Some(bytes), Some(objects @ 2000..=2001)) = (bytes, objects) else {
        panic!("{found}");
    };
    // A mapping may be a little more than what was asked for.
    let large = (objects - 2000) * LARGE;
    assert!(
        (PAIRS + large..PAIRS + large + (64 << 10)).contains(&bytes),
        "{found}"
    );
    large != 0
}

#[test]
fn a_server_is_looked_at_twenty_times_and_goes_on() {
    let directory = temporary();
    let program = server(directory.path());
    let running = start(&mut preloaded(&program));
    let mut with_large = 0;
    for _ in 0..20 {
        let found = leaks(&running, &["--json"]);
        assert_eq!(code(&found), 1, "{}", stderr(&found));
        let found = json(&stdout(&found));
        with_large += u32::from(large_is_lost(&found));
        assert_eq!(found["lost"]["with_others"]["objects"], 1000, "{found}");
        assert_eq!(found["look"]["threads"], 7);
        assert_eq!(found["look"]["all_have_stacks"], false);
    }
    assert!(with_large > 10, "{with_large}");
    let end = end(running);
    assert_eq!(end["wrong"], 0, "{end}");
    assert_eq!(end["sent"], end["came"], "{end}");
    assert!(
        end["work"].as_u64().is_some_and(|work| work > 1000),
        "{end}"
    );
}

#[test]
fn with_heapcheck_each_leak_has_its_line() {
    let directory = temporary();
    let program = server(directory.path());
    let running = start(preloaded(&program).env("HEAPCHECK", "normal"));
    let found = leaks(&running, &["--json", "--exit-code", "7"]);
    assert_eq!(code(&found), 7, "{}", stderr(&found));
    let found = json(&stdout(&found));
    assert_eq!(found["look"]["all_have_stacks"], true);
    // The large block's address may stay in a vector register, where a table was moved that has it.
    let sites = found["sites"].as_array().expect("sites");
    let pairs = sites.iter().find(|site| site["function"] == "lose_pair");
    let pairs = pairs.expect("the pairs");
    assert_eq!(pairs["lost"]["bytes"], PAIRS);
    assert_eq!(pairs["lost"]["objects"], 2000);
    assert_eq!(pairs["lost"]["with_others"]["objects"], 1000);
    assert_eq!(pairs["line"], line_of(SERVER, "pair"));
    let text = stdout(&leaks(&running, &[]));
    for words in ["lose_pair  ", "7 threads stopped", "Sites by bytes lost"] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    // What is known leaves nothing.
    let known = directory.path().join("known");
    std::fs::write(&known, "leak:^lose_large$\nleak:lose_p*r\nrace:x\n").unwrap();
    let known = known.to_str().expect("a name");
    let found = leaks(&running, &["--suppressions", known]);
    assert_success(&found);
    assert!(stdout(&found).contains("Nothing is lost"));
    let reported = stderr(&found);
    assert!(
        reported.contains("suppressed 96000 bytes in 2000 objects by leak:lose_p*r"),
        "{reported}"
    );
    assert!(reported.contains("line 3: not leak:PATTERN"), "{reported}");
    assert_eq!(end(running)["wrong"], 0);
}

/// Bytes and objects of each row of the table, by what the row is called.
fn rows(text: &str) -> Vec<(u64, u64, String)> {
    let (_, table) = text.split_once("Sites by bytes lost").expect("a table");
    let (table, _) = table.split_once("\n\n").unwrap_or((table, ""));
    let row = regex::Regex::new(r"(?m)^ *([\d,]+) +([\d,]+) +[\d,]+  (.+)$").unwrap();
    let rows = row.captures_iter(table);
    rows.map(|row| (number(&row[1]), number(&row[2]), row[3].to_owned()))
        .collect()
}

fn number(text: &str) -> u64 {
    text.replace(',', "").parse().expect("a number")
}

/// What has no stack, and the sites that are not shown, are rows as well.
#[test]
fn the_table_adds_up_to_what_is_lost() {
    let directory = temporary();
    let program = server(directory.path());
    let running = start(preloaded(&program).env("LARDER_PROFILE_BYTES", "10000"));
    let head = regex::Regex::new(r"(?m)^Lost: ([\d,]+) bytes in ([\d,]+) objects").unwrap();
    for options in [&[][..], &["--top", "1"]] {
        // Until the large block is among it: `large_is_lost` says when it is not.
        let mut looks = (0..20).map(|_| stdout(&leaks(&running, options)));
        let text = looks
            .find(|text| rows(text).len() == 3)
            .expect("three rows");
        let rows = rows(&text);
        let bytes: u64 = rows.iter().map(|row| row.0).sum();
        let objects: u64 = rows.iter().map(|row| row.1).sum();
        let lost = head.captures(&text).expect("what is lost");
        assert_eq!(
            (bytes, objects),
            (number(&lost[1]), number(&lost[2])),
            "{text}"
        );
        assert_eq!(rows[2].2, "[no stack]", "{text}");
        assert_eq!(rows[1].2.starts_with("1 more site"), !options.is_empty());
    }
    drop(running);
    // Without the sampler it is all that there is.
    let running = start(&mut preloaded_with("liblarder_minimal.so", &program));
    let rows = rows(&stdout(&leaks(&running, &[])));
    let [(_, 2000..=2001, name)] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(name, "[no stack]");
}

const HELD: &str = r#"
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <unistd.h>
static void* volatile global;
__attribute__((noinline)) static int hold() {
  volatile char deep[64 << 10];
  deep[0] = 0;
  global = memset(malloc(1 << 20), 1, 100);
  return deep[0];
}
int main() {
  int none = hold();
  void* volatile local = memset(malloc(2 << 20), 1, 100);
  std::cout << "up" << std::endl;
  for (;;) pause();
  return none + (local != nullptr);
}
"#;

/// What the C++ library reserves for exceptions that find no memory is no leak.
#[test]
fn what_only_globals_reach_and_what_the_cxx_library_keeps_are_listed_apart() {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "held.cc",
        HELD,
        &["-O1", "-fno-builtin-malloc"],
    );
    let running = start(&mut preloaded(&program));
    let text = stdout(&leaks(&running, &[]));
    for words in [
        "Nothing is lost",
        "  by globals alone: ",
        "  by the C++ library alone",
    ] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    let found = json(&stdout(&leaks(&running, &["--json"])));
    let bytes = |value: &Value| value["bytes"].as_u64().expect("bytes");
    let look = &found["look"];
    // Buffers of the C library come to it.
    let by_globals = bytes(&look["reachable_by_globals_alone"]);
    assert!(
        (1 << 20..(1 << 20) + (100 << 10)).contains(&by_globals),
        "{found}"
    );
    let reserve = &look["reachable_by_cxx_library_alone"];
    assert_eq!(reserve["objects"], 1, "{found}");
    assert!((64 << 10..128 << 10).contains(&bytes(reserve)), "{found}");
    assert!(
        bytes(&found["reachable"]) >= (3 << 20) + bytes(reserve),
        "{found}"
    );
}

#[test]
fn what_is_not_lost_is_not_reported() {
    let directory = temporary();
    let program = server(directory.path());
    // Denser samples would have lists in transit at two looks.
    for (library, guard, sampled) in [
        ("liblarder.so", "0", "524288"),
        ("liblarder.so", "1", "20000"),
        ("liblarder_minimal.so", "0", "0"),
    ] {
        let mut command = preloaded_with(library, &program);
        command.env("LARDER_GUARD", guard);
        command.env("LARDER_PROFILE_BYTES", sampled);
        let running = start(command.arg("keep"));
        for _ in 0..5 {
            let found = leaks(&running, &[]);
            assert_success(&found);
            assert!(
                stdout(&found).contains("Nothing is lost"),
                "{}",
                stdout(&found)
            );
        }
        assert_eq!(end(running)["wrong"], 0);
    }
    // Without the sampler nothing has a stack.
    let running = start(&mut preloaded_with("liblarder_minimal.so", &program));
    let found = json(&stdout(&leaks(&running, &["--json"])));
    large_is_lost(&found);
    assert_eq!(found["site_count"], 0);
}

#[test]
fn what_cannot_be_examined_is_reported_with_the_reason() {
    let directory = temporary();
    let program = server(directory.path());
    let running = start(&mut preloaded(&program));
    let id = running.id();
    let mut apart = without_rights(env!("CARGO_BIN_EXE_larder"));
    let found = output(apart.args(["leaks", &id.to_string()]));
    if code(&found) != 1 {
        assert_fails(&found, 125, &["memory may not be read", "root"]);
    }
    // SAFETY: it touches no memory of ours; the process is a child that we end.
    let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, id as i32, 0, 0) };
    assert_eq!(traced, 0);
    assert_fails(
        &leaks(&running, &[]),
        125,
        &["traces it already", "debugger"],
    );
    drop(running);
    let mut command = Command::new(&program);
    let first = library_directory().join("liblarder.so");
    let second = library_directory().join("liblarder_minimal.so");
    command.env(
        "LD_PRELOAD",
        format!("{}:{}", first.display(), second.display()),
    );
    let running = start(&mut command);
    assert_fails(
        &leaks(&running, &[]),
        125,
        &["several of Larder's libraries"],
    );
    drop(running);
    let running = start(Command::new(&program).arg("keep"));
    assert_fails(
        &leaks(&running, &[]),
        125,
        &["does not run on Larder", "larder run"],
    );
    drop(running);
    for bad in [
        &["0"][..],
        &["x"],
        &[],
        &["1", "--", "true"],
        &["--mode", "normal", "1"],
    ] {
        assert_eq!(
            code(&output(larder().arg("leaks").args(bad))),
            125,
            "{bad:?}"
        );
    }
    let found = output(larder().args(["leaks", "--suppressions", "/nowhere", "1"]));
    assert_fails(&found, 125, &["/nowhere", "leak:PATTERN"]);
}

#[test]
fn what_new_allocates_is_reported_without_the_allocators_inside() {
    let directory = temporary();
    let lost = "int main() {\n  int* volatile p = new int();\n  p = nullptr;\n}\n";
    let program = compile(directory.path(), "new.cc", lost, &["-O0", "-g"]);
    let found = output(larder().args(["leaks", "--"]).arg(&program));
    assert_eq!(code(&found), 1, "{}", stderr(&found));
    let text = stdout(&found);
    for words in [
        "Lost: 4 bytes in 1 object\n",
        "  operator new  ",
        "→ main  ",
        "new.cc:2",
    ] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    assert!(!text.contains("larder::"), "{text}");
}

/// It may end at any moment: the tool ends as well, and says so or has been faster.
#[test]
fn a_process_that_ends_meanwhile_is_no_trouble() {
    let directory = temporary();
    let program = server(directory.path());
    let is_read = |process: u32, tool: u32| {
        let mut files = fs::read_dir(format!("/proc/{tool}/fd"))
            .into_iter()
            .flatten();
        let of_process = Path::new("/proc").join(process.to_string());
        files.any(|file| {
            file.is_ok_and(|file| {
                fs::read_link(file.path()).is_ok_and(|path| path.starts_with(&of_process))
            })
        })
    };
    let is_stopped = |process: u32, tool: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|status| status.contains(&format!("TracerPid:\t{tool}\n")))
    };
    let stages: [&dyn Fn(u32, u32) -> bool; 3] = [&|_, _| true, &is_read, &is_stopped];
    for stage in stages.iter().flat_map(|stage| [stage; 5]) {
        let mut running = start(&mut preloaded(&program));
        let mut tool = larder();
        tool.arg("leaks").arg(running.id().to_string());
        let mut tool = tool
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        while !stage(running.id(), tool.id()) && tool.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        running.end();
        let status = tool.wait().expect("the tool ends").code();
        assert!(matches!(status, Some(1 | 125)), "{status:?}");
        let mut reported = String::new();
        tool.stderr
            .take()
            .expect("a pipe")
            .read_to_string(&mut reported)
            .expect("text");
        assert!(reported.lines().count() <= 1, "{reported}");
    }
}

const LOST: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void* volatile kept;
__attribute__((noinline)) static void lose(size_t size) {
  char* p = malloc(size);
  __asm__ volatile("" : : "r"(p) : "memory");
}
__attribute__((noinline)) static int lose_some(void) {
  volatile char deep[64 << 10];
  deep[0] = 1;
  for (int i = 0; i < 5; ++i) lose(100);
  return deep[0];
}
int main(int count, char** arguments) {
  (void)arguments;
  if (count < 2) lose_some();
  free(memset(malloc(48), 1, 48));
  kept = malloc(33);
  puts("done");
  return 3;
}
"#;

#[test]
fn a_command_ends_as_it_would_and_the_tool_says_what_it_has_lost() {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "lost.c",
        LOST,
        &["-O1", "-g", "-fno-builtin-malloc", "-fno-unroll-loops"],
    );
    let leaks = |options: &[&str], words: &[&str]| {
        let mut command = larder();
        command
            .arg("leaks")
            .args(options)
            .arg("--")
            .arg(&program)
            .args(words);
        output(&mut command)
    };
    let found = leaks(&[], &[]);
    assert_eq!(code(&found), 1, "{}", stderr(&found));
    let text = stdout(&found);
    assert!(text.starts_with("done\n"), "{text}");
    for words in [
        "Lost: 500 bytes in 5 objects",
        "lose  ",
        "lost.c:7",
        "checked when it ended",
    ] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    assert_eq!(stderr(&found), "", "the library says nothing itself");
    assert_eq!(code(&leaks(&["--exit-code", "9"], &[])), 9);
    let clean = leaks(&[], &["keep"]);
    assert_eq!(code(&clean), 3);
    assert!(stdout(&clean).contains("Nothing is lost"));
    let found = leaks(&["--json", "--mode", "draconian"], &["keep"]);
    assert_eq!(code(&found), 1);
    let found = json(&stdout(&found));
    let lost = found["lost"]["bytes"].as_u64().expect("bytes");
    assert!(lost >= 33, "{found}");
    let known = directory.path().join("known");
    std::fs::write(&known, "leak:lose\n").unwrap();
    let known = known.to_str().expect("a name");
    let found = leaks(&["--suppressions", known], &[]);
    assert_eq!(code(&found), 3, "{}", stderr(&found));
    assert!(stderr(&found).contains("suppressed 500 bytes in 5 objects by leak:lose"));
    // Each program is checked, and its end is its own.
    let script = format!(
        "{0}; test $? = 3 && /usr/bin/true && {0} keep; test $? = 3",
        program.display()
    );
    let found = output(larder().args(["leaks", "--json", "--", "bash", "-c", &script]));
    assert_eq!(code(&found), 1, "{}", stderr(&found));
    let found = json(&stdout(&found));
    assert_eq!(found["lost"]["bytes"], 500, "{found}");
    assert!(
        found["processes"]
            .as_array()
            .is_some_and(|all| all.len() >= 3),
        "{found}"
    );
}

/// Perl's interpreter, with a file of the user's, which is named by an option or by the library's variable.
#[test]
fn known_leaks_of_libraries_are_left_out() {
    let directory = temporary();
    let known = directory.path().join("known");
    std::fs::write(&known, "leak:perl_alloc_nowhere\nleak:Perl_init_stacks\n").unwrap();
    let leaks = |options: &[&str], variable: &str| {
        let mut command = larder();
        command.env(variable, &known).args(["leaks"]).args(options);
        output(command.args(["--", "perl", "-e", "1"]))
    };
    let frame = "perl_construct+";
    let found = leaks(&[], "UNUSED");
    assert!(!stdout(&found).contains(frame), "{}", stdout(&found));
    let words = stderr(&found);
    assert!(words.contains("objects by leak:perl_construct"), "{words}");
    assert!(!words.contains("leak:Perl_init_stacks"), "{words}");
    let option = ["--suppressions", known.to_str().expect("a name")];
    for found in [
        leaks(&option, "UNUSED"),
        leaks(&[], "LARDER_LEAK_SUPPRESSIONS"),
    ] {
        assert!(!stdout(&found).contains(frame), "{}", stdout(&found));
        let words = stderr(&found);
        for pattern in ["leak:Perl_init_stacks", "leak:perl_construct"] {
            assert!(words.contains(pattern), "{words}");
        }
    }
    let found = leaks(&["--no-built-in-suppressions"], "UNUSED");
    assert_eq!(code(&found), 1, "{}", stdout(&found));
    assert_eq!(stderr(&found), "");
    assert!(stdout(&found).contains(frame));
    let mut ours = larder();
    ours.env("LSAN_OPTIONS", format!("suppressions={}", known.display()));
    let found = output(ours.args(["leaks", "--", "perl", "-e", "1"]));
    assert_eq!(code(&found), 1, "{}", stdout(&found));
    let words = stderr(&found);
    assert!(words.contains("leak:Perl_init_stacks") && !words.contains("leak:perl_construct"));
}

#[test]
fn a_command_that_was_not_checked_is_reported() {
    let found = output(larder().args(["leaks", "--", "sh", "-c", "kill -9 $$"]));
    assert_fails(&found, 125, &["ended with 137", "not checked for leaks"]);
    assert_eq!(
        code(&output(larder().args(["leaks", "--", "/nowhere"]))),
        127
    );
    assert_eq!(
        code(&output(larder().args(["leaks", "--", "/etc/passwd"]))),
        126
    );
    let mut child = larder();
    child.args(["leaks", "--", "true"]).stdout(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    drop(child.stdout.take());
    assert!(
        child.wait().expect("it ends").success(),
        "a closed pipe is no error"
    );
    let _ = std::io::stdout().flush();
}

/// Frees half of its objects in signal handlers that interrupt malloc_trim, where no heap takes them back.
const HANDLER: &str = r#"
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
static void* objects[4000];
static volatile int freed;
static void free_ten(int signal) {
  (void)signal;
  for (int i = 0; i < 10 && freed < 2000; ++i, ++freed) {
    free(objects[freed]);
    objects[freed] = NULL;
  }
}
int main(void) {
  for (int i = 0; i < 4000; ++i) objects[i] = malloc(100);
  signal(SIGALRM, free_ten);
  struct itimerval soon = {{0, 300}, {0, 300}};
  setitimer(ITIMER_REAL, &soon, NULL);
  while (freed < 2000) malloc_trim(0);
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  write(1, "up\n", 3);
  for (;;) pause();
}
"#;

#[test]
fn what_a_signal_handler_has_freed_is_not_reported_as_in_use() {
    let directory = temporary();
    let flags = ["-O1", "-g", "-fno-builtin-malloc"];
    let program = compile(directory.path(), "handler.c", HANDLER, &flags);
    let mut command = preloaded(&program);
    let running = start(command.env("LARDER_PROFILE_BYTES", "1"));
    let found = leaks(&running, &["--json"]);
    assert_success(&found);
    assert_eq!(json(&stdout(&found))["reachable"]["objects"], 2000);
}

/// Has one object after the other in hand, as the allocator does while it waits for a lock of its own
/// (alloc/os/lock.h): nothing leads there. For 100 milliseconds each; then it runs on.
const WAITER: &str = r#"
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void* volatile objects[1000];
static volatile uintptr_t hidden;
static uint32_t word = 1u << 31 | 1;
static long ran(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}
static void* wake(void* argument) {
  for (;;) {
    usleep(100000);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
  }
  return argument;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, wake, NULL);
  for (int i = 0; i < 1000; ++i) objects[i] = calloc(1, 100);
  write(1, "up\n", 3);
  for (int i = 0;; i = (i + 1) % 1000) {
    hidden = ~(uintptr_t)objects[i];
    objects[i] = NULL;
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, word, NULL);
    objects[i] = (void*)~hidden;
    for (long begin = ran(); ran() < begin + 400000;) continue;
  }
}
"#;

#[test]
fn what_a_thread_has_in_hand_while_it_waits_for_a_lock_is_not_lost() {
    let directory = temporary();
    let flags = ["-O1", "-g", "-fno-builtin-malloc", "-pthread"];
    let program = compile(directory.path(), "waiter.c", WAITER, &flags);
    let running = start(&mut preloaded(&program));
    for _ in 0..5 {
        let found = leaks(&running, &["--json"]);
        assert_success(&found);
        assert_eq!(json(&stdout(&found))["lost"]["objects"], 0);
    }
}

/// A thread without a heap of its own, whose free objects its CPU keeps.
const SHARER: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void* share(void* argument) {
  void* objects[20];
  for (int i = 0; i < 20; ++i) objects[i] = malloc(300);
  for (int i = 0; i < 20; ++i) free(objects[i]);
  write(1, "up\n", 3);
  for (;;) pause();
  return argument;
}
int main(void) {
  pthread_t thread;
  free(malloc(1));
  pthread_create(&thread, NULL, share, NULL);
  pthread_join(thread, NULL);
}
"#;

#[test]
fn what_a_cpu_keeps_for_threads_without_a_heap_is_not_lost() {
    let directory = temporary();
    let flags = ["-O1", "-g", "-fno-builtin-malloc", "-pthread"];
    let program = compile(directory.path(), "sharer.c", SHARER, &flags);
    let mut command = preloaded(&program);
    let running = start(command.env("LARDER_MAX_HEAPS", "1"));
    let found = leaks(&running, &["--json"]);
    assert_success(&found);
    assert_eq!(json(&stdout(&found))["lost"]["objects"], 0);
}
