//! All forms of `exec`: the trace notes that the image ended that way. Nothing needs to be saved, because
//! every record is in the file already.
//!
//! If the call fails, the note stays until the program's end.

use std::sync::atomic::{AtomicUsize, Ordering};

use larder_trace::EndState;
use larder_trace::layout::Slot;

use crate::arch::{self, passage};
use crate::errno::Errno;
use crate::hooks::guard;
use crate::{clock, file, real, state};

fn look(below: &AtomicUsize, name: &std::ffi::CStr) -> usize {
    let _errno = Errno::keep();
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    // A child of vfork shares its parent's memory; a child of fork without a call yet shares its parent's
    // file. Neither is the image of the trace.
    if local.in_vfork == 0 && state::is_recording() {
        state::tell_live(local);
        clock::note();
        file::set_slot(Slot::EndState, EndState::Exec as u64);
    }
    let mut address = below.load(Ordering::Relaxed);
    if address == 0 {
        let outer = std::mem::replace(&mut local.guard, guard::BELOW);
        address = real::next(name);
        local.guard = outer;
        below.store(address, Ordering::Relaxed);
    }
    if address == 0 {
        missing as *const () as usize
    } else {
        address
    }
}

/// Replaces a form that this libc does not have.
pub extern "C" fn missing() -> i32 {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

macro_rules! forms {
    ($($look:ident $export:literal $name:literal;)*) => {
        $(
            passage!($export => $look);
            extern "C" fn $look() -> usize {
                static BELOW: AtomicUsize = AtomicUsize::new(0);
                look(&BELOW, $name)
            }
        )*
    };
}

forms! {
    execve "execve" c"execve";
    execv "execv" c"execv";
    execvp "execvp" c"execvp";
    execvpe "execvpe" c"execvpe";
    execl "execl" c"execl";
    execlp "execlp" c"execlp";
    execle "execle" c"execle";
    fexecve "fexecve" c"fexecve";
    execveat "execveat" c"execveat";
}
