//! The recorder's own memory, directly from the system.
//!
//! `Pages<T>` is a growing array for the hot path; `Heap` serves the allocations of std and of the
//! unwinder, which are not on it.
//!
//! Thread safety: `Pages` belongs to its owner; `Heap` takes a spin lock, which a child of fork resets
//! (`Heap::after_fork`), leaking what was allocated.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// An array of plain values in pages of its own; new elements are zero.
pub struct Pages<T> {
    /// Dangling while there are none.
    start: *mut T,
    capacity: usize,
}

impl<T: Copy> Pages<T> {
    pub const fn empty() -> Self {
        Pages {
            start: std::ptr::dangling_mut(),
            capacity: 0,
        }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `room` elements unless there is room for `wanted`.
    pub fn grow_to(&mut self, wanted: usize, room: usize) -> bool {
        wanted <= self.capacity || self.grow(room)
    }

    /// Makes room for at least `wanted` elements; false if the system has none.
    pub fn grow(&mut self, wanted: usize) -> bool {
        if wanted <= self.capacity {
            return true;
        }
        let Some(bytes) = wanted.checked_mul(size_of::<T>()) else {
            return false;
        };
        let bytes = bytes.next_multiple_of(4096);
        let mapped = if self.capacity == 0 {
            sys::map_anonymous(bytes)
        } else {
            // SAFETY: the range is this value's own, and there is no pointer into it.
            unsafe { sys::remap(self.start.cast(), self.bytes(), bytes) }
        };
        let Ok(start) = mapped else { return false };
        self.start = start.cast();
        self.capacity = bytes / size_of::<T>();
        true
    }

    fn bytes(&self) -> usize {
        (self.capacity * size_of::<T>()).next_multiple_of(4096)
    }

    #[inline]
    pub fn slice(&mut self) -> &mut [T] {
        // SAFETY: the pages hold `capacity` values, zeroed or written; T is plain.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.capacity) }
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: as in `slice`.
        unsafe { std::slice::from_raw_parts(self.start, self.capacity) }.get(index)
    }

    pub fn release(&mut self) {
        if self.capacity != 0 {
            // SAFETY: the range is this value's own.
            unsafe { sys::unmap(self.start.cast(), self.bytes()) };
            *self = Pages::empty();
        }
    }
}

const CLASSES: usize = 28;
const SLAB_BYTES: usize = 256 << 10;

struct Lists {
    /// Freed blocks of 2^n bytes, each holding the next one's address.
    free: [*mut u8; CLASSES],
    bump: *mut u8,
    left: usize,
}

/// Power-of-two blocks from mapped slabs.
pub struct Heap {
    locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are only touched under the lock.
unsafe impl Sync for Heap {}

impl Heap {
    pub const fn new() -> Self {
        let free = [std::ptr::null_mut(); CLASSES];
        let lists = Lists {
            free,
            bump: std::ptr::null_mut(),
            left: 0,
        };
        Heap {
            locked: AtomicBool::new(false),
            lists: UnsafeCell::new(lists),
        }
    }

    /// In a child of fork the lock's owner may not exist, and the lists may be inconsistent: starts anew.
    pub fn after_fork(&self) {
        // SAFETY: the child has one thread.
        unsafe {
            *self.lists.get() = Lists {
                free: [std::ptr::null_mut(); CLASSES],
                bump: std::ptr::null_mut(),
                left: 0,
            }
        };
        self.locked.store(false, Ordering::Release);
    }

    fn with<R>(&self, act: impl FnOnce(&mut Lists) -> R) -> R {
        while self.locked.swap(true, Ordering::Acquire) {
            sys::yield_processor();
        }
        // SAFETY: the lock is held.
        let result = act(unsafe { &mut *self.lists.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

fn class_of(layout: Layout) -> usize {
    let bytes = layout.size().max(layout.align()).max(16);
    bytes.next_power_of_two().trailing_zeros() as usize
}

impl Lists {
    fn take(&mut self, class: usize) -> *mut u8 {
        let head = self.free[class];
        if !head.is_null() {
            // SAFETY: a freed block holds the next one's address in its first bytes.
            self.free[class] = unsafe { head.cast::<*mut u8>().read() };
            return head;
        }
        let bytes = 1usize << class;
        let skip = self.bump.align_offset(bytes);
        if self.bump.is_null() || skip.saturating_add(bytes) > self.left {
            let Ok(slab) = sys::map_anonymous(SLAB_BYTES) else {
                return std::ptr::null_mut();
            };
            self.bump = slab;
            self.left = SLAB_BYTES;
        }
        let skip = self.bump.align_offset(bytes);
        if skip.saturating_add(bytes) > self.left {
            return std::ptr::null_mut();
        }
        // SAFETY: checked to lie within the slab, and so is the block's end.
        let block = unsafe { self.bump.add(skip) };
        // SAFETY: the same check.
        self.bump = unsafe { block.add(bytes) };
        self.left -= skip + bytes;
        block
    }
}

/// Blocks of at least this size have pages of their own.
const LARGE_CLASS: usize = 17;

// SAFETY: blocks are aligned to their size, which is at least the layout's, and never overlap.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class_of(layout);
        if class >= LARGE_CLASS {
            if layout.align() > 4096 {
                return std::ptr::null_mut();
            }
            return sys::map_anonymous(layout.size()).unwrap_or(std::ptr::null_mut());
        }
        self.with(|lists| lists.take(class))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let class = class_of(layout);
        if class >= LARGE_CLASS {
            // SAFETY: mapped by `alloc` with this size.
            unsafe { sys::unmap(block, layout.size()) };
            return;
        }
        self.with(|lists| {
            // SAFETY: the block is free and at least 16 bytes long.
            unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
            lists.free[class] = block;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_their_values_when_they_grow() {
        let mut pages = Pages::<u64>::empty();
        assert!(pages.grow(10));
        pages.slice()[9] = 42;
        assert!(pages.grow(1_000_000));
        assert_eq!(pages.slice()[9], 42);
        assert_eq!(pages.slice()[999_999], 0);
        assert!(!pages.grow(usize::MAX));
        pages.release();
        assert_eq!(pages.capacity(), 0);
    }

    #[test]
    fn heap_blocks_are_aligned_apart_and_reused() {
        let heap = Heap::new();
        for bytes in [1, 16, 17, 4096, 65_536, 65_537, 1 << 20] {
            for align in [1, 8, 64, 4096] {
                let layout = Layout::from_size_align(bytes, align).expect("valid");
                // SAFETY: freed with the same layout.
                unsafe {
                    let a = heap.alloc(layout);
                    let b = heap.alloc(layout);
                    assert!(!a.is_null() && !b.is_null());
                    assert_eq!(a as usize % align, 0);
                    assert!(a.abs_diff_bytes(b) >= bytes);
                    a.write_bytes(1, bytes);
                    heap.dealloc(a, layout);
                    heap.dealloc(b, layout);
                }
            }
        }
    }

    trait Apart {
        fn abs_diff_bytes(self, other: Self) -> usize;
    }

    impl Apart for *mut u8 {
        fn abs_diff_bytes(self, other: Self) -> usize {
            (self as usize).abs_diff(other as usize)
        }
    }
}
