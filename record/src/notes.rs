//! Records what the malloc family does not see: the program's marks (`larder/mark.h`), and system calls and
//! copies from the libraries of wrappers (`record/io`, `record/copies`). Uses the same guard as the malloc family.

use std::ffi::{c_char, c_int};

use larder_trace::SystemCall;
use larder_trace::codec::{MAX_MARK_NAME, NO_SITE, SystemCallRecord};
use larder_wrap::entry;

use crate::arch;
use crate::errno::Errno;
use crate::hash;
use crate::hooks::{Hook, guard};
use crate::state::{self, InitialStack};
use crate::{clock, config, counters, map, sys};

entry!("larder_record_mark" => mark);
unsafe extern "C" fn mark(name: *const c_char, _: usize, _: usize, _: usize, sp: usize, bp: usize) {
    if name.is_null() {
        return;
    }
    if let Some(mut hook) = Hook::enter(sp, bp) {
        // SAFETY: a C string by contract; only the part that is stored is read.
        let name = unsafe {
            let bytes = libc::strnlen(name, MAX_MARK_NAME);
            std::slice::from_raw_parts(name.cast(), bytes)
        };
        hook.mark(name);
    }
}

/// The mean number of bytes between two copies that are recorded, 0 for all; -1: record none.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_copy_rate() -> i64 {
    let errno = Errno::keep();
    let rate = config::copy_rate(&InitialStack::find());
    drop(errno);
    rate
}

/// Records a copy. `call`: the code of a `CopyCall`, and 256 times the rate that it was sampled with. Changes
/// no errno.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_copy(
    call: u64,
    destination: usize,
    source: usize,
    bytes: usize,
    sp: usize,
    bp: usize,
) {
    if let Some(mut hook) = Hook::enter_quietly(sp, bp)
        && !counters::are_on()
    {
        let rate = (call >> 8) as usize;
        hook.copied(call as u8, destination, source, bytes, rate);
    }
}

/// The frame of a wrapper in `record/io`, or of the handler of dispatched calls.
#[derive(Default)]
#[repr(C)]
pub struct Called {
    /// Of select the only descriptor that it waits for, plus one; else 0.
    only: usize,
    pub begin: u64,
    pub result: usize,
    /// The argument registers, the sixth first.
    arguments: [usize; 6],
    bp: usize,
    return_address: usize,
}

impl Called {
    pub fn set_arguments(&mut self, arguments: [usize; 6]) {
        self.arguments = arguments;
        self.arguments.reverse();
    }

    pub fn set_argument(&mut self, number: usize, value: usize) {
        self.arguments[5 - number] = value;
    }

    /// Moves the arguments on by one, as libc's `syscall` has them.
    pub fn insert_argument(&mut self, first: usize) {
        self.arguments.copy_within(1.., 0);
        self.arguments[5] = first;
    }

    pub fn argument(&self, number: usize) -> usize {
        self.arguments[5 - number]
    }

    /// A descriptor that is the first argument, or the result.
    fn descriptor(&self, call: SystemCall, result: isize) -> i32 {
        use SystemCall::*;
        match call {
            Poll | Ppoll if self.argument(1) == 1 && result > 0 => {
                // SAFETY: the kernel has just stored what the only one is ready for.
                unsafe { (*(self.argument(0) as *const libc::pollfd)).fd }
            }
            Select | Pselect if result > 0 => self.only as c_int - 1,
            Poll | Ppoll | Select | Pselect | Stat | Lstat | Fstat | Fstatat | Statx | Access
            | Readlink | Munmap | Mremap | Mprotect | Madvise | ClockGettime | Gettimeofday
            | Time | SchedYield | Nanosleep | ClockNanosleep | Usleep | Sleep | Syscall
            | Getpid => -1,
            Open | Openat => i32::try_from(result).map_or(-1, |fd| fd.max(-1)),
            Pipe | Socketpair => self.ends(call, result).map_or(-1, |ends| ends[0]),
            Mmap => self.argument(4) as c_int,
            _ => self.argument(0) as c_int,
        }
    }

