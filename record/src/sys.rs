//! The recorder's system calls, without libc: no `errno`, no cancellation point, and no function that
//! another preloaded library could replace.
//!
//! Every call returns `Err(Errno)` with the kernel's number on failure. Thread safety: the kernel's.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

type Result<T> = std::result::Result<T, Errno>;

#[inline]
unsafe fn syscall(number: i64, a: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { arch::system_call(number, a) };
    if (-4095..0).contains(&result) {
        Err(Errno(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// Whether our memory is to be marked as not the program's.
static MARKED: AtomicBool = AtomicBool::new(false);

/// Gives anonymous memory a combination of advice that no program uses (`dd` and `rr` in
/// /proc/PID/smaps) from now on, so that the leak check does not take it for the program's.
pub fn mark_memory() {
    MARKED.store(true, Ordering::Relaxed);
}

/// Anonymous memory, zeroed.
pub fn map_anonymous(bytes: usize) -> Result<*mut u8> {
    let address = map_private(bytes)?;
    if MARKED.load(Ordering::Relaxed) {
        for advice in [libc::MADV_DONTDUMP, libc::MADV_RANDOM] {
            let arguments = [address as usize, bytes, advice as usize, 0, 0, 0];
            // SAFETY: mapped just now; neither changes what is in it.
            let _ = unsafe { syscall(libc::SYS_madvise, arguments) };
        }
    }
    Ok(address)
}

fn map_private(bytes: usize) -> Result<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new mapping at a place of the kernel's choice.
    unsafe { syscall(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) }
        .map(|address| address as *mut u8)
}

/// A part of a file, shared with it.
pub fn map_shared(fd: i32, offset: u64, bytes: usize) -> Result<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_SHARED as usize;
    // SAFETY: a new mapping at a place of the kernel's choice.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [0, bytes, protection, flags, fd as usize, offset as usize],
        )
    }
    .map(|address| address as *mut u8)
}

/// # Safety
/// The range must be the caller's own.
pub unsafe fn unmap(address: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise. A refusal leaves the memory mapped, which is harmless.
    let _ = unsafe { syscall(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]) };
}

/// # Safety
/// The range must be the caller's own, and no pointer into it may be used afterwards.
pub unsafe fn remap(address: *mut u8, old: usize, new: usize) -> Result<*mut u8> {
    let flags = libc::MREMAP_MAYMOVE as usize;
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_mremap, [address as usize, old, new, flags, 0, 0]) }
        .map(|address| address as *mut u8)
}

/// Whether whole pages, which can be read, can be written, too.
///
/// # Safety
/// What lies there must not rely on it.
pub unsafe fn protect(pages: std::ops::Range<usize>, writable: bool) -> Result<()> {
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    let arguments = [pages.start, pages.len(), protection as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_mprotect, arguments) }.map(|_| ())
}

/// The pages of the range read as zero in a child of fork.
///
/// # Safety
/// The range must be the caller's own, private and anonymous.
pub unsafe fn wipe_on_fork(address: *mut u8, bytes: usize) -> Result<()> {
    let advice = libc::MADV_WIPEONFORK as usize;
    // SAFETY: the caller's promise.
    unsafe {
        syscall(
            libc::SYS_madvise,
            [address as usize, bytes, advice, 0, 0, 0],
        )
    }
    .map(|_| ())
}

pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    let at = libc::AT_FDCWD as isize as usize;
    let arguments = [
        at,
        path.as_ptr() as usize,
        flags as usize,
        mode as usize,
        0,
        0,
    ];
    // SAFETY: the path ends with a NUL.
    unsafe { syscall(libc::SYS_openat, arguments) }.map(|fd| fd as i32)
}

