//! A heap apart from the one that is looked at. What the system refuses is waited for: Rust ends a process
//! that has no memory, and the program need not end for this.

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

// SAFETY: all of it is dlmalloc's, asked until it gives.
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
        // SAFETY: the caller's promise; what could not be resized is as it was.
        once_there_is_some(|| unsafe { GlobalDlmalloc.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { GlobalDlmalloc.dealloc(block, layout) }
    }
}
