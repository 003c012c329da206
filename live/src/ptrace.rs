//! ptrace's requests that access no memory of ours except whole sets of registers or signals.

use std::io;
use std::ptr;

/// General registers, then vectors.
const MOST_WORDS: usize = 2048;

pub fn request(request: libc::c_uint, thread: libc::pid_t, data: usize) -> io::Result<()> {
    // SAFETY: only the functions below pass an address of ours.
    let done = unsafe { libc::ptrace(request, thread, ptr::null_mut::<libc::c_void>(), data) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The signals that a stopped thread blocks.
#[cfg(target_arch = "x86_64")]
pub fn signal_mask(thread: libc::pid_t) -> io::Result<u64> {
    let mut mask = 0;
    mask_request(libc::PTRACE_GETSIGMASK, thread, &mut mask)?;
    Ok(mask)
}

#[cfg(target_arch = "x86_64")]
pub fn set_signal_mask(thread: libc::pid_t, mut mask: u64) -> io::Result<()> {
    mask_request(libc::PTRACE_SETSIGMASK, thread, &mut mask)
}

#[cfg(target_arch = "x86_64")]
fn mask_request(request: libc::c_uint, thread: libc::pid_t, mask: &mut u64) -> io::Result<()> {
    // SAFETY: the kernel reads or writes as many bytes as `mask` has.
    let done = unsafe { libc::ptrace(request, thread, size_of::<u64>(), mask) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Empty where the set (`NT_PRSTATUS`...) cannot be read.
pub fn registers(thread: libc::pid_t, set: i32) -> Vec<u64> {
    let mut words = vec![0u64; MOST_WORDS];
    let mut room = room(&mut words);
    let kind = set as usize;
    // SAFETY: `room` describes `words`, of which the kernel fills no more.
    let got = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, kind, &raw mut room) };
    words.truncate(if got < 0 { 0 } else { room.iov_len / 8 });
    words
}

/// As they came from `registers`.
#[cfg(target_arch = "x86_64")]
pub fn write_registers(thread: libc::pid_t, set: i32, words: &mut [u64]) {
    let room = room(words);
    let kind = set as usize;
    // SAFETY: `room` describes `words`, which the kernel reads.
    unsafe { libc::ptrace(libc::PTRACE_SETREGSET, thread, kind, &raw const room) };
}

fn room(words: &mut [u64]) -> libc::iovec {
    libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(words),
    }
}
