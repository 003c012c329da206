//! Wraps libc's functions that make system calls, for the recorder. Only `larder record --syscalls`
//! preloads this library, so that without the option calls such as `read` are not redirected.
//!
//! A wrapper notes the time, calls the function below with its own arguments, and then reports both with the
//! result to `liblarder_record.so`. It holds nothing during the call: a signal handler may run or jump away, and a
//! cancelled thread may be unwound, because each wrapper has unwind information.
//!
//! Thread safety: a function below is looked up once and stored in an atomic word. Invariants: `errno` is
//! that of the call; without the recorder in the process the wrappers only forward.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_trace::SystemCall;
use larder_wrap::{anywhere, missing, next};

use arch::wrapper;

/// The time, what is to be known before a select, and the record of a call that has returned.
type Now = extern "C" fn() -> u64;
type SelectBegins = extern "C" fn(called: usize);
type Record = extern "C" fn(call: u32, result: isize, called: usize);

/// The function below each wrapper, by its number; 0 while it is not known.
static BELOW: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
static NOW: AtomicUsize = AtomicUsize::new(0);
static SELECT_BEGINS: AtomicUsize = AtomicUsize::new(0);
static RECORD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn no_time() -> u64 {
    0
}

extern "C" fn look_at_nothing(_: usize) {}

extern "C" fn record_nothing(_: u32, _: isize, _: usize) {}

/// Makes sure that the function below a wrapper is known, and returns the time.
extern "C" fn begin(number: usize, call: u32, called: usize) -> u64 {
    let below = BELOW.get(number);
    if below.is_none_or(|below| below.load(Ordering::Relaxed) == 0) {
        look_up(number);
    }
    if matches!(
        SystemCall::from_code(call as u8),
        Some(SystemCall::Select | SystemCall::Pselect)
    ) {
        // SAFETY: as below.
        let select_begins: SelectBegins =
            unsafe { std::mem::transmute(SELECT_BEGINS.load(Ordering::Acquire)) };
        select_begins(called);
    }
    // SAFETY: the word holds a function of this type from the first look-up on.
    let now: Now = unsafe { std::mem::transmute(NOW.load(Ordering::Acquire)) };
    now()
}

#[cold]
fn look_up(number: usize) -> usize {
    if RECORD.load(Ordering::Relaxed) == 0 {
        let or = |found: usize, nothing: usize| if found == 0 { nothing } else { found };
        let now = or(anywhere(c"larder_record_now"), no_time as Now as usize);
        NOW.store(now, Ordering::Release);
        let select_begins = or(
            anywhere(c"larder_record_select_begins"),
            look_at_nothing as SelectBegins as usize,
        );
        SELECT_BEGINS.store(select_begins, Ordering::Release);
        let record = anywhere(c"larder_record_system_call");
        RECORD.store(
            or(record, record_nothing as Record as usize),
            Ordering::Release,
        );
    }
    let name = NAMES.get(number).copied().unwrap_or(c"");
    let found = match next(name) {
        0 => missing as *const () as usize,
        found => found,
    };
    if let Some(place) = BELOW.get(number) {
        place.store(found, Ordering::Release);
    }
    found
}

fn look_all_up() {
    for number in 0..NAMES.len() {
        look_up(number);
    }
}

// Before the program starts, because `dlsym` is not async-signal-safe.
larder_wrap::constructor!(look_all_up);

macro_rules! wrappers {
    ($($number:literal $name:literal $symbol:literal $call:ident $(after $skipped:literal)?;)*) => {
        $(wrapper!($number, $name, $call, 0 $(+ $skipped)?);)*
        const NAMES: &[&CStr] = &[$($symbol),*];
    };
}

