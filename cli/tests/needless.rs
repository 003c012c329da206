//! `larder advise` on system calls and copies: each pattern with its line and its count, and near misses that
//! are not reported.

#[path = "needless/blocks.rs"]
mod blocks;
#[path = "needless/waits.rs"]
mod waits;

use crate::common::*;
use serde_json::{Value, json};

const HEAD: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define WANT(what) do { if (!(what)) { _exit(__LINE__ % 250 + 1); } } while (0)
#define CLOBBER() __asm__ volatile("" ::: "memory")
"#;

/// The findings on calls of a program: pattern, function, line, the other line's function, saved calls.
struct Advised {
    source: String,
    findings: Vec<Value>,
    text: String,
}

fn advised(source: &str) -> Advised {
    advised_with(source, &["--syscalls", "--copies"])
}

fn advised_with(source: &str, options_of_record: &[&str]) -> Advised {
    let source = format!("{HEAD}{source}");
    let directory = temporary();
    let options = [
        "-g",
        "-O1",
        "-fno-builtin",
        "-fno-inline",
        "-pthread",
        "-Wall",
    ];
    let program = compile(directory.path(), "needless.c", &source, &options);
    let trace = record(directory.path(), &program, &[], options_of_record);
    let advise = |words: &[&str]| {
        let result = output(larder().arg("advise").args(words).arg(&trace));
        assert_success(&result);
        stdout(&result)
    };
    let report: Value = serde_json::from_str(&advise(&["--json", "--all"])).expect("JSON");
    let processes = report["processes"].as_array().expect("a list").iter();
    let findings = processes.flat_map(|process| process["calls"].as_array().expect("a list"));
    Advised {
        findings: findings.cloned().collect(),
        text: advise(&["--all"]),
        source,
    }
}

impl Advised {
    fn of(&self, pattern: &str) -> Vec<&Value> {
        let findings = self.findings.iter();
        findings.filter(|f| f["pattern"] == pattern).collect()
    }

    /// The only finding of a pattern is at the marked line.
    fn only(&self, pattern: &str, mark: &str) -> &Value {
        let found = self.of(pattern);
        assert_eq!(found.len(), 1, "{pattern}: {:#?}", self.findings);
        let line = json!(line_of(&self.source, mark));
        assert_eq!(found[0]["site"]["line"], line, "{:#}", found[0]);
        found[0]
    }

    fn none(&self) {
        assert!(self.findings.is_empty(), "{:#?}", self.findings);
        assert!(
            self.text
                .contains("System calls and copies\nNothing needless was found."),
            "{}",
            self.text
        );
    }
}

/// Fills the pipe before anybody reads, so that the counts are known.
const WAKES: &str = r#"
static int ends[2];
static void *sleeper(void *unused) {
  char byte;
  while (read(ends[0], &byte, 1) == 1) {  // @sleep
  }
  return unused;
}
int main(void) {
  pthread_t thread;
  WANT(pipe(ends) == 0);
  for (int i = 0; i < 1000; i++) WANT(write(ends[1], "x", 1) == 1);  // @wake
  WANT(pthread_create(&thread, 0, sleeper, 0) == 0);
  close(ends[1]);
  return pthread_join(thread, 0);
}
"#;

