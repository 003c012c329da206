//! The heap profile: what is in use by the stack that allocated it, from samples. It is on from the start,
//! with a mean of 512 KiB or `LARDER_PROFILE_BYTES`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::ffi;

/// Sets the mean distance between two samples in bytes; 0: no new samples. Earlier samples stay.
pub fn set_mean(bytes: usize) {
    // SAFETY: any thread may call it at any time.
    unsafe { ffi::larder_profile_set_mean(bytes) }
}

/// Writes the profile to an open file, as text that pprof and `larder profile FILE` read.
///
/// # Errors
///
/// Those of write(2); `EBUSY` in a signal handler that interrupted the allocator; `ENOSYS` if stacks cannot
/// be walked.
pub fn write(file: impl AsFd) -> io::Result<()> {
    // SAFETY: the file is open for as long as it is borrowed.
    result(unsafe { ffi::larder_profile_write(file.as_fd().as_raw_fd()) })
}

/// Counts growth from now on: later profiles also have what each stack has in use since.
///
/// # Errors
///
/// `EBUSY` in a signal handler that interrupted the allocator.
pub fn mark() -> io::Result<()> {
    // SAFETY: any thread may call it at any time.
    result(unsafe { ffi::larder_profile_mark() })
}

fn result(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
