//! Recording a program that runs already: the tool loads this library into it (`dlopen`) and calls the two functions
//! here in one of its threads. The library stays loaded, as a thread may always be in it.
//!
//! Thread safety: the tool makes one call at a time.

use std::ffi::{CStr, c_char, c_int};

use larder_trace::attach::{BUSY, TAKEN, UNFIT};

use crate::arch::passage;
use crate::errno::Errno;
use crate::hooks::guard;
use crate::{arch, operators, real, redirect, stack, state};

const OWN_NAME: &CStr = c"larder_record_attach";

/// Whether this library was loaded by `dlopen`: then the program's own symbols are without it.
pub fn is_loaded_later() -> bool {
    // SAFETY: a handle of what the program started with; the look-up takes a handle and a C string.
    unsafe {
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
        !program.is_null() && larder_wrap::find(program, OWN_NAME) == 0
    }
}

/// Runs as the recorder's own code; `BUSY` if the thread is in a hook.
fn undisturbed(act: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard != guard::NONE || local.in_vfork != 0 {
        return BUSY;
    }
    let _errno = Errno::keep();
    local.guard = guard::RECORDER;
    let answer = act();
    local.guard = guard::NONE;
    answer
}

/// See `larder_trace::attach::ATTACH`.
///
/// # Safety
/// `folder` must be a C string, an absolute path.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn larder_record_attach(folder: *const c_char) -> c_int {
    // SAFETY: by contract.
    let folder = unsafe { CStr::from_ptr(folder) };
    undisturbed(|| begin(folder))
}

fn begin(folder: &CStr) -> c_int {
    if !real::is_loaded_later() {
        if !is_loaded_later() {
            return TAKEN;
        }
        real::load_later(arch::segment());
        real::look_up();
        // The program may have provided stacks already.
        stack::trust_no_guard();
        if !prepare() {
            return UNFIT;
        }
    }
    match state::attach(folder.to_bytes()) {
        None => TAKEN,
        Some(Err(errno)) if errno.0 == libc::EPERM => UNFIT,
        Some(Err(errno)) => errno.0,
        Some(Ok(())) => {
            redirect::to_hooks();
            0
        }
    }
}

fn prepare() -> bool {
    // SAFETY: all zeros are a valid value, which dladdr fills in.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let own = (begin as *const ()).cast();
    // SAFETY: an address, and room for the answer; then the loader's name of this library, which is loaded: the
    // handle keeps it.
    let handle = unsafe {
        if libc::dladdr(own, &raw mut found) == 0 {
            return false;
        }
        libc::dlopen(found.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD)
    };
    if handle.is_null() {
        return false;
    }
    redirect::prepare(handle, |name| match name.to_bytes().starts_with(b"_Z") {
        true => operators::next(name),
        false => real::next(name),
    });
    true
}

passage!("larder_record_dlsym" => look_up);
/// A program that has loaded a library looks up what it will call there.
extern "C" fn look_up() -> usize {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard == guard::NONE && local.in_vfork == 0 && state::is_recording() {
        let _errno = Errno::keep();
        local.guard = guard::RECORDER;
        redirect::new_modules();
        local.guard = guard::NONE;
    }
    libc::dlsym as *const () as usize
}

/// See `larder_trace::attach::DETACH`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
extern "C" fn larder_record_detach() -> c_int {
    undisturbed(|| {
        if !real::is_loaded_later() {
            return TAKEN;
        }
        redirect::back();
        match state::detach() {
            true => 0,
            false => TAKEN,
        }
    })
}
