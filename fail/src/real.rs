//! The functions below: those that the program would call without this library.
//!
//! Thread safety: each is looked up once and stored in an atomic word.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_wrap::next;

macro_rules! functions {
    ($($function:ident $name:literal: $type:ty;)*) => {
        $(
            #[inline]
            pub fn $function() -> Option<$type> {
                static FOUND: AtomicUsize = AtomicUsize::new(0);
                let mut address = FOUND.load(Ordering::Relaxed);
                if address == 0 {
                    address = next($name);
                    FOUND.store(address, Ordering::Relaxed);
                }
                // SAFETY: the address is the next definition of this symbol, which has this type.
                (address != 0).then(|| unsafe { std::mem::transmute::<usize, $type>(address) })
            }
        )*
        /// Called before the program starts, because the loader is not async-signal-safe.
        pub fn look_up() {
            $($function();)*
        }
    };
}

functions! {
    malloc c"malloc": unsafe extern "C" fn(usize) -> *mut c_void;
    calloc c"calloc": unsafe extern "C" fn(usize, usize) -> *mut c_void;
    realloc c"realloc": unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    aligned_alloc c"aligned_alloc": unsafe extern "C" fn(usize, usize) -> *mut c_void;
    memalign c"memalign": unsafe extern "C" fn(usize, usize) -> *mut c_void;
    valloc c"valloc": unsafe extern "C" fn(usize) -> *mut c_void;
    pvalloc c"pvalloc": unsafe extern "C" fn(usize) -> *mut c_void;
    posix_memalign c"posix_memalign":
        unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
}
