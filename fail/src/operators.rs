//! C++'s `operator new`, all forms. Each is one counted call, whatever it calls in turn. The operator below
//! allocates the block, so that it matches `operator delete`. A failure follows the standard: the
//! new-handler is called, and the call is tried (and counted) again, or `std::bad_alloc` is thrown. The
//! forms that do not throw return null at once.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_trace::AllocCall;
use larder_wrap::{anywhere, find, next};

use crate::{errno, fails, real, set_errno};

thread_local! {
    /// In the `operator new` below, which may call malloc.
    static BELOW_NEW: Cell<bool> = const { Cell::new(false) };
}

/// Never inlined: the compiler would look up the variable's address before the check whether to count, and
/// a sanitizer that has not started yet cannot look it up.
#[inline(never)]
pub fn is_below_new() -> bool {
    BELOW_NEW.get()
}

/// Resets the flag, also if an exception leaves the operator below.
struct Below(bool);

impl Below {
    fn enter() -> Self {
        Below(BELOW_NEW.replace(true))
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        BELOW_NEW.set(self.0);
    }
}

/// A function of the C++ runtime, which may be loaded for one library only, so that a look-up does not
/// find it.
fn of_runtime(name: &CStr) -> usize {
    let errno = errno();
    let mut found = anywhere(name);
    for runtime in [c"libstdc++.so.6", c"libc++.so.1"] {
        if found == 0 {
            // SAFETY: asks for what is loaded already.
            let handle =
                unsafe { libc::dlopen(runtime.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if !handle.is_null() {
                // SAFETY: just opened.
                found = unsafe { find(handle, name) };
            }
        }
    }
    // SAFETY: takes back the message that a look-up may have left.
    unsafe { libc::dlerror() };
    set_errno(errno);
    found
}

/// Calls the new-handler; without one throws `std::bad_alloc`.
fn handle_failure() {
    let get = of_runtime(c"_ZSt15get_new_handlerv");
    if get != 0 {
        type Handler = extern "C-unwind" fn();
        // SAFETY: the runtime's function of this type.
        let get = unsafe { std::mem::transmute::<usize, extern "C" fn() -> Option<Handler>>(get) };
        if let Some(handler) = get() {
            return handler();
        }
    }
    let throw = of_runtime(c"_ZSt17__throw_bad_allocv");
    if throw != 0 {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<usize, extern "C-unwind" fn()>(throw)() };
    }
    // SAFETY: nothing can be thrown, so end the program like terminate().
    unsafe { libc::abort() };
}

/// The operator below, looked up once.
struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Next {
    unsafe fn call(&self, size: usize, second: usize, third: usize) -> *mut c_void {
        let mut found = self.found.load(Ordering::Relaxed);
        if found == 0 {
            found = match next(self.name) {
                0 => of_runtime(self.name),
                found => found,
            };
            self.found.store(found, Ordering::Relaxed);
        }
        let _below = Below::enter();
        if found == 0 {
            // No runtime: use the C function.
            // SAFETY: any size may be asked for.
            return real::malloc().map_or(std::ptr::null_mut(), |malloc| unsafe { malloc(size) });
        }
        type New = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;
        // SAFETY: the next definition; arguments that it does not have are ignored.
        unsafe { std::mem::transmute::<usize, New>(found)(size, second, third) }
    }
}

macro_rules! operators {
    ($($function:ident $symbol:literal $name:literal: $call:ident, throws $throws:literal;)*) => {
        $(
            /// # Safety
            /// As C++'s.
            #[cfg_attr(not(test), unsafe(export_name = $symbol))]
            #[cfg_attr(test, allow(dead_code))]
            pub unsafe extern "C-unwind" fn $function(
                size: usize,
                second: usize,
                third: usize,
            ) -> *mut c_void {
                static NEXT: Next = Next {
                    name: $name,
                    found: AtomicUsize::new(0),
                };
                if is_below_new() {
                    // SAFETY: the caller's own arguments.
                    return unsafe { NEXT.call(size, second, third) };
                }
                while fails(AllocCall::$call, size) {
                    if !$throws {
                        return std::ptr::null_mut();
                    }
                    handle_failure();
                }
                // SAFETY: the caller's own arguments.
                unsafe { NEXT.call(size, second, third) }
            }
        )*
    };
}

operators! {
    new "_Znwm" c"_Znwm": New, throws true;
    new_array "_Znam" c"_Znam": NewArray, throws true;
    new_nothrow "_ZnwmRKSt9nothrow_t" c"_ZnwmRKSt9nothrow_t": New, throws false;
    new_array_nothrow "_ZnamRKSt9nothrow_t" c"_ZnamRKSt9nothrow_t": NewArray, throws false;
    new_aligned "_ZnwmSt11align_val_t" c"_ZnwmSt11align_val_t": New, throws true;
    new_array_aligned "_ZnamSt11align_val_t" c"_ZnamSt11align_val_t": NewArray, throws true;
    new_aligned_nothrow
        "_ZnwmSt11align_val_tRKSt9nothrow_t" c"_ZnwmSt11align_val_tRKSt9nothrow_t":
        New, throws false;
    new_array_aligned_nothrow
        "_ZnamSt11align_val_tRKSt9nothrow_t" c"_ZnamSt11align_val_tRKSt9nothrow_t":
        NewArray, throws false;
}
