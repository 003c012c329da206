//! The wrappers of functions that copy: every call is in the trace, and the program sees no difference.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, Recorded, Run, copies_library, recorder};
use larder_trace::{Action, CopyCall};

/// Each function, its result checked; then what it did is in order in `EXPECTED`. The destination is within
/// `to`, the source within `from`, unless it is a format or a block.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <wchar.h>
#define WANT(what) do { if (!(what)) { _exit(__LINE__ % 250 + 1); } } while (0)
char to[1000], from[1000], *end;
wchar_t wide_to[100], wide_from[100] = L"wide";
static FILE *null;
static int lists(int which, const char *format, ...) {
  va_list list;
  int (*volatile plain)(const char *, va_list) = vprintf;
  char *made = 0;
  int result = -1;
  va_start(list, format);
  switch (which) {
    case 0: result = plain(format, list); break;
    case 1: result = vfprintf(null, format, list); break;
    case 2: result = vdprintf(fileno(null), format, list); break;
    case 3: result = vsprintf(to, format, list); break;
    case 4: result = vsnprintf(to, 4, format, list); break;
    case 5: result = vasprintf(&made, format, list); free(made); break;
  }
  va_end(list);
  return result;
}
int main(void) {
  volatile size_t n = 9;
  char *volatile hello = "hello", *volatile abc = "abc";
  char *made;
  null = fopen("/dev/null", "w");
  WANT(freopen("/dev/null", "w", stdout));
  errno = 77;
  WANT(memset(from, 'x', n) == from);
  WANT(memcpy(to, from, n) == to && to[8] == 'x');
  WANT(memmove(to + 1, to, n) == to + 1);
  WANT(mempcpy(to, from, n) == to + 9);
  bcopy(from, to, n);
  bzero(to, n);
  WANT(to[0] == 0 && to[8] == 0);
  strcpy(from, hello);
  WANT(strcpy(to, from) == to && !strcmp(to, "hello"));
  WANT(stpcpy(to, from) == to + 5);
  WANT(strncpy(to, from, n) == to && to[8] == 0);
  WANT(stpncpy(to, from, 3) == to + 3);
  strcpy(to, abc);
  WANT(strcat(to, from) == to && !strcmp(to, "abchello"));
  WANT(strncat(to, from, 2) == to && !strcmp(to, "abchellohe"));
  WANT(wmemcpy(wide_to, wide_from, 5) == wide_to);
  WANT(wmemmove(wide_to + 1, wide_to, 4) == wide_to + 1);
  WANT(wmempcpy(wide_to, wide_from, 2) == wide_to + 2);
  WANT(wmemset(wide_to, L'z', 3) == wide_to);
  WANT(wcscpy(wide_to, wide_from) == wide_to);
  WANT(wcsncpy(wide_to, wide_from, 6) == wide_to);
  WANT(wcscat(wide_to, wide_from) == wide_to && !wcscmp(wide_to, L"widewide"));
  WANT(wcsncat(wide_to, wide_from, 1) == wide_to && !wcscmp(wide_to, L"widewidew"));
  made = strdup(from);
  WANT(!strcmp(made, "hello"));
  free(made);
  made = strndup(from, 2);
  WANT(!strcmp(made, "he"));
  free(made);
  free(wcsdup(wide_from));
  WANT(printf("%d\n", 12) == 3);
  WANT(fprintf(null, "%s and %s", from, "you") == 13);
  WANT(dprintf(fileno(null), "%c", 'c') == 1);
  WANT(sprintf(to, "%d %d %d %d %d %d %d %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %Lg %s", 1, 2, 3, 4, 5, 6, 7,
               1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.25L, "end") == 58);
  WANT(!strcmp(to, "1 2 3 4 5 6 7 1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0 9.0 1.25 end"));
  WANT(snprintf(to, 4, "%s", from) == 5 && !strcmp(to, "hel"));
  WANT(asprintf(&made, "%5.2f", 3.14159) == 5 && !strcmp(made, " 3.14"));
  free(made);
  WANT(lists(0, "%d", 123) == 3);
  WANT(lists(1, "%s %f", "a", 1.5) == 10);
  WANT(lists(2, "x") == 1);
  WANT(lists(3, "%s-%s", "a", "b") == 3 && !strcmp(to, "a-b"));
  WANT(lists(4, "%ld", 123456l) == 6 && !strcmp(to, "123"));
  WANT(lists(5, "%%") == 1);
  WANT(errno == 77);
  WANT(sprintf(to, "%ls", (wchar_t[]){(wchar_t)0x7fffffff, 0}) == -1 && errno == EILSEQ);
  return 0;
}
"#;