#[test]
fn wake_ups_of_one_byte_are_found_and_an_eventfd_cures_them() {
    let advised_of = advised(WAKES);
    let first = &advised_of.findings[0];
    assert_eq!(first["pattern"], "wake-ups");
    assert_eq!(first["confidence"], "high");
    let line = |mark| json!(line_of(&advised_of.source, mark));
    assert_eq!(first["site"]["line"], line("wake"));
    assert_eq!(first["other"]["line"], line("sleep"));
    assert_eq!(
        (&first["of"], &first["others"]),
        (&json!(1000), &json!(1000))
    );
    assert_eq!(first["saves"]["calls"], json!(999));
    assert!(advised_of.of("small-writes").is_empty());
    for expected in [
        "1. Wake once, by an eventfd: main  ",
        "1,000 writes of 1 to 8 bytes each to a pipe that only other threads read, in 1,000 reads by sleeper",
        "999 of the writes came while an earlier byte was not read yet",
    ] {
        assert!(
            advised_of.text.contains(expected),
            "no {expected:?} in\n{}",
            advised_of.text
        );
    }
    // The cure, applied: a flag spares the writes, and one read takes all.
    let cured = WAKES
        .replace(
            "pipe(ends) == 0",
            "(ends[0] = ends[1] = eventfd(0, 0)) >= 0",
        )
        .replace("char byte;", "unsigned long long woken;")
        .replace(
            "while (read(ends[0], &byte, 1) == 1)",
            "while (read(ends[0], &woken, 8) != 8)",
        )
        .replace(
            "write(ends[1], \"x\", 1) == 1",
            "i > 0 || write(ends[1], &(unsigned long long){1}, 8) == 8",
        )
        .replace("close(ends[1]);", "");
    let directory = temporary();
    let source = format!("{HEAD}{cured}");
    let program = compile(
        directory.path(),
        "cured.c",
        &source,
        &["-g", "-O1", "-pthread"],
    );
    let trace = record(directory.path(), &program, &[], &["--syscalls"]);
    let report = report_json(&trace, &["--syscalls"]);
    let functions = report["system_calls"]["functions"]
        .as_array()
        .expect("a list")
        .clone();
    let calls = |name: &str| {
        let found = functions.iter().find(|f| f["function"] == name);
        found.and_then(|f| f["calls"].as_u64()).expect(name)
    };
    assert_eq!((calls("write"), calls("read")), (1, 1));
}

#[test]
fn a_pipe_that_carries_data_or_that_its_writer_reads_wakes_nobody() {
    let data = WAKES.replace(
        "close(ends[1]);",
        "WANT(write(ends[1], HEAD, 9) == 9); close(ends[1]);",
    );
    let data = data.replace("HEAD", "\"123456789\"");
    assert!(advised(&data).of("wake-ups").is_empty());
    let own = WAKES.replace(
        "WANT(pthread_create(&thread, 0, sleeper, 0) == 0);\n  close(ends[1]);\n  return pthread_join(thread, 0);",
        "(void)thread;\n  close(ends[1]);\n  return sleeper(0) != 0;",
    );
    assert!(advised(&own).of("wake-ups").is_empty());
}

#[test]
fn small_writes_one_after_another_are_found_and_those_with_a_read_between_are_not() {
    const SMALL: &str = r#"
int main(void) {
  int out = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY);
  char text[4096];
  memset(text, 'x', sizeof text);
  for (int run = 0; run < 10; run++) {
    for (int i = 0; i < 50; i++) WANT(write(out, text, 40) == 40);  // @small
    WANT(read(zero, text, 600) == 600);
  }
  int pair[2];
  WANT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  for (int i = 0; i < 150; i++) WANT(send(pair[0], text, 20, 0) == 20);  // @send
  for (int i = 0; i < 500; i++) WANT(write(out, text, 512) == 512);
  for (int i = 0; i < 500; i++) WANT(write(out, text, 40) == 40 && read(zero, text, 1) == 1);
  return 0;
}
"#;
    let advised = advised(SMALL);
    let line = |mark| json!(line_of(&advised.source, mark));
    let found = advised.of("small-writes");
    let at = |mark| {
        let mut found = found.iter().filter(|f| f["site"]["line"] == line(mark));
        found.next().unwrap_or_else(|| panic!("no {mark}"))
    };
    assert_eq!(found.len(), 2);
    assert_eq!(at("send")["saves"]["calls"], json!(149));
    let found = at("small");
    assert_eq!(
        (&found["saves"]["calls"], &found["of"]),
        (&json!(490), &json!(500))
    );
    assert_eq!(
        (&found["saves"]["bytes"], &found["runs"]),
        (&json!(19_600), &json!(10))
    );
}

