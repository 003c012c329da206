//! The wrappers of system calls: every result is in the trace, and the program sees no difference.

use std::path::Path;
use std::process::Command;

use crate::support::{Bench, Recorded, Run, io_library, recorder};
use larder_trace::{Action, SystemCall};

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
const EXPECTED: [(SystemCall, i64); 30] = {
    use SystemCall::*;
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
        (EpollCtl, 0),
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

fn io(trace: &Recorded) -> Vec<(SystemCall, i64)> {
    let calls = trace
        .calls
        .iter()
        .filter_map(|call| match call.event.action {
            Action::SystemCall { call, result, .. } => Some((call, result)),
            _ => None,
        });
    let set_up = [
        SystemCall::Pipe,
        SystemCall::Socketpair,
        SystemCall::SchedYield,
    ];
    calls.filter(|(call, _)| !set_up.contains(call)).collect()
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
            if let Action::SystemCall { .. } = call.event.action {
                assert!(call.complete);
                assert_eq!(call.frames[0].0, "calls.bin");
            }
        }
        let main = trace.calls_from("calls.bin").filter(|call| call.complete);
        assert!(main.count() >= EXPECTED.len());
    }
}

/// Functions that move no bytes, and those whose limits lie in memory.
const OTHERS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#define WANT(what) do { if (!(what)) { _exit(__LINE__ % 250 + 1); } } while (0)
int main(int count, char **arguments) {
  const char *path = arguments[count];
  struct stat s;
  struct statx x;
  char b[64] = "0123456789";
  int fd = open(arguments[0], O_RDONLY), p[2];
  WANT(fd >= 0 && path == 0);
  int again = openat(AT_FDCWD, arguments[0], O_RDONLY);
  WANT(again == fd + 1);
  WANT(close(again) == 0);
  WANT(stat(arguments[0], &s) == 0);
  WANT(lstat(arguments[0], &s) == 0);
  WANT(fstat(fd, &s) == 0);
  WANT(fstatat(AT_FDCWD, arguments[0], &s, 0) == 0);
  WANT(statx(AT_FDCWD, arguments[0], 0, STATX_SIZE, &x) == 0);
  WANT(access("/no/such/file", R_OK) == -1);
  WANT(readlink("/proc/self/exe", b, 1) == 1);
  WANT(lseek(fd, 5000000000, SEEK_SET) == 5000000000);
  WANT(fcntl(fd, F_GETFD) == 0);
  char *m = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WANT(m != MAP_FAILED && m[8191] == 0);
  WANT(mprotect(m, 8192, PROT_READ | PROT_WRITE) == 0);
  WANT(madvise(m, 4096, MADV_DONTNEED) == 0);
  WANT((m = mremap(m, 8192, 16384, MREMAP_MAYMOVE)) != MAP_FAILED);
  WANT(munmap(m, 16384) == 0);
  WANT(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
  struct timespec t = {0, 0};
  struct timeval v;
  WANT(clock_gettime(CLOCK_MONOTONIC, &t) == 0 && t.tv_sec + t.tv_nsec > 0);
  WANT(gettimeofday(&v, 0) == 0);
  WANT(time(0) >= v.tv_sec);
  WANT(sched_yield() == 0);
  t.tv_sec = 0, t.tv_nsec = 20000000;
  WANT(nanosleep(&t, 0) == 0);
  t.tv_nsec = -1;
  WANT(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0) == 22);
  WANT(sleep(0) == 0);
  WANT(pipe(p) == 0);
  struct iovec parts[2] = {{b, 3}, {b + 3, 4}};
  WANT(writev(p[1], parts, 2) == 7);
  WANT(readv(p[0], parts, 1) == 3);
  WANT(read(p[0], b, 64) == 4);
  struct pollfd set[3] = {{p[0], POLLIN, 0}, {p[0], POLLIN, 0}, {p[1], 0, 0}};
  WANT(poll(set, 3, 0) == 0);
  // Six arguments behind the number: the last is on the stack.
  WANT(syscall(SYS_copy_file_range, fd, 0, p[1], 0, 8, 77) == -1);
  WANT(syscall(SYS_getppid) == getppid());
  WANT(getpid() > 0);
  WANT(close(99) == -1);
  return 0;
}
"#;

