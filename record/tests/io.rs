//! The wrappers of system calls: every result is in the trace, and the program sees no difference.

mod support;

use std::path::Path;
use std::process::Command;

use larder_trace::{Action, IoCall};
use support::{Bench, Recorded, Run, io_library, recorder};

const CALLS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#define WANT(value, call) do { if ((call) != (value)) { _exit(__LINE__); } } while (0)
#define FAILS(error, call) do { errno = 0; WANT(-1, call); WANT(error, errno); } while (0)
int main(void) {
  char b[64] = "abcdefgh";
  struct iovec v[2] = {{b, 3}, {b + 3, 4}};
  struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
  struct mmsghdr mm = {.msg_hdr = m};
  int p[2], s[2], waiting = 0;
  if (pipe(p) || socketpair(AF_UNIX, SOCK_DGRAM, 0, s)) return 1;
  errno = 77;
  WANT(8, write(p[1], b, 8));
  struct pollfd f = {.fd = p[0], .events = POLLIN};
  struct timespec now = {0, 0};
  WANT(1, poll(&f, 1, 0));
  WANT(1, ppoll(&f, 1, &now, 0));
  fd_set set;
  FD_ZERO(&set);
  FD_SET(p[0], &set);
  struct timeval none = {0, 0};
  WANT(1, select(p[0] + 1, &set, 0, 0, &none));
  WANT(1, pselect(p[0] + 1, &set, 0, 0, &now, 0));
  WANT(0, ioctl(p[0], FIONREAD, &waiting));
  WANT(8, waiting);
  volatile size_t most = sizeof b;
  WANT(8, read(p[0], b, most));
  WANT(7, writev(p[1], v, 2));
  WANT(7, readv(p[0], v, 2));
  WANT(2, send(s[0], b, 2, 0));
  WANT(2, recv(s[1], b, most, 0));
  WANT(3, sendto(s[0], b, 3, 0, 0, 0));
  WANT(3, recvfrom(s[1], b, most, 0, 0, 0));
  WANT(7, sendmsg(s[0], &m, 0));
  WANT(7, recvmsg(s[1], &m, 0));
  WANT(1, sendmmsg(s[0], &mm, 1, 0));
  WANT(1, recvmmsg(s[1], &mm, 1, 0, 0));
  int e = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event);
  WANT(0, epoll_wait(e, &event, 1, 0));
  WANT(0, epoll_pwait(e, &event, 1, 0, 0));
  char name[] = "/tmp/larder-io-XXXXXX";
  int t = mkstemp(name);
  unlink(name);
  WANT(8, pwrite(t, b, 8, 0));
  WANT(5, pread(t, b, most, 3));
  WANT(7, pwritev(t, v, 2, 100));
  WANT(7, preadv(t, v, 2, 100));
  off_t from = 2;
  WANT(4, sendfile(p[1], t, &from, 4));
  WANT(4, splice(p[0], 0, t, 0, 10, 0));
  loff_t in = 0, out = 50;
  WANT(6, copy_file_range(t, &in, t, &out, 6, 0));
  WANT(77, errno);
  FAILS(EBADF, read(-1, b, most));
  FAILS(EBADF, ioctl(-1, FIONREAD, &waiting));
  FAILS(EAGAIN, recv(s[1], b, most, MSG_DONTWAIT));
  return 0;
}
"#;

/// What `CALLS` does, in order.
const EXPECTED: [(IoCall, i64); 29] = {
    use IoCall::*;
    [
        (Write, 8),
        (Poll, 1),
        (Ppoll, 1),
        (Select, 1),
        (Pselect, 1),
        (Ioctl, 0),
        (Read, 8),
        (Writev, 7),
        (Readv, 7),
        (Send, 2),
        (Recv, 2),
        (Sendto, 3),
        (Recvfrom, 3),
        (Sendmsg, 7),
        (Recvmsg, 7),
        (Sendmmsg, 1),
        (Recvmmsg, 1),
        (EpollWait, 0),
        (EpollPwait, 0),
        (Pwrite, 8),
        (Pread, 5),
        (Pwritev, 7),
        (Preadv, 7),
        (Sendfile, 4),
        (Splice, 4),
        (CopyFileRange, 6),
        (Read, -9),
        (Ioctl, -9),
        (Recv, -11),
    ]
};

fn run(bench: &Bench, program: &Path) -> Run {
    let mut list = recorder().into_os_string();
    list.push(":");
    list.push(io_library());
    bench.run_with(program, &[], |command| {
        command.env("LD_PRELOAD", list);
    })
}

fn io(trace: &Recorded) -> Vec<(IoCall, i64)> {
    let calls = trace
        .calls
        .iter()
        .filter_map(|call| match call.event.action {
            Action::Io { call, result, .. } => Some((call, result)),
            _ => None,
        });
    calls.collect()
}