/// What `CALLS` does, in order: the bytes, and where in `to` and `from` or their wide forms.
const EXPECTED: [(CopyCall, u64); 36] = {
    use CopyCall::*;
    [
        (Memset, 9),
        (Memcpy, 9),
        (Memmove, 9),
        (Mempcpy, 9),
        (Bcopy, 9),
        (Bzero, 9),
        (Strcpy, 6),
        (Strcpy, 6),
        (Stpcpy, 6),
        (Strncpy, 9),
        (Stpncpy, 3),
        (Strcpy, 4),
        (Strcat, 6),
        (Strncat, 3),
        (Wmemcpy, 20),
        (Wmemmove, 16),
        (Wmempcpy, 8),
        (Wmemset, 12),
        (Wcscpy, 20),
        (Wcsncpy, 24),
        (Wcscat, 20),
        (Wcsncat, 8),
        (Strdup, 6),
        (Strndup, 3),
        (Wcsdup, 20),
        (Printf, 3),
        (Fprintf, 13),
        (Dprintf, 1),
        (Sprintf, 58),
        (Snprintf, 5),
        (Asprintf, 5),
        (Vprintf, 3),
        (Vfprintf, 10),
        (Vdprintf, 1),
        (Vsprintf, 3),
        (Vsnprintf, 6),
    ]
};

fn preloaded() -> OsString {
    let mut list = recorder().into_os_string();
    list.push(":");
    list.push(copies_library());
    list
}

fn run(bench: &Bench, program: &Path, rate: &str) -> Run {
    let list = preloaded();
    bench.run_with(program, &[], |command| {
        command.env("LD_PRELOAD", list);
        command.env("LARDER_RECORD_COPIES", rate);
    })
}

/// The copies whose caller is in the program.
fn copies(trace: &Recorded) -> Vec<(CopyCall, u64)> {
    let own = trace.calls.iter().filter(|call| {
        let frames = call.frames.iter();
        let mut outside = frames.skip_while(|(module, _)| module.starts_with("liblarder_record"));
        outside
            .next()
            .is_some_and(|(module, _)| module.ends_with(".bin"))
    });
    own.filter_map(|call| match call.event.action {
        Action::Copy { call, bytes, .. } => Some((call, bytes)),
        _ => None,
    })
    .collect()
}

#[test]
fn every_call_and_its_bytes_are_recorded_and_results_and_errno_kept() {
    let bench = Bench::new();
    for options in [
        &["-O0", "-fno-builtin"][..],
        &["-O2", "-fno-builtin", "-Wno-stringop-truncation"],
        &[
            "-O2",
            "-D_FORTIFY_SOURCE=2",
            "-fno-builtin",
            "-Wno-stringop-truncation",
        ],
    ] {
        let checked = options.contains(&"-D_FORTIFY_SOURCE=2");
        let program = bench.build("copies.c", CALLS, options);
        let run = run(&bench, &program, "0");
        let trace = run.succeeded().only().assert_whole();
        let mut expected = EXPECTED.to_vec();
        expected.push((CopyCall::Vasprintf, 1));
        // The checked ones have no such forms.
        for (call, _) in &mut expected {
            match call {
                CopyCall::Bcopy if checked => *call = CopyCall::Memmove,
                CopyCall::Bzero if checked => *call = CopyCall::Memset,
                _ => {}
            }
        }
        assert_eq!(copies(trace), expected, "{options:?}");
    }
}