pub fn close(fd: i32) {
    // SAFETY: the caller owns the descriptor; its number is free again even on an error.
    let _ = unsafe { syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// A copy of the descriptor numbered `lowest` or higher, closed on exec.
pub fn duplicate_above(fd: i32, lowest: i32) -> Result<i32> {
    let arguments = [
        fd as usize,
        libc::F_DUPFD_CLOEXEC as usize,
        lowest as usize,
        0,
        0,
        0,
    ];
    // SAFETY: no memory is touched.
    unsafe { syscall(libc::SYS_fcntl, arguments) }.map(|fd| fd as i32)
}

/// Device and inode.
pub fn identity(fd: i32) -> Result<(u64, u64)> {
    // SAFETY: an all-zero stat is a valid value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [fd as usize, &raw mut stat as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills the struct.
    unsafe { syscall(libc::SYS_fstat, arguments) }.map(|_| (stat.st_dev, stat.st_ino))
}

/// The kernel's number for the kind of file system.
pub fn file_system(fd: i32) -> Result<i64> {
    // SAFETY: an all-zero statfs is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    let arguments = [fd as usize, &raw mut stat as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills the struct.
    unsafe { syscall(libc::SYS_fstatfs, arguments) }.map(|_| stat.f_type as i64)
}

/// The main thread's stack pointer at the program's entry, where libc does not say it.
#[cfg(target_env = "musl")]
pub fn first_stack_pointer() -> Option<usize> {
    /// Of proc(5), after the second, which may contain anything.
    const START_STACK: usize = 28 - 2;
    let mut text = [0; 1024];
    let fd = open(c"/proc/self/stat", libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let bytes = read(fd, &mut text);
    close(fd);
    let rest = text
        .get(..bytes.ok()?)?
        .rsplit(|byte| *byte == b')')
        .next()?;
    let field = rest.split(|byte| *byte == b' ').nth(START_STACK)?;
    str::from_utf8(field).ok()?.parse().ok()
}

pub fn read(fd: i32, out: &mut [u8]) -> Result<usize> {
    let arguments = [fd as usize, out.as_mut_ptr() as usize, out.len(), 0, 0, 0];
    // SAFETY: the kernel writes up to `out.len()` bytes.
    unsafe { syscall(libc::SYS_read, arguments) }
}

pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    let arguments = [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: the kernel only reads.
    unsafe { syscall(libc::SYS_write, arguments) }
}

pub fn write_at(fd: i32, bytes: &[u8], offset: u64) -> Result<usize> {
    let arguments = [
        fd as usize,
        bytes.as_ptr() as usize,
        bytes.len(),
        offset as usize,
        0,
        0,
    ];
    // SAFETY: the kernel only reads.
    unsafe { syscall(libc::SYS_pwrite64, arguments) }
}

/// Reserves blocks, so that writing there cannot run out of space.
pub fn allocate(fd: i32, offset: u64, bytes: u64) -> Result<()> {
    let arguments = [fd as usize, 0, offset as usize, bytes as usize, 0, 0];
    // SAFETY: no memory is touched.
    unsafe { syscall(libc::SYS_fallocate, arguments) }.map(|_| ())
}

/// Punches a hole, if the file system can: the part then reads as zeros.
pub fn deallocate(fd: i32, offset: u64, bytes: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let arguments = [
        fd as usize,
        mode as usize,
        offset as usize,
        bytes as usize,
        0,
        0,
    ];
    // SAFETY: no memory is touched.
    let _ = unsafe { syscall(libc::SYS_fallocate, arguments) };
}

/// A connection to the abstract socket of that name, closed on exec.
pub fn connect(name: &[u8]) -> Result<i32> {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let Some(places) = address.sun_path.get_mut(1..=name.len()) else {
        return Err(Errno(libc::ENAMETOOLONG));
    };
    for (place, byte) in places.iter_mut().zip(name) {
        *place = *byte as libc::c_char;
    }
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
    let arguments = [libc::AF_UNIX as usize, kind, 0, 0, 0, 0];
    // SAFETY: no memory is touched.
    let fd = unsafe { syscall(libc::SYS_socket, arguments) }? as i32;
    let bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let arguments = [fd as usize, &raw const address as usize, bytes, 0, 0, 0];
    // SAFETY: the kernel reads the address.
    match unsafe { syscall(libc::SYS_connect, arguments) } {
        Ok(_) => Ok(fd),
        Err(errno) => {
            close(fd);
            Err(errno)
        }
    }
}

/// The process at the other end.
pub fn peer(fd: i32) -> Result<libc::ucred> {
    // SAFETY: all-zero is a valid value.
    let mut found: libc::ucred = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let arguments = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_PEERCRED as usize,
        &raw mut found as usize,
        &raw mut bytes as usize,
        0,
    ];
    // SAFETY: the kernel writes up to `bytes` there.
    unsafe { syscall(libc::SYS_getsockopt, arguments) }.map(|_| found)
}

pub fn user_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_geteuid, [0; 6]) }.unwrap_or(0) as u32
}

/// Allows that process to trace this one, if the system only allows ancestors to.
pub fn allow_tracing_by(process: i32) {
    let arguments = [libc::PR_SET_PTRACER as usize, process as usize, 0, 0, 0, 0];
    // SAFETY: no memory is touched.
    let _ = unsafe { syscall(libc::SYS_prctl, arguments) };
}

/// Sends all of it. A reader that has closed the connection is an error, and raises no signal.
pub fn send(fd: i32, bytes: &[u8]) -> Result<()> {
    let (at, flags) = (bytes.as_ptr() as usize, libc::MSG_NOSIGNAL as usize);
    loop {
        let arguments = [fd as usize, at, bytes.len(), flags, 0, 0];
        // SAFETY: the kernel reads the bytes.
        match unsafe { syscall(libc::SYS_sendto, arguments) } {
            Err(Errno(libc::EINTR)) => {}
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(_) => return Err(Errno(libc::EPIPE)),
            Err(errno) => return Err(errno),
        }
    }
}

