//! What the crate calls of `larder/larder_malloc.h` and `larder/larder.h`.

use core::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    pub fn larder_malloc(size: usize) -> *mut c_void;
    pub fn larder_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn larder_realloc(object: *mut c_void, size: usize) -> *mut c_void;
    pub fn larder_free(object: *mut c_void);
    pub fn larder_aligned_alloc(align: usize, size: usize) -> *mut c_void;
    pub fn larder_version() -> *const c_char;
    pub fn larder_get_stats(stats: *mut crate::Stats, size: usize) -> c_int;
    pub fn larder_release_free_memory() -> usize;
}

#[cfg(feature = "profile")]
unsafe extern "C" {
    pub fn larder_profile_set_mean(bytes: usize);
    pub fn larder_profile_write(file: c_int) -> c_int;
    pub fn larder_profile_mark() -> c_int;
}