    /// See `SystemCallRecord::limit`; of `syscall` the number, of a pair of descriptors the second, of what
    /// names a file the hash of the name.
    fn limit(&self, call: SystemCall, result: isize, skipped: usize) -> usize {
        use SystemCall::*;
        let number = match call {
            Read | Write | Pread | Pwrite | Send | Sendto | Recv | Recvfrom | Sendmmsg
            | Recvmmsg | EpollWait | EpollPwait | Readlink | Mremap => 2,
            Poll | Ppoll | Mmap | Munmap | Mprotect | Madvise => 1,
            Select | Pselect | Syscall => 0,
            Pipe | Socketpair => {
                return self.ends(call, result).map_or(0, |ends| ends[1] as usize);
            }
            EpollCtl if result >= 0 => {
                return self.argument(1) << 32 | self.argument(2) as u32 as usize;
            }
            Sendfile => 3,
            Splice | CopyFileRange => 4,
            Open | Openat | Stat | Lstat | Fstatat | Statx | Access
                if result >= 0 || result == -(libc::ENOENT as isize) =>
            {
                return self.name(call, skipped);
            }
            Readv | Writev | Preadv | Pwritev if result >= 0 => {
                // SAFETY: the kernel has just read as many.
                return unsafe { bytes_of(self.argument(1), self.argument(2) as c_int as usize) };
            }
            Sendmsg | Recvmsg if result >= 0 => {
                // SAFETY: as above.
                let message = unsafe { &*(self.argument(1) as *const libc::msghdr) };
                // SAFETY: as above.
                return unsafe { bytes_of(message.msg_iov as usize, message.msg_iovlen as _) };
            }
            _ => return 0,
        };
        match call {
            Select | Pselect | EpollWait | EpollPwait => self.argument(number) as c_int as usize,
            _ => self.argument(number),
        }
    }

    /// Looks at the sets of descriptors that select waits for. The kernel overwrites them.
    pub fn look_at_sets(&mut self) {
        self.only = self.only_waited_for().map_or(0, |only| only + 1);
    }

    /// `None` if there are several, or none, or the sets are too large or not readable.
    fn only_waited_for(&self) -> Option<usize> {
        let end = usize::try_from(self.argument(0) as c_int).ok()?;
        let mut waited_for = [0u64; libc::FD_SETSIZE / 64];
        let words = waited_for.get_mut(..end.div_ceil(64))?;
        for set in (1..4).map(|number| self.argument(number)) {
            let last = set.wrapping_add(8 * words.len().saturating_sub(1));
            if set == 0 {
                continue;
            }
            if ![set, last].iter().all(|at| sys::readable(*at as u64)) {
                return None;
            }
            for (number, word) in words.iter_mut().enumerate() {
                // SAFETY: it can be read from its first to its last word, which are in two pages at most.
                *word |= unsafe { (set as *const u64).add(number).read_unaligned() };
            }
        }
        if let Some(last) = words.last_mut() {
            *last &= u64::MAX >> (end.next_multiple_of(64) - end);
        }
        let mut found = words.iter().enumerate().filter(|(_, word)| **word != 0);
        let (number, word) = found.next()?;
        let is_only = word.is_power_of_two() && found.next().is_none();
        is_only.then(|| 64 * number + word.trailing_zeros() as usize)
    }

    /// A hash of the name that the kernel has just looked up, not 0; 0 if another call with this name may mean
    /// another file.
    fn name(&self, call: SystemCall, skipped: usize) -> usize {
        use SystemCall::*;
        const NEW: usize = (libc::O_CREAT | libc::O_EXCL) as usize;
        let after_folder = matches!(call, Openat | Fstatat | Statx);
        let number = skipped + usize::from(after_folder);
        let path: *const c_char = std::ptr::with_exposed_provenance(self.argument(number));
        let opens = matches!(call, Open | Openat);
        if path.is_null() || opens && self.argument(number + 1) & NEW == NEW {
            return 0;
        }
        // SAFETY: a C string, or the kernel would have returned EFAULT or ENAMETOOLONG.
        let path = unsafe {
            let bytes = libc::strnlen(path, libc::PATH_MAX as usize);
            std::slice::from_raw_parts(path.cast::<u8>(), bytes)
        };
        let hash = match path.first() {
            None => return 0,
            Some(b'/') => hash::bytes(path),
            Some(_) if after_folder || call == Access && skipped > 0 => {
                match self.argument(number - 1) as c_int {
                    libc::AT_FDCWD => hash::bytes(path),
                    folder => hash::spread(hash::bytes(path) ^ folder as u64),
                }
            }
            Some(_) => hash::bytes(path),
        };
        (hash >> 32).max(1) as usize
    }