#[test]
fn reads_until_eagain_are_found_where_the_result_was_short() {
    const AGAIN: &str = r#"
static int ends[2];
static char buffer[4096];
static void drain(void) {
  while (read(ends[0], buffer, sizeof buffer) > 0) {  // @drain
  }
}
static void exactly(void) {
  while (read(ends[0], buffer, 100) > 0) {
  }
}
int main(void) {
  WANT(pipe2(ends, O_NONBLOCK) == 0);
  for (int i = 0; i < 200; i++) {
    WANT(write(ends[1], buffer, 600) == 600);
    drain();
    WANT(write(ends[1], buffer, 600) == 600);
    exactly();
  }
  return 0;
}
"#;
    let advised = advised(AGAIN);
    let found = advised.only("until-again", "drain");
    assert_eq!(
        (&found["saves"]["calls"], &found["of"]),
        (&json!(200), &json!(400))
    );
}

#[test]
fn names_that_are_not_there_are_found_where_most_fail() {
    const NAMES: &str = r#"
static int look(const char *name) { return open(name, O_RDONLY); }  // @look
static int often(const char *name) { return open(name, O_RDONLY); }
int main(void) {
  for (int i = 0; i < 500; i++) {
    WANT(look("/no/such/file") == -1);
    int fd = i % 3 == 0 ? often("/no/such/file") : often("/dev/null");
    if (fd >= 0) close(fd);
  }
  return close(look("/dev/null"));
}
"#;
    let advised = advised(NAMES);
    let found = advised.only("not-there", "look");
    assert_eq!(
        (&found["saves"]["calls"], &found["of"]),
        (&json!(500), &json!(501))
    );
}

#[test]
fn a_stat_before_open_is_found_where_the_open_follows() {
    const STAT: &str = r#"
static struct stat about;
static int load(int folder, const char *name) {
  if (stat(name, &about) != 0) return -1;  // @stat
  int fd = open(name, O_RDONLY);  // @open
  char byte;
  return fd >= 0 && read(fd, &byte, 1) >= 0 ? close(fd) : folder;
}
static int below(int folder, const char *name) {
  int found = faccessat(folder, name, R_OK, 0);  // @access
  return found == 0 ? openat(folder, name, O_RDONLY) : -1;
}
static int changed(const char *name, int i) {
  WANT(stat(name, &about) == 0);
  return i % 5 == 0 ? open(name, O_RDONLY) : -1;
}
static int renewed(const char *name) {
  unlink(name);
  WANT(stat(".", &about) == 0);
  return open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
}
int main(void) {
  int folder = open("/dev", O_RDONLY | O_DIRECTORY), root = open("/", O_RDONLY | O_DIRECTORY);
  WANT(folder >= 0 && root >= 0 && chdir("/tmp") == 0);
  char name[64];
  snprintf(name, sizeof name, "renewed-%d", (int)getpid());
  for (int i = 0; i < 400; i++) {
    WANT(load(-1, i % 4 ? "/dev/null" : "/no/such/file") == (i % 4 ? 0 : -1));
    int fd = below(folder, "zero");
    WANT(fd >= 0 && close(fd) == 0);
    // The same name in another folder.
    WANT(faccessat(folder, "null", R_OK, 0) == 0 && openat(root, "null", O_RDONLY) == -1);
    fd = changed("/proc/self/exe", i);
    if (fd >= 0) close(fd);
    fd = renewed(name);
    WANT(fd >= 0 && close(fd) == 0);
  }
  return unlink(name);
}
"#;
    let advised = advised(STAT);
    let line = |mark| json!(line_of(&advised.source, mark));
    let found = advised.of("stat-then-open");
    assert_eq!(found.len(), 2, "{:#?}", advised.findings);
    let at = |mark| {
        let mut found = found.iter().filter(|f| f["site"]["line"] == line(mark));
        found.next().unwrap_or_else(|| panic!("no {mark}"))
    };
    // What is not there is not opened either.
    let stat = at("stat");
    assert_eq!(
        (&stat["saves"]["calls"], &stat["of"]),
        (&json!(300), &json!(300))
    );
    assert_eq!(stat["other"]["line"], line("open"));
    assert_eq!(at("access")["saves"]["calls"], json!(400));
}