pub fn unlink(path: &CStr) {
    let (at, path) = (libc::AT_FDCWD as isize as usize, path.as_ptr() as usize);
    // SAFETY: the path ends with a NUL.
    let _ = unsafe { syscall(libc::SYS_unlinkat, [at, path, 0, 0, 0, 0]) };
}

pub fn readlink(path: &CStr, out: &mut [u8]) -> Result<usize> {
    let (at, path) = (libc::AT_FDCWD as isize as usize, path.as_ptr() as usize);
    let arguments = [at, path, out.as_mut_ptr() as usize, out.len(), 0, 0];
    // SAFETY: the kernel writes up to `out.len()` bytes.
    unsafe { syscall(libc::SYS_readlinkat, arguments) }
}

/// Writes the working directory with its NUL; returns the length without it.
pub fn working_directory(out: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes up to `out.len()` bytes.
    unsafe {
        syscall(
            libc::SYS_getcwd,
            [out.as_mut_ptr() as usize, out.len(), 0, 0, 0, 0],
        )
    }
    .map(|bytes| bytes.saturating_sub(1))
}

pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

pub fn parent_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getppid, [0; 6]) }.unwrap_or(0) as u32
}

pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Whether this thread of the process has ended.
pub fn thread_is_gone(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 is not delivered, only checked.
    let answer = unsafe {
        syscall(
            libc::SYS_tgkill,
            [process as usize, thread as usize, 0, 0, 0, 0],
        )
    };
    answer == Err(Errno(libc::ESRCH))
}

pub fn yield_processor() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// Nanoseconds of a clock.
pub fn clock_ns(clock: i32) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: libc's function goes through the vdso, which is what makes it cheap; it leaves errno
    // alone for a clock that exists.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's tick: what its coarse clocks are updated by.
pub fn tick_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: like `clock_ns`.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_nsec as u64
}

/// Whether the eight bytes at an address can be read: the kernel copies the signal set before it checks
/// `how`, which is invalid here.
pub fn readable(address: u64) -> bool {
    let how = usize::MAX;
    let arguments = [how, address as usize, 0, 8, 0, 0];
    // SAFETY: the kernel reads the address and reports a fault as an error; the mask stays.
    let answer = unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
    answer == Err(Errno(libc::EINVAL))
}

/// Copies memory of this process that need not be readable, or stay mapped. Returns whether all could be read.
pub fn read_memory(address: usize, into: &mut [u8]) -> bool {
    let (own, bytes) = (into.as_mut_ptr() as usize, into.len());
    let [to, from] = [own, address].map(|start| libc::iovec {
        iov_base: start as *mut libc::c_void,
        iov_len: bytes,
    });
    let ends = [&raw const to as usize, &raw const from as usize];
    let arguments = [process_id() as usize, ends[0], 1, ends[1], 1, 0];
    // SAFETY: the kernel writes to `into`, and reports a fault elsewhere as an error.
    let read = unsafe { syscall(libc::SYS_process_vm_readv, arguments) };
    read == Ok(bytes)
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: u64,
}

/// Reads a signal's action, or sets it.
///
/// # Safety
/// A new action must be one that the process had before, or have a handler and a restorer that stay.
pub unsafe fn signal_action(signal: i32, new: Option<&KernelAction>) -> Result<KernelAction> {
    let mut old = KernelAction::default();
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as usize);
    let arguments = [signal as usize, new, &raw mut old as usize, 8, 0, 0];
    // SAFETY: both structs have the kernel's layout; the rest is the caller's.
    unsafe { syscall(libc::SYS_rt_sigaction, arguments) }.map(|_| old)
}

/// But SIGSYS, which comes from a call itself: the kernel ends a program that blocks it.
pub static ALL_SIGNALS: u64 = !(1 << (libc::SIGSYS - 1));

/// The kernel's flag for an action that has a restorer.
pub const RESTORER: i32 = 0x0400_0000;

/// Handles a signal with all others blocked, on the thread's alternate stack if it has one.
pub fn handle_signal(
    signal: i32,
    handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut std::ffi::c_void),
    restorer: extern "C" fn(),
) -> Result<()> {
    let flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK | RESTORER;
    let action = KernelAction {
        handler: handler as *const () as usize,
        flags: flags as usize,
        restorer: restorer as *const () as usize,
        mask: ALL_SIGNALS,
    };
    // SAFETY: the handler and the restorer have the kernel's types, and stay.
    unsafe { signal_action(signal, Some(&action)) }.map(|_| ())
}

/// Adds a signal to the thread's mask.
pub fn block(signal: i32) {
    change_mask(libc::SIG_BLOCK, 1 << (signal - 1));
}