// The names that glibc exports for each: those for large files, those that check the buffer's size, and
// its own with two underscores. Some have an argument before those of the function that they are recorded as.
wrappers! {
    0 "read" c"read" Read;
    1 "__read" c"__read" Read;
    2 "__read_chk" c"__read_chk" Read;
    3 "write" c"write" Write;
    4 "__write" c"__write" Write;
    5 "readv" c"readv" Readv;
    6 "writev" c"writev" Writev;
    7 "pread" c"pread" Pread;
    8 "pread64" c"pread64" Pread;
    9 "__pread64" c"__pread64" Pread;
    10 "__pread_chk" c"__pread_chk" Pread;
    11 "__pread64_chk" c"__pread64_chk" Pread;
    12 "pwrite" c"pwrite" Pwrite;
    13 "pwrite64" c"pwrite64" Pwrite;
    14 "__pwrite64" c"__pwrite64" Pwrite;
    15 "preadv" c"preadv" Preadv;
    16 "preadv64" c"preadv64" Preadv;
    17 "preadv2" c"preadv2" Preadv;
    18 "preadv64v2" c"preadv64v2" Preadv;
    19 "pwritev" c"pwritev" Pwritev;
    20 "pwritev64" c"pwritev64" Pwritev;
    21 "pwritev2" c"pwritev2" Pwritev;
    22 "pwritev64v2" c"pwritev64v2" Pwritev;
    23 "send" c"send" Send;
    24 "__send" c"__send" Send;
    25 "sendto" c"sendto" Sendto;
    26 "sendmsg" c"sendmsg" Sendmsg;
    27 "sendmmsg" c"sendmmsg" Sendmmsg;
    28 "recv" c"recv" Recv;
    29 "__recv_chk" c"__recv_chk" Recv;
    30 "recvfrom" c"recvfrom" Recvfrom;
    31 "__recvfrom_chk" c"__recvfrom_chk" Recvfrom;
    32 "recvmsg" c"recvmsg" Recvmsg;
    33 "recvmmsg" c"recvmmsg" Recvmmsg;
    34 "poll" c"poll" Poll;
    35 "__poll" c"__poll" Poll;
    36 "__poll_chk" c"__poll_chk" Poll;
    37 "ppoll" c"ppoll" Ppoll;
    38 "__ppoll_chk" c"__ppoll_chk" Ppoll;
    39 "select" c"select" Select;
    40 "__select" c"__select" Select;
    41 "pselect" c"pselect" Pselect;
    42 "epoll_wait" c"epoll_wait" EpollWait;
    43 "epoll_pwait" c"epoll_pwait" EpollPwait;
    44 "epoll_pwait2" c"epoll_pwait2" EpollPwait;
    45 "ioctl" c"ioctl" Ioctl;
    46 "sendfile" c"sendfile" Sendfile;
    47 "sendfile64" c"sendfile64" Sendfile;
    48 "splice" c"splice" Splice;
    49 "copy_file_range" c"copy_file_range" CopyFileRange;
    50 "open" c"open" Open;
    51 "open64" c"open64" Open;
    52 "__open" c"__open" Open;
    53 "__open64" c"__open64" Open;
    54 "__open_2" c"__open_2" Open;
    55 "__open64_2" c"__open64_2" Open;
    56 "creat" c"creat" Open;
    57 "creat64" c"creat64" Open;
    58 "openat" c"openat" Openat;
    59 "openat64" c"openat64" Openat;
    60 "__openat_2" c"__openat_2" Openat;
    61 "__openat64_2" c"__openat64_2" Openat;
    62 "close" c"close" Close;
    63 "__close" c"__close" Close;
    64 "stat" c"stat" Stat;
    65 "stat64" c"stat64" Stat;
    66 "__xstat" c"__xstat" Stat after 1;
    67 "__xstat64" c"__xstat64" Stat after 1;
    68 "lstat" c"lstat" Lstat;
    69 "lstat64" c"lstat64" Lstat;
    70 "__lxstat" c"__lxstat" Lstat after 1;
    71 "__lxstat64" c"__lxstat64" Lstat after 1;
    72 "fstat" c"fstat" Fstat;
    73 "fstat64" c"fstat64" Fstat;
    74 "__fxstat" c"__fxstat" Fstat;
    75 "__fxstat64" c"__fxstat64" Fstat;
    76 "fstatat" c"fstatat" Fstatat;
    77 "fstatat64" c"fstatat64" Fstatat;
    78 "__fxstatat" c"__fxstatat" Fstatat after 1;
    79 "__fxstatat64" c"__fxstatat64" Fstatat after 1;
    80 "statx" c"statx" Statx;
    81 "access" c"access" Access;
    82 "faccessat" c"faccessat" Access after 1;
    83 "readlink" c"readlink" Readlink;
    84 "__readlink_chk" c"__readlink_chk" Readlink;
    85 "lseek" c"lseek" Lseek;
    86 "lseek64" c"lseek64" Lseek;
    87 "__lseek" c"__lseek" Lseek;
    88 "fcntl" c"fcntl" Fcntl;
    89 "fcntl64" c"fcntl64" Fcntl;
    90 "__fcntl" c"__fcntl" Fcntl;
    91 "fsync" c"fsync" Fsync;
    92 "fdatasync" c"fdatasync" Fdatasync;
    93 "mmap" c"mmap" Mmap;
    94 "mmap64" c"mmap64" Mmap;
    95 "munmap" c"munmap" Munmap;
    96 "mremap" c"mremap" Mremap;
    97 "mprotect" c"mprotect" Mprotect;
    98 "madvise" c"madvise" Madvise;
    99 "clock_gettime" c"clock_gettime" ClockGettime;
    100 "__clock_gettime" c"__clock_gettime" ClockGettime;
    101 "gettimeofday" c"gettimeofday" Gettimeofday;
    102 "__gettimeofday" c"__gettimeofday" Gettimeofday;
    103 "time" c"time" Time;
    104 "sched_yield" c"sched_yield" SchedYield;
    105 "__sched_yield" c"__sched_yield" SchedYield;
    106 "nanosleep" c"nanosleep" Nanosleep;
    107 "__nanosleep" c"__nanosleep" Nanosleep;
    108 "clock_nanosleep" c"clock_nanosleep" ClockNanosleep;
    109 "usleep" c"usleep" Usleep;
    110 "sleep" c"sleep" Sleep;
    111 "syscall" c"syscall" Syscall;
    112 "accept" c"accept" Accept;
    113 "accept4" c"accept4" Accept;
    114 "epoll_ctl" c"epoll_ctl" EpollCtl;
    115 "getpid" c"getpid" Getpid;
    116 "__getpid" c"__getpid" Getpid;
    117 "pipe" c"pipe" Pipe;
    118 "pipe2" c"pipe2" Pipe;
    119 "socketpair" c"socketpair" Socketpair;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_below_or_missing_with_errno_kept() {
        for number in 0..NAMES.len() {
            // SAFETY: the thread's own variable.
            unsafe { *libc::__errno_location() = 77 };
            assert_ne!(look_up(number), 0);
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, 77);
        }
        assert_eq!(look_up(NAMES.len()), missing as *const () as usize);
    }
}