const SELECTS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>
#define WANT(what) do { if (!(what)) { _exit(__LINE__ % 250 + 1); } } while (0)
int main(void) {
  int p[2], epoll = epoll_create1(0);
  struct timeval none = {0, 0};
  struct epoll_event event = {.events = EPOLLIN};
  WANT(pipe(p) == 0 && p[0] == epoll + 1 && p[1] == epoll + 2 && write(p[1], "a", 1) == 1);
  fd_set *set = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WANT(munmap((char *)set + 4096, 4096) == 0);
  set = (fd_set *)((char *)set + 4096 - 8);
  // Of one, two, one that is ready for two, and one of two, because of the other beyond the end.
  *(long *)set = 1L << p[0];
  WANT(select(64, set, 0, 0, &none) == 1);
  *(long *)set = 1L << p[0] | 1L << p[1];
  WANT(select(p[1] + 1, set, 0, 0, &none) == 1);
  long all = 1L << p[1];
  *(long *)set = 1L << p[0];
  WANT(select(p[1] + 1, set, (fd_set *)&all, 0, &none) == 2);
  *(long *)set = 1L << p[0] | 1L << p[1];
  WANT(select(p[0] + 1, set, 0, 0, &none) == 1);
  // None, and what is refused.
  WANT(select(0, 0, 0, 0, &none) == 0);
  WANT(select(64, (fd_set *)8, 0, 0, &none) == -1 && errno == EFAULT);
  WANT(select(128, 0, set, 0, &none) == -1 && errno == EFAULT);
  WANT(select(-1, set, 0, 0, &none) == -1 && errno == EINVAL);
  WANT(epoll_ctl(epoll, EPOLL_CTL_ADD, p[0], &event) == 0);
  WANT(epoll_ctl(epoll, EPOLL_CTL_DEL, p[1], 0) == -1);
  return 0;
}
"#;

#[test]
fn what_a_select_waits_for_and_an_epoll_watches_is_recorded() {
    let bench = Bench::new();
    let program = bench.build("selects.c", SELECTS, &[]);
    let by_kernel = bench.run_with(&program, &[], |command| {
        command.env("LD_PRELOAD", recorder());
        command.env("LARDER_RECORD_KERNEL", "1");
    });
    for run in [run(&bench, &program), by_kernel] {
        let trace = run.succeeded().only().assert_whole();
        let calls = trace.calls.iter().map(|call| call.event.action);
        let (mut selects, mut changes, mut read_end) = (Vec::new(), Vec::new(), -1);
        for action in calls {
            match action {
                Action::SystemCall {
                    call: SystemCall::Pipe,
                    descriptor,
                    ..
                } => read_end = descriptor,
                Action::SystemCall {
                    call: SystemCall::Select | SystemCall::Pselect,
                    descriptor,
                    ..
                } => selects.push(descriptor),
                Action::SystemCall {
                    call: SystemCall::EpollCtl,
                    limit,
                    ..
                } => changes.push(limit),
                _ => {}
            }
        }
        assert_eq!(selects, [read_end, -1, -1, read_end, -1, -1, -1, -1]);
        let add = (libc::EPOLL_CTL_ADD as u64) << 32 | read_end as u64;
        assert_eq!(changes, [add, 0]);
    }
}

/// Each call with its result, limit and descriptor; and how long nanosleep took.
fn limited(trace: &Recorded) -> (Vec<(SystemCall, i64, u64, i32)>, f64) {
    use SystemCall::*;
    let (mut found, mut slept_ns) = (Vec::new(), 0.0);
    for recording in &trace.calls {
        let Action::SystemCall {
            call,
            result,
            ticks,
            limit,
            descriptor,
            ..
        } = recording.event.action
        else {
            continue;
        };
        if call == Nanosleep {
            slept_ns = ticks as f64 * trace.ns_per_tick;
        }
        // Addresses and times differ from run to run.
        let result = match call {
            Mmap | Mremap | Time | Getpid if result > 0 => 1,
            Syscall => result.min(1),
            _ => result,
        };
        let limit = match call {
            Open | Openat | Stat | Lstat | Fstatat | Statx | Access => limit.min(1),
            _ => limit,
        };
        found.push((call, result, limit, descriptor));
    }
    (found, slept_ns)
}