#[test]
fn destination_and_source_are_those_of_the_call() {
    const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
int main(void) {
  char *from = malloc(1001), *to = malloc(1002), *made;
  volatile size_t n = 10;
  memcpy(to, from, n);
  memset(to + 1, 0, n);
  bcopy(from + 1, to + 2, n);
  strcpy(from, "ab");
  strcpy(to, "12345");
  strcat(to, from);
  made = strdup(from);
  if (snprintf(to, 3, "%s", "cut off") != 7) return 1;
  return sprintf(made, "z") - 1;
}
"#;
    let bench = Bench::new();
    let program = bench.build("ends.c", PROGRAM, &["-O0", "-fno-builtin"]);
    let run = run(&bench, &program, "0");
    let trace = run.succeeded().only().assert_whole();
    let block = |wanted| {
        let mut actions = trace.calls.iter().map(|call| call.event.action);
        let found = actions.find_map(|action| match action {
            Action::Alloc { address, size, .. } if size == wanted => Some(address),
            _ => None,
        });
        found.expect("the block")
    };
    let (from, to, made) = (block(1001), block(1002), block(3));
    let ends = trace
        .calls
        .iter()
        .filter_map(|call| match call.event.action {
            Action::Copy {
                call,
                destination,
                source,
                ..
            } => Some((call, destination, source)),
            _ => None,
        });
    let ends: Vec<_> = ends.filter(|(_, at, _)| *at != 0).collect();
    let own: Vec<_> = ends
        .iter()
        .filter(|(call, ..)| *call != CopyCall::Strcpy)
        .copied()
        .collect();
    let expected = [
        (CopyCall::Memcpy, to, from),
        (CopyCall::Memset, to + 1, 0),
        (CopyCall::Bcopy, to + 2, from + 1),
        (CopyCall::Strcat, to + 5, from),
        (CopyCall::Strdup, made, from),
    ];
    assert_eq!(own[..5], expected);
    assert!(!ends.iter().any(|(call, ..)| *call == CopyCall::Snprintf));
    assert_eq!((own[5].0, own[5].1), (CopyCall::Sprintf, made));
}

const MANY: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char from[100000];
static __attribute__((noinline)) void large(char *to) { memcpy(to, from, 50000); __asm__ volatile("" ::: "memory"); }
static __attribute__((noinline)) void small(char *to) { memcpy(to, from, 24); __asm__ volatile("" ::: "memory"); }
static void handler(int unused) {
  char to[24];
  (void)unused;
  small(to);
}
static void *work(void *unused) {
  char *to = malloc(sizeof from);
  for (int i = 0; i < 20000; i++) {
    small(to);
    if (i % 20 == 0) large(to);
    if (i % 1000 == 0) pthread_kill(pthread_self(), SIGUSR1);
  }
  free(to);
  return unused;
}
int main(void) {
  pthread_t threads[4];
  signal(SIGUSR1, handler);
  for (int i = 0; i < 4; i++) if (pthread_create(&threads[i], 0, work, 0)) return 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
  return 0;
}
"#;

/// Calls and bytes of each size, as a reader estimates them.
fn estimated(trace: &Recorded, wanted: u64) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for call in &trace.calls {
        if let Action::Copy { bytes, rate, .. } = call.event.action
            && bytes == wanted
        {
            let weight = match rate {
                0 => 1.0,
                _ => 1.0 / (1.0 - (-(bytes as f64) / rate as f64).exp()),
            };
            sums = (sums.0 + weight, sums.1 + weight * bytes as f64);
        }
    }
    sums
}

#[test]
fn threads_and_signal_handlers_are_counted_right() {
    let bench = Bench::new();
    let program = bench.build("many.c", MANY, &["-fno-builtin"]);
    let run = run(&bench, &program, "0");
    let trace = run.succeeded().only().assert_whole();
    assert_eq!(estimated(trace, 24).0, 4.0 * 20_020.0);
    assert_eq!(estimated(trace, 50_000).0, 4.0 * 1_000.0);
}

#[test]
fn samples_estimate_calls_and_bytes() {
    let bench = Bench::new();
    let program = bench.build("many.c", MANY, &["-fno-builtin"]);
    let run = run(&bench, &program, "4096");
    let trace = run.succeeded().only().assert_whole();
    // 80,080 with a chance of 1 in 171: about 470 samples. Six standard errors.
    let (calls, bytes) = estimated(trace, 24);
    assert!((calls / 80_080.0 - 1.0).abs() < 0.28, "{calls}");
    assert!((bytes / 24.0 - calls).abs() < 1.0);
    // Larger than the rate: all but one in 200,000.
    let (calls, _) = estimated(trace, 50_000);
    assert!((calls / 4000.0 - 1.0).abs() < 0.01, "{calls}");
    let recorded = trace
        .calls
        .iter()
        .filter(|call| matches!(call.event.action, Action::Copy { .. }));
    assert!(recorded.count() < 6000);
}

