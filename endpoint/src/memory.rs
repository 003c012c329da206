//! A heap apart from the one that is served. If the system refuses memory, it waits and tries again: Rust
//! would end the process, and the program must not end because of this library.

use std::alloc::{GlobalAlloc, Layout};
use std::thread;
use std::time::Duration;

use dlmalloc::GlobalDlmalloc;

pub struct Patient;

fn once_there_is_some(mut take: impl FnMut() -> *mut u8) -> *mut u8 {
    loop {
        let taken = take();
        if !taken.is_null() {
            return taken;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

// SAFETY: all memory is dlmalloc's; `alloc` tries until it succeeds.
unsafe impl GlobalAlloc for Patient {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        once_there_is_some(|| unsafe { GlobalDlmalloc.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        once_there_is_some(|| unsafe { GlobalDlmalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a block that cannot be resized is unchanged.
        once_there_is_some(|| unsafe { GlobalDlmalloc.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { GlobalDlmalloc.dealloc(block, layout) }
    }
}