#[test]
fn a_file_that_is_opened_again_is_found_and_others_of_its_line_are_not() {
    const AGAIN: &str = r#"
static int log_line(const char *name) {
  int fd = open(name, O_WRONLY | O_APPEND | O_CREAT, 0600);  // @log
  WANT(fd >= 0 && write(fd, "x", 1) == 1);
  return close(fd);
}
static int each(const char *name) { return open(name, O_WRONLY | O_CREAT, 0600); }
static int lock(const char *name) { return open(name, O_CREAT | O_EXCL, 0600); }
static int keep(const char *name) { return open(name, O_RDONLY); }
int main(void) {
  char name[64], folder[] = "/tmp/again-XXXXXX";
  WANT(mkdtemp(folder) && chdir(folder) == 0);
  for (int i = 0; i < 300; i++) {
    WANT(log_line("log") == 0);
    snprintf(name, sizeof name, "%d", i);
    WANT(close(each(name)) == 0 && unlink(name) == 0);
    WANT(close(lock("lock")) == 0 && unlink("lock") == 0);
    WANT(keep("/dev/null") >= 0);
  }
  // Closed where the wrappers do not see it.
  for (int i = 0; i < 200; i++) {
    int fd = open("/dev/zero", O_RDONLY);  // @stream
    FILE *stream = fdopen(fd, "r");
    WANT(stream && fclose(stream) == 0);
  }
  return unlink("log") || rmdir(folder);
}
"#;
    let advised = advised(AGAIN);
    let line = |mark| json!(line_of(&advised.source, mark));
    let found = advised.of("opened-again");
    let lines: Vec<_> = found
        .iter()
        .map(|f| (&f["site"]["line"], &f["saves"]["calls"]))
        .collect();
    assert_eq!(lines.len(), 2, "{:#?}", advised.findings);
    assert!(lines.contains(&(&line("log"), &json!(299))), "{lines:?}");
    assert!(lines.contains(&(&line("stream"), &json!(199))), "{lines:?}");
}

#[test]
fn a_clock_that_is_read_in_a_row_is_found() {
    const CLOCK: &str = r#"
static long now(clockid_t clock) {
  struct timespec now;
  WANT(clock_gettime(clock, &now) == 0);
  return now.tv_sec;
}
static long stamps(void) {
  long sum = 0;
  for (int i = 0; i < 5000; i++) sum += now(CLOCK_MONOTONIC);  // @storm
  return sum;
}
static long rounds(void) {
  long sum = 0;
  for (int i = 0; i < 200; i++) {
    WANT(usleep(1000) == 0);
    sum += time(0);
  }
  return sum;
}
int main(void) { return stamps() + rounds() == 0; }
"#;
    let advised = advised(CLOCK);
    let found = advised.of("clock-again");
    assert_eq!(found.len(), 1, "{:#?}", advised.findings);
    assert_eq!(found[0]["site"]["function"], "now");
    assert_eq!(found[0]["of"], json!(5000));
    let saved = found[0]["saves"]["calls"].as_u64().expect("a count");
    assert!((4500..5000).contains(&saved), "{saved}");
}

#[test]
fn mappings_of_one_size_in_turn_are_found() {
    const TURN: &str = r#"
static void use(size_t bytes) {
  char *m = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // @map
  WANT(m != MAP_FAILED);
  m[0] = 1;
  munmap(m, bytes);
}
static void other(size_t bytes) {
  char *m = mmap(0, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(m, bytes);
}
int main(void) {
  for (int i = 0; i < 300; i++) use(1 << 20);
  for (int i = 0; i < 300; i++) other(4096ul * (1 + i % 7));
  int file = open("/proc/self/exe", O_RDONLY);
  for (int i = 0; i < 300; i++) {
    char *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 4096 * (i % 2));
    WANT(m != MAP_FAILED);
    munmap(m, 4096);
  }
  return 0;
}
"#;
    let advised = advised(TURN);
    let found = advised.only("map-in-turn", "map");
    assert_eq!(found["saves"]["calls"], json!(299));
}