#[test]
fn without_the_option_or_the_recorder_the_wrappers_only_forward() {
    let bench = Bench::new();
    let program = bench.build("copies.c", CALLS, &["-O0", "-fno-builtin"]);
    let trace = run(&bench, &program, "");
    assert_eq!(copies(trace.succeeded().only().assert_whole()), []);
    for bind in ["LD_BIND_NOW", "UNUSED"] {
        let status = Command::new(&program)
            .env("LD_PRELOAD", copies_library())
            .env(bind, "1")
            .status()
            .expect("the program starts");
        assert!(status.success(), "{status}");
    }
}

/// The loader calls such a resolver before it has relocated the preloaded libraries.
#[test]
fn copies_before_relocation_are_done() {
    const RESOLVER: &str = r#"
#include <string.h>
static char from[16] = "0123456789", to[16];
static int good(void) { return 42; }
static int bad(void) { return 1; }
static int (*resolve(void))(void) {
  volatile size_t n = 10;
  memcpy(to, from, n);
  memmove(to + 1, to, n);
  memset(to, 'x', 1 + n % 2);
  return to[0] == 'x' && to[1] == '0' && to[10] == '9' ? good : bad;
}
int chosen(void) __attribute__((ifunc("resolve")));
int inside(void) { return chosen(); }
"#;
    const PROGRAM: &str =
        "int chosen(void); int inside(void); int main(void) { return chosen() + inside() - 84; }";
    let bench = Bench::new();
    let library = bench.build("chosen.c", RESOLVER, &["-shared", "-fPIC", "-fno-builtin"]);
    let path = library.to_str().expect("UTF-8");
    let program = bench.build("main.c", PROGRAM, &[path, "-Wl,-z,now"]);
    let run = run(&bench, &program, "0");
    run.succeeded().only().assert_whole();
}

/// Before this library's own constructor, in the main thread, whose later copies count all the same.
#[test]
fn constructors_of_other_libraries_may_copy_and_format() {
    const EARLY: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
static char text[64], other[64];
__attribute__((constructor)) static void early(void) {
  volatile size_t n = 64;
  char *volatile from = text;
  snprintf(text, n, "%d and %s", 12, "more");
  strcpy(other, from);
  memcpy(text, other, n);
  memset(other, 0, n);
  if (strcmp(text, "12 and more") != 0 || other[0] != 0) _exit(3);
}
"#;
    const PROGRAM: &str = r#"
#include <string.h>
char to[100], from[100];
int main(void) {
  volatile size_t n = 100;
  memcpy(to, from, n);
  return 0;
}
"#;
    let bench = Bench::new();
    let early = bench.build("early.c", EARLY, &["-shared", "-fPIC", "-fno-builtin"]);
    let program = bench.build("late.c", PROGRAM, &["-fno-builtin"]);
    for rate in ["0", "1"] {
        let mut list = preloaded();
        list.push(":");
        list.push(&early);
        let run = bench.run_with(&program, &[], |command| {
            command.env("LD_PRELOAD", list);
            command.env("LARDER_RECORD_COPIES", rate);
        });
        let trace = run.succeeded().only().assert_whole();
        assert_eq!(copies(trace), [(CopyCall::Memcpy, 100)], "rate {rate}");
    }
}

#[test]
fn a_rate_that_is_no_number_is_reported_and_nothing_copied_recorded() {
    let bench = Bench::new();
    let program = bench.build("copies.c", CALLS, &["-O0", "-fno-builtin"]);
    for rate in ["-1", "64K", "1099511627777"] {
        let run = run(&bench, &program, rate);
        assert!(
            run.stderr().contains("LARDER_RECORD_COPIES"),
            "{}",
            run.stderr()
        );
        assert_eq!(copies(run.succeeded().only()), [], "{rate}");
    }
}