#[test]
fn files_memory_and_time_are_recorded_with_limits_and_descriptors() {
    use SystemCall::*;
    let bench = Bench::new();
    let program = bench.build("others.c", OTHERS, &["-O0"]);
    let run = run(&bench, &program);
    let trace = run.succeeded().only().assert_whole();
    let (found, slept_ns) = limited(trace);
    let fd = found[0].1 as i32;
    let long = i64::from(fd);
    let expected = [
        (Open, long, 1, fd),
        (Openat, long + 1, 1, fd + 1),
        (Close, 0, 0, fd + 1),
        (Stat, 0, 1, -1),
        (Lstat, 0, 1, -1),
        (Fstat, 0, 0, -1),
        (Fstatat, 0, 1, -1),
        (Statx, 0, 1, -1),
        (Access, -2, 1, -1),
        (Readlink, 1, 1, -1),
        (Lseek, 5_000_000_000, 0, fd),
        (Fcntl, 0, 0, fd),
        (Mmap, 1, 8192, -1),
        (Mprotect, 0, 8192, -1),
        (Madvise, 0, 4096, -1),
        (Mremap, 1, 16384, -1),
        (Munmap, 0, 16384, -1),
        (Mmap, -22, 0, -1),
        (ClockGettime, 0, 0, -1),
        (Gettimeofday, 0, 0, -1),
        (Time, 1, 0, -1),
        (SchedYield, 0, 0, -1),
        (Nanosleep, 0, 0, -1),
        (ClockNanosleep, -22, 0, -1),
        (Sleep, 0, 0, -1),
        (Pipe, 0, fd as u64 + 2, fd + 1),
        (Writev, 7, 7, fd + 2),
        (Readv, 3, 3, fd + 1),
        (Read, 4, 64, fd + 1),
        (Poll, 0, 3, -1),
        (Syscall, -22, 326, -1),
        (Syscall, 1, 110, -1),
        (Getpid, 1, 0, -1),
        (Close, -9, 0, 99),
    ];
    assert_eq!(found, expected);
    assert!((20e6..2e9).contains(&slept_ns), "{slept_ns} ns");
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

/// What asks for the time asks the recorder for the time.
#[test]
fn the_time_can_be_asked_before_the_recorder_has_begun() {
    const EARLY: &str = r#"
#include <time.h>
__attribute__((constructor)) static void early(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
}
"#;
    let bench = Bench::new();
    let early = bench.build("early.c", EARLY, &["-shared", "-fPIC"]);
    let program = bench.build("main.c", "int main(void) { return 0; }", &[]);
    let list = [recorder(), io_library(), early].map(|path| path.display().to_string());
    let run = bench.run_with(&program, &[], |command| {
        command.env("LD_PRELOAD", list.join(":"));
    });
    run.succeeded().only().assert_whole();
}

const CANCELLED: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
static int p[2], cleaned;
static volatile long waits;
// How often a thread has had to wait.
static long switches() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nvcsw : -1;
}
struct Cleaner { char *block = static_cast<char *>(malloc(123)); ~Cleaner() { free(block); cleaned++; } };
static void *wait_for_ever(void *) {
  Cleaner cleaner;
  char b[8];
  waits = switches() + 1;
  return read(p[0], b, sizeof b) ? p : nullptr;
}
int main() {
  if (pipe(p)) return 1;
  for (int i = 0; i < 20; i++) {
    pthread_t t;
    void *end;
    waits = 0;
    pthread_create(&t, nullptr, wait_for_ever, nullptr);
    // Every other one may not have begun yet.
    while (i % 2 && (!waits || switches() < waits)) sched_yield();
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
        (SystemCall::Read, -eintr),
        (SystemCall::Write, 4),
        (SystemCall::Read, 4),
    ];
    assert_eq!(io(trace), expected);
    let in_handler = trace.calls.iter().filter(|call| {
        let made = matches!(call.event.action, Action::Alloc { size: 55, .. });
        made && call.complete && call.frames.iter().any(|f| f.0 == "liblarder_record_io.so")
    });
    assert_eq!(in_handler.count(), 2, "stacks lead through the wrapper");
}
