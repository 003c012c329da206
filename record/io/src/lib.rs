//! Wraps libc's system calls that move data or wait, for the recorder. Only `larder record --syscalls`
//! preloads this library, so that without the option calls such as `read` are not redirected.
//!
//! A wrapper calls the function below with its own arguments, and then reports the result to
//! `liblarder_record.so`. It holds nothing during the call: a signal handler may run or jump away, and a
//! cancelled thread may be unwound, because each wrapper has unwind information.
//!
//! Thread safety: a function below is looked up once and stored in an atomic word. Invariants: `errno` is
//! that of the call; without the recorder in the process the wrappers only forward.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the wrappers know x86-64 only");

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_trace::IoCall;

type Record = extern "C" fn(call: u32, result: isize, sp: usize, bp: usize);

/// The function below each wrapper, by its number; 0 while it is not known.
static BELOW: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
/// A `Record`; initially one that does nothing.
static RECORD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn record_nothing(_: u32, _: isize, _: usize, _: usize) {}

/// Replaces a function that this libc does not have.
extern "C" fn missing() -> isize {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

fn find(handle: *mut libc::c_void, name: &CStr) -> Option<usize> {
    // SAFETY: the name is a C string. The message of a failed look-up must not stay for the program's dlerror().
    unsafe {
        let found = libc::dlsym(handle, name.as_ptr()) as usize;
        if found == 0 {
            libc::dlerror();
        }
        (found != 0).then_some(found)
    }
}

/// The function below a wrapper; called until it is known.
#[cold]
extern "C" fn look_up(number: usize) -> usize {
    // SAFETY: the thread's own variable, here and below.
    let errno = unsafe { *libc::__errno_location() };
    if RECORD.load(Ordering::Relaxed) == 0 {
        let found = find(libc::RTLD_DEFAULT, c"larder_record_io");
        let record = found.unwrap_or(record_nothing as Record as usize);
        RECORD.store(record, Ordering::Release);
    }
    let name = NAMES.get(number).copied().unwrap_or(c"");
    let found = find(libc::RTLD_NEXT, name).unwrap_or(missing as *const () as usize);
    if let Some(place) = BELOW.get(number) {
        place.store(found, Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    found
}

/// Looks all up before the program starts, because `dlsym` is not async-signal-safe.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        for number in 0..NAMES.len() {
            look_up(number);
        }
    }
    constructor
};

/// An exported function. All six argument registers, and `al` of variadic calls, reach the function below
/// unchanged. The recorder gets the caller's stack pointer at the return address, and its frame pointer.
macro_rules! wrapper {
    ($number:expr, $name:literal, $call:ident) => {
        const _: () = {
            #[cfg_attr(not(test), unsafe(export_name = $name))]
            #[unsafe(naked)]
            unsafe extern "C" fn wrapper() {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "push rbp",
                    ".cfi_def_cfa_offset 16",
                    ".cfi_offset rbp, -16",
                    "mov rbp, rsp",
                    ".cfi_def_cfa_register rbp",
                    "mov r11, qword ptr [rip + {below} + {place}]",
                    "test r11, r11",
                    "jne 2f",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "push rax",
                    "mov edi, {number}",
                    "call {look_up}",
                    "mov r11, rax",
                    "pop rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "2:",
                    "call r11",
                    "push rax",
                    "push rax",
                    "mov edi, {call}",
                    "mov rsi, rax",
                    "lea rdx, [rbp + 8]",
                    "mov rcx, qword ptr [rbp]",
                    "call qword ptr [rip + {record}]",
                    "pop rax",
                    "pop rax",
                    "pop rbp",
                    ".cfi_def_cfa rsp, 8",
                    "ret",
                    ".cfi_endproc",
                    below = sym BELOW,
                    place = const $number * 8,
                    number = const $number,
                    look_up = sym look_up,
                    call = const IoCall::$call as u32,
                    record = sym RECORD,
                )
            }
            #[cfg(test)]
            #[used]
            static WRAPPER: unsafe extern "C" fn() = wrapper;
        };
    };
}

macro_rules! wrappers {
    ($($number:literal $name:literal $symbol:literal $call:ident;)*) => {
        $(wrapper!($number, $name, $call);)*
        const NAMES: &[&CStr] = &[$($symbol),*];
    };
}

// The names that glibc exports for each: those for large files, those that check the buffer's size, and
// its own with two underscores.
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