#[test]
fn bytes_that_are_copied_on_are_found_by_what_made_them() {
    const ONWARD: &str = r#"
struct Text { char *bytes; size_t length, room; };
static void append(struct Text *text, const char *from, size_t length) {
  if (text->length + length > text->room) {
    text->room = 2 * (text->length + length);
    text->bytes = realloc(text->bytes, text->room);
  }
  memcpy(text->bytes + text->length, from, length);  // @append
  text->length += length;
  CLOBBER();
}
static void row(struct Text *page, int number) {
  char line[100];
  int length = snprintf(line, sizeof line, "%d;%s\n", number, "a name of some length");  // @format
  append(page, line, (size_t)length);
  CLOBBER();
}
static void input(struct Text *page, int zero) {
  char buffer[1000];
  WANT(read(zero, buffer, sizeof buffer) == sizeof buffer);  // @read
  append(page, buffer, sizeof buffer);
  CLOBBER();
}
int main(void) {
  struct Text page = {0, 0, 0}, inputs = {0, 0, 0};
  int zero = open("/dev/zero", O_RDONLY);
  for (int i = 0; i < 100000; i++) row(&page, i);
  char *sent = malloc(page.length);
  memcpy(sent, page.bytes, page.length);
  CLOBBER();
  for (int i = 0; i < 500; i++) input(&inputs, zero);
  return sent[0] == 0;
}
"#;
    let advised = advised(ONWARD);
    let formatted = advised.only("formatted-then-copied", "format");
    assert_eq!(formatted["other"]["function"], "append");
    assert_eq!(
        formatted["saves"],
        json!({"calls": 100_000, "bytes": 2_788_890, "ns": 0.0})
    );
    let read = advised.only("read-then-copied", "read");
    assert_eq!(read["other"]["function"], "append");
    assert_eq!(
        (&read["saves"]["calls"], &read["saves"]["bytes"]),
        (&json!(500), &json!(500_000))
    );
    // One call is not worth a change, though it is all that append made of the page.
    assert!(
        advised.of("copied-on").is_empty(),
        "{:#?}",
        advised.findings
    );
}

#[test]
fn copies_of_copies_fills_and_blocks_that_are_freed_are_found() {
    const AGAIN: &str = r#"
static char from[1000], middle[1000], to[1000], other[1000];
static void twice(void) {
  memcpy(middle, from, sizeof from);  // @twice
  CLOBBER();
  memcpy(to, middle, sizeof middle);
  CLOBBER();
}
static void filled(void) {
  memset(to, 0, sizeof to);  // @filled
  CLOBBER();
  memcpy(to, other, 950);
  CLOBBER();
}
static char *handed(void) {
  char *made = malloc(500), *kept = malloc(500);
  made[0] = 'x';
  CLOBBER();
  memcpy(kept, made, 500);  // @handed
  CLOBBER();
  free(made);
  return kept;
}
int main(void) {
  for (int i = 0; i < 5000; i++) {
    twice();
    filled();
    free(handed());
  }
  return 0;
}
"#;
    let advised = advised(AGAIN);
    let twice = advised.only("copied-on", "twice");
    assert_eq!(
        twice["saves"],
        json!({"calls": 5000, "bytes": 5_000_000, "ns": 0.0})
    );
    let filled = advised.only("filled-then-overwritten", "filled");
    assert_eq!(
        (&filled["saves"]["calls"], &filled["others"]),
        (&json!(5000), &json!(5000))
    );
    let handed = advised.only("handed-over", "handed");
    assert_eq!(
        (&handed["saves"]["calls"], &handed["of"]),
        (&json!(5000), &json!(5000))
    );
    for finding in &advised.findings {
        assert_eq!(finding["confidence"], "medium", "stores are not seen");
    }
}

