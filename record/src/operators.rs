//! C++'s `operator new` and `operator delete`, all forms.
//!
//! Each calls the next definition, of the C++ runtime or of an allocator, which calls new-handlers and
//! throws `std::bad_alloc`; the exception passes through here ("C-unwind"). The runtime may have been
//! loaded later for one library only, so that a look-up does not find it: then it is opened by name.
//! Without a runtime, nothing can be thrown.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_trace::{AllocCall, FreeCall};
use larder_wrap::entry;

use crate::arch::Caller;
use crate::errno::Errno;
use crate::hooks::{Hook, end_block, give_back, guard};
use crate::{real, sys};

/// An operator's next definition, once it was found.
struct Below {
    name: &'static CStr,
    found: AtomicUsize,
}

const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"];

impl Below {
    const fn new(name: &'static CStr) -> Self {
        Below {
            name,
            found: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn get(&self) -> usize {
        match self.found.load(Ordering::Relaxed) {
            0 => self.find(),
            found => found,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        let _errno = Errno::keep();
        let found = next(self.name);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// An operator's next definition, or 0.
pub fn next(name: &CStr) -> usize {
    let mut found = real::next(name);
    for runtime in RUNTIMES {
        if found != 0 {
            break;
        }
        // SAFETY: only returns a handle of a library that is loaded already.
        let handle = unsafe { libc::dlopen(runtime.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            // SAFETY: a live handle and a C string.
            found = unsafe { libc::dlsym(handle, name.as_ptr()) as usize };
        }
        if found == 0 {
            // SAFETY: clears the message that the look-up left.
            unsafe { libc::dlerror() };
        }
    }
    found
}

/// Records a call that ends with an exception as failed.
struct Unless<'a> {
    hook: &'a mut Hook,
    call: AllocCall,
    size: usize,
    align: usize,
    done: bool,
}

impl Drop for Unless<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.hook.leave_below();
            self.hook
                .made(self.call, std::ptr::null_mut(), self.size, self.align);
        }
    }
}

#[inline(always)]
unsafe fn make(
    call: AllocCall,
    size: usize,
    align: usize,
    caller: Caller,
    act: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let Some(mut hook) = Hook::enter_to_make(size, caller.sp, caller.bp) else {
        return act();
    };
    let mut failure = Unless {
        hook: &mut hook,
        call,
        size,
        align,
        done: false,
    };
    let block = failure.hook.below_new(size, align, act);
    failure.done = true;
    drop(failure);
    hook.made(call, block, size, align);
    block
}

/// `operator new` without a runtime.
unsafe fn without_runtime(size: usize, align: usize, may_fail: bool) -> *mut c_void {
    let size = size.max(1);
    let block = match (align, real::malloc(), real::aligned_alloc()) {
        // SAFETY: any size may be asked for.
        (0, Some(malloc), _) => unsafe { malloc(size) },
        // SAFETY: the alignment is the caller's own.
        (_, _, Some(aligned)) if align != 0 => unsafe { aligned(align, size) },
        _ => real::early(size, align),
    };
    if block.is_null() && !may_fail {
        let line = b"larder: operator new: out of memory, and no C++ runtime to throw with\n";
        let _ = sys::write(2, line);
        // SAFETY: ends the program, as terminate() would.
        unsafe { libc::abort() };
    }
    block
}

macro_rules! new_operators {
    ($($function:ident $name:literal $symbol:literal: $call:ident, align $align:expr, may_fail $fails:literal;)*) => {
        $(
            entry!($name => $function);
            unsafe extern "C-unwind" fn $function(
                size: usize,
                second: usize,
                third: usize,
                _: usize,
                sp: usize,
                bp: usize,
            ) -> *mut c_void {
                static BELOW: Below = Below::new($symbol);
                let align_of: fn(usize) -> usize = $align;
                let align = align_of(second);
                let act = || match BELOW.get() {
                    // SAFETY: no runtime, so the C functions serve.
                    0 => unsafe { without_runtime(size, align, $fails) },
                    found => {
                        // SAFETY: the next definition; arguments that it does not have are ignored.
                        let function = unsafe {
                            std::mem::transmute::<usize, real::NewWithTwo>(found)
                        };
                        // SAFETY: the caller's own arguments.
                        unsafe { function(size, second, third) }
                    }
                };
                // SAFETY: as above.
                unsafe { make(AllocCall::$call, size, align, Caller { sp, bp }, act) }
            }
        )*
    };
}

new_operators! {
    new "_Znwm" c"_Znwm": New, align |_| 0, may_fail false;
    new_array "_Znam" c"_Znam": NewArray, align |_| 0, may_fail false;
    new_nothrow "_ZnwmRKSt9nothrow_t" c"_ZnwmRKSt9nothrow_t": New, align |_| 0, may_fail true;
    new_array_nothrow "_ZnamRKSt9nothrow_t" c"_ZnamRKSt9nothrow_t":
        NewArray, align |_| 0, may_fail true;
    new_aligned "_ZnwmSt11align_val_t" c"_ZnwmSt11align_val_t":
        New, align |align| align, may_fail false;
    new_array_aligned "_ZnamSt11align_val_t" c"_ZnamSt11align_val_t":
        NewArray, align |align| align, may_fail false;
    new_aligned_nothrow
        "_ZnwmSt11align_val_tRKSt9nothrow_t" c"_ZnwmSt11align_val_tRKSt9nothrow_t":
        New, align |align| align, may_fail true;
    new_array_aligned_nothrow
        "_ZnamSt11align_val_tRKSt9nothrow_t" c"_ZnamSt11align_val_tRKSt9nothrow_t":
        NewArray, align |align| align, may_fail true;
}

macro_rules! delete_operators {
    ($($function:ident $name:literal $symbol:literal: $call:ident, size $size:expr, align $align:expr;)*) => {
        $(
            entry!($name => $function);
            unsafe extern "C-unwind" fn $function(
                block: *mut c_void,
                second: usize,
                third: usize,
                _: usize,
                sp: usize,
                bp: usize,
            ) {
                static BELOW: Below = Below::new($symbol);
                let size_of: fn(usize) -> usize = $size;
                let align_of: fn(usize, usize) -> usize = $align;
                let (size, align) = (size_of(second), align_of(second, third));
                let caller = Caller { sp, bp };
                let hook = end_block(FreeCall::$call, block, size, align, caller);
                let act = || match BELOW.get() {
                    found if found != 0 && !real::is_early(block) => {
                        type Delete = unsafe extern "C-unwind" fn(*mut c_void, usize, usize);
                        // SAFETY: the next definition; arguments that it does not have are ignored.
                        let function = unsafe { std::mem::transmute::<usize, Delete>(found) };
                        // SAFETY: the caller's own arguments.
                        unsafe { function(block, second, third) }
                    }
                    // SAFETY: made by the C functions, as no runtime was there.
                    _ => unsafe { give_back(block) },
                };
                match hook {
                    Some(mut hook) => hook.below(guard::BELOW, act),
                    None => act(),
                }
            }
        )*
    };
}

delete_operators! {
    delete "_ZdlPv" c"_ZdlPv": Delete, size |_| 0, align |_, _| 0;
    delete_array "_ZdaPv" c"_ZdaPv": DeleteArray, size |_| 0, align |_, _| 0;
    delete_nothrow "_ZdlPvRKSt9nothrow_t" c"_ZdlPvRKSt9nothrow_t":
        Delete, size |_| 0, align |_, _| 0;
    delete_array_nothrow "_ZdaPvRKSt9nothrow_t" c"_ZdaPvRKSt9nothrow_t":
        DeleteArray, size |_| 0, align |_, _| 0;
    delete_sized "_ZdlPvm" c"_ZdlPvm": Delete, size |size| size, align |_, _| 0;
    delete_array_sized "_ZdaPvm" c"_ZdaPvm": DeleteArray, size |size| size, align |_, _| 0;
    delete_aligned "_ZdlPvSt11align_val_t" c"_ZdlPvSt11align_val_t":
        Delete, size |_| 0, align |align, _| align;
    delete_array_aligned "_ZdaPvSt11align_val_t" c"_ZdaPvSt11align_val_t":
        DeleteArray, size |_| 0, align |align, _| align;
    delete_aligned_nothrow
        "_ZdlPvSt11align_val_tRKSt9nothrow_t" c"_ZdlPvSt11align_val_tRKSt9nothrow_t":
        Delete, size |_| 0, align |align, _| align;
    delete_array_aligned_nothrow
        "_ZdaPvSt11align_val_tRKSt9nothrow_t" c"_ZdaPvSt11align_val_tRKSt9nothrow_t":
        DeleteArray, size |_| 0, align |align, _| align;
    delete_sized_aligned "_ZdlPvmSt11align_val_t" c"_ZdlPvmSt11align_val_t":
        Delete, size |size| size, align |_, align| align;
    delete_array_sized_aligned "_ZdaPvmSt11align_val_t" c"_ZdaPvmSt11align_val_t":
        DeleteArray, size |size| size, align |_, align| align;
}
