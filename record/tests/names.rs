//! Calls that name a file have a hash of the name, which is one for all that mean the same.

use crate::support::{Bench, Run, io_library, recorder};
use larder_trace::{Action, SystemCall};

const NAMED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) { perror(#x); exit(1); } } while (0)
typedef int Old(int version, const char *path, struct stat *about);
typedef int OldAt(int version, int folder, const char *path, struct stat *about, int flags);
int main(void) {
  struct stat about;
  struct statx more;
  Old *xstat = (Old *)dlsym(RTLD_DEFAULT, "__xstat"), *lxstat = (Old *)dlsym(RTLD_DEFAULT, "__lxstat");
  OldAt *fxstatat = (OldAt *)dlsym(RTLD_DEFAULT, "__fxstatat");
  char new[64];
  snprintf(new, sizeof new, "/tmp/named-%d", (int)getpid());
  WANT(xstat && lxstat && fxstatat && chdir("/dev") == 0);
  sleep(0);  // Here it begins.
  // 11 that mean one name.
  WANT(open("null", O_RDONLY) >= 0);
  WANT(creat("null", 0644) >= 0);
  WANT(openat(AT_FDCWD, "null", O_RDONLY) >= 0);
  WANT(stat("null", &about) == 0);
  WANT(lstat("null", &about) == 0);
  WANT(fstatat(AT_FDCWD, "null", &about, 0) == 0);
  WANT(statx(AT_FDCWD, "null", 0, STATX_SIZE, &more) == 0);
  WANT(access("null", R_OK) == 0);
  WANT(xstat(1, "null", &about) == 0);
  WANT(lxstat(1, "null", &about) == 0);
  WANT(fxstatat(1, AT_FDCWD, "null", &about, 0) == 0);
  // 4 that mean another.
  WANT(stat("/dev/null", &about) == 0);
  WANT(fstatat(99, "/dev/null", &about, 0) == 0);
  WANT(faccessat(99, "/dev/null", R_OK, 0) == 0);
  WANT(openat(99, "/dev/null", O_RDONLY) >= 0);
  // 3 more, each alone.
  int folder = open("/", O_RDONLY | O_DIRECTORY);
  WANT(folder >= 0 && openat(folder, "null", O_RDONLY) == -1);
  WANT(open("/dev/nul", O_RDONLY) == -1);
  // And 5 without a name to compare: of a descriptor, of a new file, or that are not understood.
  WANT(fstatat(folder, "", &about, AT_EMPTY_PATH) == 0);
  WANT(open(new, O_CREAT | O_EXCL, 0600) >= 0);
  WANT(open("/dev/null/below", O_RDONLY) == -1);
  WANT(stat((char *)8, &about) == -1);
  WANT(open(0, O_RDONLY) == -1);
  sleep(0);
  return unlink(new);
}
"#;

fn run(bench: &Bench, kernel: bool) -> Run {
    let program = bench.build("named.c", NAMED, &[]);
    bench.run_with(&program, &[], |command| {
        let mut list = recorder().into_os_string();
        if kernel {
            command.env("LARDER_RECORD_KERNEL", "1");
        } else {
            list.push(":");
            list.push(io_library());
        }
        command.env("LD_PRELOAD", list);
    })
}

/// The limits of the calls that name a file, from one sleep to the next.
fn names(run: &Run) -> Vec<u64> {
    use SystemCall::*;
    let trace = run.succeeded().only().assert_whole();
    let calls = trace.calls.iter().map(|call| call.event.action);
    let calls = calls.filter_map(|action| match action {
        Action::SystemCall { call, limit, .. } => Some((call, limit)),
        _ => None,
    });
    calls
        .skip_while(|(call, _)| !matches!(call, Sleep | ClockNanosleep))
        .skip(1)
        .take_while(|(call, _)| !matches!(call, Sleep | ClockNanosleep))
        .filter(|(call, _)| {
            matches!(
                call,
                Open | Openat | Stat | Lstat | Fstatat | Statx | Access
            )
        })
        .map(|(_, limit)| limit)
        .collect()
}

#[test]
fn a_name_has_one_hash_whatever_asks_for_it() {
    let bench = Bench::new();
    for kernel in [false, true] {
        let names = names(&run(&bench, kernel));
        assert_eq!(names.len(), 23, "{kernel} {names:x?}");
        assert_eq!(names[..11], [names[0]; 11], "{kernel} {names:x?}");
        assert_eq!(names[11..15], [names[11]; 4], "{kernel} {names:x?}");
        assert_eq!(names[18..], [0; 5], "{kernel} {names:x?}");
        let mut different = vec![names[0], names[11], names[15], names[16], names[17], 0];
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 6, "{kernel} {names:x?}");
    }
}
