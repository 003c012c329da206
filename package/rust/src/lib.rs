//! Larder's malloc as the global allocator.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: larder_malloc::Larder = larder_malloc::Larder;
//!
//! let numbers: Vec<u64> = (0..1 << 20).collect();
//! assert!(larder_malloc::stats().in_use >= 8 << 20);
//! drop(numbers);
//! larder_malloc::release_free_memory();
//! let stats = larder_malloc::stats();
//! assert!(stats.free_dirty + stats.kept_mappings < 8 << 20);
//! ```
//!
//! Larder is a malloc for Linux on x86-64 with glibc. It keeps a cache for each thread, gives free memory
//! back to the system, and ends the program with a report at a double free or a wrong pointer. `larder stats
//! PID` shows what the heap of the running program holds and wastes. With the feature `profile` it samples
//! what is in use by the stack that allocated it, which `larder profile PID` and the module `profile` read.
//!
//! The crate compiles the allocator from its C++ sources, under a prefix: the C library's malloc stays what
//! it is for C code of the same program. An object belongs to the allocator that it came from, so do not pass
//! memory of a `Box` or `Vec` to C's `free`. Without `profile` the crate needs no standard library.
//!
//! Variables like `LARDER_SOFT_LIMIT_MIB` work as for `liblarder.so`.
#![no_std]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("larder-malloc is for Linux on x86-64 with glibc (x86_64-unknown-linux-gnu)");

#[cfg(any(test, feature = "profile"))]
extern crate std;

mod ffi;
#[cfg(feature = "profile")]
pub mod profile;
mod stats;

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::CStr;

pub use stats::{Stats, stats};

/// The allocator, for `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Larder;

/// Whether malloc's own alignment suffices: 16, and 8 for objects of up to 8 bytes.
const fn is_natural(size: usize, align: usize) -> bool {
    align <= 8 || (align <= 16 && size > 8)
}

// SAFETY: the malloc family returns objects of at least the size, aligned as `is_natural` says or as asked
// for, that no other call returns until they are freed. It never unwinds.
unsafe impl GlobalAlloc for Larder {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: both accept any size; an alignment of a layout is a power of two.
        unsafe {
            match is_natural(size, align) {
                true => ffi::larder_malloc(size),
                false => ffi::larder_aligned_alloc(align, size),
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_natural(layout.size(), layout.align()) {
            // SAFETY: it accepts any size.
            return unsafe { ffi::larder_calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the caller's layout is not empty; the object has at least its size.
        unsafe {
            let object = self.alloc(layout);
            if !object.is_null() {
                object.write_bytes(0, layout.size());
            }
            object
        }
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, _layout: Layout) {
        // SAFETY: the object is Larder's, says the caller.
        unsafe { ffi::larder_free(object.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_natural(new_size, layout.align()) {
            // SAFETY: the object is Larder's and the size not 0, says the caller.
            return unsafe { ffi::larder_realloc(object.cast(), new_size) }.cast();
        }
        // SAFETY: the caller's size is valid with the alignment; both objects have the bytes that are copied,
        // and the new one is apart from the old one.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(object, layout.size().min(new_size));
                self.dealloc(object, layout);
            }
            moved
        }
    }
}

/// The version of the allocator, like `0.1.0`.
pub fn version() -> &'static str {
    // SAFETY: a static string that ends with a zero.
    let text = unsafe { CStr::from_ptr(ffi::larder_version()) };
    text.to_str().unwrap_or_default()
}

/// Gives free memory back to the system: the calling thread's cache, free spans, cached mappings. Other
/// threads' caches stay. Returns bytes.
pub fn release_free_memory() -> usize {
    // SAFETY: any thread may call it at any time.
    unsafe { ffi::larder_release_free_memory() }
}