    /// The descriptors that were made.
    fn ends(&self, call: SystemCall, result: isize) -> Option<[c_int; 2]> {
        let number = if call == SystemCall::Pipe { 0 } else { 3 };
        // SAFETY: the kernel has just stored both.
        (result == 0).then(|| unsafe { *(self.argument(number) as *const [c_int; 2]) })
    }

    /// See `SystemCallRecord::buffer`.
    fn buffer(&self, call: SystemCall, result: isize) -> usize {
        use SystemCall::*;
        let second = self.argument(1);
        // SAFETY: the kernel has just moved bytes from or to the first part.
        let first_part =
            |vector: usize| unsafe { (*(vector as *const libc::iovec)).iov_base as usize };
        match call {
            Read | Write | Pread | Pwrite | Send | Sendto | Recv | Recvfrom => second,
            Readv | Writev | Preadv | Pwritev if result > 0 => first_part(second),
            Sendmsg | Recvmsg if result > 0 => {
                // SAFETY: as above.
                first_part(unsafe { (*(second as *const libc::msghdr)).msg_iov as usize })
            }
            _ => 0,
        }
    }
}

/// # Safety
/// `vector` must be an array of so many `iovec`.
unsafe fn bytes_of(vector: usize, count: usize) -> usize {
    if count == 0 {
        return 0;
    }
    // SAFETY: by contract.
    let parts = unsafe { std::slice::from_raw_parts(vector as *const libc::iovec, count) };
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// The time at which a call begins; 0 if it will not be recorded. Reading the clock may call libc, whose
/// function is one of those that ask.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub extern "C" fn larder_record_now() -> u64 {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard != guard::NONE || !state::is_recording() {
        return 0;
    }
    local.guard = guard::RECORDER;
    let errno = Errno::keep();
    let now = clock::about();
    drop(errno);
    local.guard = guard::NONE;
    now
}

/// Before a select.
///
/// # Safety
/// `called` must be a wrapper's frame.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn larder_record_select_begins(called: *mut Called) {
    // SAFETY: the thread's own.
    let guard = unsafe { (*arch::local()).guard };
    if guard == guard::NONE && state::is_recording() {
        // SAFETY: by contract.
        unsafe { (*called).look_at_sets() };
    }
}

/// Records that this `SystemCall` has returned. `call`: its code, and 256 times the number of arguments that stand
/// before those of libc's function of that name.
///
/// # Safety
/// `called` must be a wrapper's frame.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn larder_record_system_call(call: u32, result: isize, called: *const Called) {
    let skipped = (call >> 8) as usize;
    let Some(call) = SystemCall::from_code(call as u8) else {
        return;
    };
    let errno = Errno::keep();
    // The upper half of an int's register is undefined.
    let mut result = if call.returns_word() {
        result
    } else {
        result as c_int as isize
    };
    if call.returns_error() {
        result = -result;
    } else if result == -1 {
        result = -(errno.number() as isize);
    }
    // SAFETY: by contract.
    let called = unsafe { &*called };
    let sp = &raw const called.return_address as usize - arch::RETURN_ADDRESS_AT;
    // What malloc does within a call of the program's is not recorded, nor is what it does besides.
    let own = || map::current().is_some_and(|map| map.is_allocator(called.return_address as u64));
    if let Some(mut hook) = Hook::enter_quietly(sp, called.bp)
        && !own()
    {
        hook.system_call(call.code(), record_of(call, result, called, skipped));
    }
}

/// A call that has returned; its site is not known. `skipped`: as above.
pub fn record_of(
    call: SystemCall,
    result: isize,
    called: &Called,
    skipped: usize,
) -> SystemCallRecord {
    SystemCallRecord {
        site: NO_SITE,
        result: result as i64,
        time: clock::now(),
        ticks: match called.begin {
            0 => 0,
            begin => clock::about().saturating_sub(begin),
        },
        limit: called.limit(call, result, skipped) as u64,
        descriptor: called.descriptor(call, result),
        buffer: called.buffer(call, result) as u64,
    }
}