#[test]
fn every_call_and_its_result_is_recorded_and_errno_kept() {
    let bench = Bench::new();
    for options in [
        &["-O0"][..],
        &["-O2", "-D_FORTIFY_SOURCE=2", "-fno-stack-protector"],
        &["-D_FILE_OFFSET_BITS=64"],
    ] {
        let program = bench.build("calls.c", CALLS, options);
        let run = run(&bench, &program);
        let trace = run.succeeded().only().assert_whole();
        assert_eq!(io(trace), EXPECTED, "{options:?}");
        for call in &trace.calls {
            if let Action::Io { .. } = call.event.action {
                assert!(call.complete);
                assert_eq!(call.frames[0].0, "calls.bin");
            }
        }
        let main = trace.calls_from("calls.bin").filter(|call| call.complete);
        assert!(main.count() >= EXPECTED.len());
    }
}

#[test]
fn without_the_option_nothing_of_it_is_in_the_trace() {
    let bench = Bench::new();
    let program = bench.build("calls.c", CALLS, &[]);
    let run = bench.run(&program, &[]);
    assert_eq!(io(run.succeeded().only().assert_whole()), []);
}

#[test]
fn the_wrappers_only_forward_without_the_recorder() {
    let bench = Bench::new();
    let program = bench.build("calls.c", CALLS, &[]);
    let status = Command::new(program)
        .env("LD_PRELOAD", io_library())
        .env("LD_BIND_NOW", "1")
        .status()
        .expect("the program starts");
    assert!(status.success(), "{status}");
}

const CANCELLED: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static int p[2], cleaned;
struct Cleaner { char *block = static_cast<char *>(malloc(123)); ~Cleaner() { free(block); cleaned++; } };
static void *wait_for_ever(void *) {
  Cleaner cleaner;
  char b[8];
  return read(p[0], b, sizeof b) ? p : nullptr;
}
int main() {
  if (pipe(p)) return 1;
  for (int i = 0; i < 20; i++) {
    pthread_t t;
    void *end;
    pthread_create(&t, nullptr, wait_for_ever, nullptr);
    usleep(i % 2 ? 2000 : 0);
    pthread_cancel(t);
    pthread_join(t, &end);
    if (end != PTHREAD_CANCELED) return 2;
  }
  free(malloc(321));
  return cleaned > 0 && cleaned <= 20 ? 0 : 3;
}
"#;

#[test]
fn a_thread_that_waits_can_be_cancelled_and_its_frames_are_unwound() {
    let bench = Bench::new();
    let program = bench.build("cancelled.cc", CANCELLED, &["-fno-builtin"]);
    let run = run(&bench, &program);
    let trace = run.succeeded().only().assert_whole();
    let of_size = |wanted| {
        let calls = trace.calls.iter().map(|call| call.event.action);
        calls
            .filter(|action| matches!(action, Action::Alloc { size, .. } if *size == wanted))
            .count()
    };
    assert!(of_size(123) >= 10);
    assert_eq!(of_size(321), 1);
    assert_eq!(io(trace), [], "no read came back");
}

const INTERRUPTED: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
static sigjmp_buf out;
static int leap;
static void handle(int signal) {
  (void)signal;
  free(malloc(55));
  if (leap) siglongjmp(out, 1);
}
int main(void) {
  int p[2];
  char b[4];
  struct sigaction action = {.sa_handler = handle};
  struct itimerval soon = {.it_value = {0, 20000}};
  if (pipe(p) || sigaction(SIGALRM, &action, 0)) return 1;
  setitimer(ITIMER_REAL, &soon, 0);
  if (read(p[0], b, 4) != -1 || errno != EINTR) return 2;
  leap = 1;
  setitimer(ITIMER_REAL, &soon, 0);
  if (!sigsetjmp(out, 1)) {
    if (read(p[0], b, 4) != -2) return 3;
  }
  if (write(p[1], b, 4) != 4 || read(p[0], b, 4) != 4) return 4;
  return 0;
}
"#;

#[test]
fn a_handler_may_allocate_while_a_call_waits_and_may_leap_out_of_it() {
    let bench = Bench::new();
    let program = bench.build("interrupted.c", INTERRUPTED, &["-fno-builtin"]);
    let run = run(&bench, &program);
    let trace = run.succeeded().only().assert_whole();
    let eintr = i64::from(libc::EINTR);
    let expected = [
        (IoCall::Read, -eintr),
        (IoCall::Write, 4),
        (IoCall::Read, 4),
    ];
    assert_eq!(io(trace), expected);
    let in_handler = trace.calls.iter().filter(|call| {
        let made = matches!(call.event.action, Action::Alloc { size: 55, .. });
        made && call.complete && call.frames.iter().any(|f| f.0 == "liblarder_record_io.so")
    });
    assert_eq!(in_handler.count(), 2, "stacks lead through the wrapper");
}