/// Removes a signal from the thread's mask.
pub fn unblock(signal: i32) {
    change_mask(libc::SIG_UNBLOCK, 1 << (signal - 1));
}

/// Changes the thread's mask. Returns the one before.
fn change_mask(how: i32, set: u64) -> u64 {
    let mut old = 0u64;
    let (set, place) = (&raw const set as usize, &raw mut old as usize);
    // SAFETY: both masks are eight bytes.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [how as usize, set, place, 8, 0, 0],
        )
    };
    old
}

/// Blocks all signals in this thread until it is dropped.
pub struct SignalsHeld {
    old_mask: u64,
}

impl SignalsHeld {
    pub fn new() -> Self {
        SignalsHeld {
            old_mask: change_mask(libc::SIG_BLOCK, ALL_SIGNALS),
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.old_mask);
    }
}

/// Whether the thread runs on its alternate stack.
pub fn is_on_alternate_stack() -> bool {
    // SAFETY: all-zero is a valid value.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    let arguments = [0, &raw mut stack as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills the struct.
    let _ = unsafe { syscall(libc::SYS_sigaltstack, arguments) };
    stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Has the kernel send SIGSYS instead of each system call of this thread that is made outside of the
/// instructions, if the byte says so.
pub fn dispatch_calls(instructions: std::ops::Range<usize>, selector: *const u8) -> Result<()> {
    const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
    const ON: usize = 1;
    let arguments = [
        PR_SET_SYSCALL_USER_DISPATCH,
        ON,
        instructions.start,
        instructions.len(),
        selector as usize,
        0,
    ];
    // SAFETY: the kernel only reads the byte.
    unsafe { syscall(libc::SYS_prctl, arguments) }.map(|_| ())
}

/// Sends a signal to the calling thread.
pub fn raise(signal: i32) {
    let arguments = [
        process_id() as usize,
        thread_id() as usize,
        signal as usize,
        0,
        0,
        0,
    ];
    // SAFETY: no memory is touched.
    let _ = unsafe { syscall(libc::SYS_tgkill, arguments) };
}

/// The kernel's `struct sigevent`.
#[repr(C)]
struct TimerEvent {
    value: usize,
    signal: i32,
    notify: i32,
    thread: u32,
    padding: [u32; 11],
}

/// A timer on the calling thread's processor time, which sends it a signal with this value.
pub fn make_cpu_timer(signal: i32, value: usize) -> Result<i32> {
    let event = TimerEvent {
        value,
        signal,
        notify: libc::SIGEV_THREAD_ID,
        thread: thread_id(),
        padding: [0; 11],
    };
    let mut timer = 0i32;
    let clock = libc::CLOCK_THREAD_CPUTIME_ID as usize;
    let (event, place) = (&raw const event as usize, &raw mut timer as usize);
    // SAFETY: the kernel reads the event and writes the timer's number.
    unsafe { syscall(libc::SYS_timer_create, [clock, event, place, 0, 0, 0]) }.map(|_| timer)
}

/// Starts a timer.
pub fn set_timer(timer: i32, first_ns: u64, period_ns: u64) -> Result<()> {
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let times = libc::itimerspec {
        it_interval: time(period_ns),
        it_value: time(first_ns),
    };
    let arguments = [timer as usize, 0, &raw const times as usize, 0, 0, 0];
    // SAFETY: the kernel reads the times.
    unsafe { syscall(libc::SYS_timer_settime, arguments) }.map(|_| ())
}

pub fn delete_timer(timer: i32) {
    // SAFETY: no memory is touched.
    let _ = unsafe { syscall(libc::SYS_timer_delete, [timer as usize, 0, 0, 0, 0, 0]) };
}

/// Blocks SIGXFSZ in this thread until it is dropped. If a write reached the limit, `swallow` discards the
/// signal before it is unblocked.
pub struct FileSizeSignalHeld {
    old_mask: u64,
}

const FILE_SIZE_SIGNAL: u64 = 1 << (libc::SIGXFSZ - 1);

impl FileSizeSignalHeld {
    pub fn new() -> Self {
        FileSizeSignalHeld {
            old_mask: change_mask(libc::SIG_BLOCK, FILE_SIZE_SIGNAL),
        }
    }

    pub fn swallow(&self) {
        if self.old_mask & FILE_SIZE_SIGNAL != 0 {
            return; // The program blocks it itself: a pending one may be its own.
        }
        let set = FILE_SIZE_SIGNAL;
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let arguments = [&raw const set as usize, 0, &raw const now as usize, 8, 0, 0];
        // SAFETY: set and time are valid; no information is asked for.
        let _ = unsafe { syscall(libc::SYS_rt_sigtimedwait, arguments) };
    }
}

impl Drop for FileSizeSignalHeld {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.old_mask);
    }
}