#[test]
fn formats_of_one_conversion_are_found_and_those_of_more_are_not() {
    const CONVERTED: &str = r#"
#include <locale.h>
#include <stdarg.h>
#include <wchar.h>
static volatile int number = 7;
static char text[100];
static const char *variable(void) { static char format[] = "%d"; return format; }
static void passed_on(const char *format, ...) {
  va_list all;
  va_start(all, format);
  vsnprintf(text, sizeof text, format, all);
  va_end(all);
}
int main(void) {
  setlocale(LC_ALL, "C.UTF-8");
  FILE *out = fopen("/dev/null", "w");
  WANT(out);
  for (int i = 0; i < 2000; i++) {
    fprintf(out, "%lc", (wint_t)L'x');  // @character
    snprintf(text, sizeof text, "row %d;", number);  // @integer
    fprintf(out, "<%s>", "a text");  // @text
    snprintf(text, sizeof text, "%d.%d", number, number);
    snprintf(text, sizeof text, "%5d", number);
    snprintf(text, sizeof text, "%g", 0.5);
    snprintf(text, sizeof text, variable(), number);
    passed_on("%d", number);
  }
  for (int i = 0; i < 99; i++) snprintf(text, sizeof text, "%d", number);
  return fclose(out);
}
"#;
    let advised = advised(CONVERTED);
    let mut found = advised.of("one-conversion");
    found.sort_by_key(|found| found["site"]["line"].as_u64());
    let stated: Vec<Value> = found
        .iter()
        .map(|found| json!([found["site"]["line"], found["format"], found["saves"]]))
        .collect();
    let expected = [
        ("character", "%lc"),
        ("integer", "row %d;"),
        ("text", "<%s>"),
    ];
    let expected = expected.map(|(mark, format)| {
        let saves = json!({"calls": 2000, "bytes": 0, "ns": 0.0});
        json!([line_of(&advised.source, mark), format, saves])
    });
    assert_eq!(stated, expected, "{:#?}", advised.findings);
    assert_eq!(found[1]["kit"]["header"], "larder/kit/number.h");
    assert!(
        advised
            .text
            .contains("its format is \"%lc\", which converts one character"),
        "{}",
        advised.text
    );
}

#[test]
fn near_misses_are_not_reported() {
    advised(
        r#"
static char from[1000], middle[1000], to[1000], other[1000];
static void used_in_parts(void) {
  memcpy(middle, from, sizeof from);
  CLOBBER();
  memcpy(to, middle + 100, 800);
  CLOBBER();
}
static void filled_in_parts(void) {
  memset(to, 0, sizeof to);
  CLOBBER();
  memcpy(to, from, 800);
  CLOBBER();
}
static void overwritten_between(void) {
  memcpy(middle, from, sizeof from);
  CLOBBER();
  memset(middle, 1, sizeof middle);
  CLOBBER();
  memcpy(to, middle, sizeof middle);
  CLOBBER();
}
static void filled_and_written(int null) {
  memset(to, 7, sizeof to);
  CLOBBER();
  WANT(write(null, to, 600) == 600);
  memcpy(to, from, sizeof to);
  CLOBBER();
}
static void copied_twice(void) {
  memcpy(middle, from, sizeof from);
  CLOBBER();
  memcpy(to, middle, sizeof middle);
  CLOBBER();
  memcpy(other, middle, sizeof middle);
  CLOBBER();
}
static void freed_later(void) {
  char *made = malloc(500), *kept = malloc(500);
  memcpy(kept, made, 500);
  CLOBBER();
  for (int i = 0; i < 5; i++) free(malloc(10));
  free(made);
  free(kept);
}
int main(void) {
  int null = open("/dev/null", O_WRONLY);
  for (int i = 0; i < 2000; i++) {
    used_in_parts();
    filled_in_parts();
    overwritten_between();
    filled_and_written(null);
    copied_twice();
    freed_later();
  }
  for (int i = 0; i < 7; i++) {
    memcpy(middle, from, sizeof from);
    CLOBBER();
    memcpy(to, middle, sizeof middle);
    CLOBBER();
  }
  return 0;
}
"#,
    )
    .none();
}

#[test]
fn without_the_options_nothing_is_said_of_calls() {
    let directory = temporary();
    let source = format!("{HEAD}{WAKES}");
    let program = compile(directory.path(), "plain.c", &source, &["-g", "-pthread"]);
    let trace = record(directory.path(), &program, &[], &[]);
    let result = output(larder().args(["advise", "--json"]).arg(&trace));
    assert_success(&result);
    let report: Value = serde_json::from_str(&stdout(&result)).expect("JSON");
    assert_eq!(report["processes"][0]["calls"], Value::Null);
}
