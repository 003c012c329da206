//! Programs that filter their system calls.

use crate::support::{Bench, copies_library, cpu_library, io_library, recorder};
use larder_trace::StopReason;

const FILTERED: &str = r#"
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static void allocate(int count) {
  for (int i = 0; i < count; i++) {
    char *volatile block = malloc(100 + i % 100);
    memset(block, i, 100);
    free(block);
  }
}
int main(int count, char **arguments) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, OTHERS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {6, filter};
  allocate(BEFORE);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
  if (count > 1 ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return 2;
  allocate(200000);
  if (write(1, "in\n", 3) != 3) return 3 + (arguments == 0);
  _exit(8);
}
"#;

#[test]
fn a_filter_that_kills_or_deceives_ends_the_recording_and_not_the_program() {
    let bench = Bench::new();
    let line = "larder: the program filters its system calls; it is not recorded from here on\n";
    for before in ["-DBEFORE=1", "-DBEFORE=1000"] {
        for others in [
            "KILL_PROCESS",
            "KILL_THREAD",
            "TRAP",
            "ERRNO",
            "ERRNO+1",
            "ALLOW",
        ] {
            let fails = others == "ERRNO+1";
            let kills = others != "ALLOW" && !fails;
            let others = format!("-DOTHERS=SECCOMP_RET_{others}");
            let program = bench.build("filtered.c", FILTERED, &["-fno-builtin", before, &others]);
            for (number, library) in [
                None,
                Some(io_library()),
                Some(copies_library()),
                Some(cpu_library()),
            ]
            .into_iter()
            .enumerate()
            {
                let arguments = &["by-syscall"][..number % 2];
                let run = bench.run_with(&program, arguments, |command| {
                    let mut list = recorder().into_os_string();
                    if let Some(library) = &library {
                        list.push(":");
                        list.push(library);
                    }
                    command.env("LD_PRELOAD", list);
                    command.env("LARDER_RECORD_CPU", if number == 3 { "1000" } else { "" });
                    if number == 2 {
                        command.env("LARDER_RECORD_COPIES", "0");
                    }
                });
                let what = format!("{others} {library:?} {before}: {}", run.stderr());
                assert_eq!(run.output.status.code(), Some(8), "{what}");
                assert_eq!(run.stdout(), "in\n", "{what}");
                let stop = run.only().process.stop;
                // Of samples the handler could not return.
                if kills || fails && number == 3 {
                    assert_eq!(run.stderr(), line, "{what}");
                    assert_eq!(stop, StopReason::Filtered);
                } else {
                    assert_eq!(run.stderr(), "", "{what}");
                    assert_ne!(stop, StopReason::Filtered);
                }
            }
        }
    }
}
