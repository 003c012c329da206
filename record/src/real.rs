//! The functions below: those that the program would call without this library.
//!
//! Thread safety: each is looked up once and stored in an atomic word. During the look-up, the loader's
//! allocations come from a small static area, which `free` recognises by address.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::arch;
use crate::errno::Errno;
use crate::hooks::guard;

macro_rules! functions {
    ($($number:literal $function:ident: $type:ty, $name:literal;)*) => {
        $(
            #[inline]
            pub fn $function() -> Option<$type> {
                let address = FOUND[$number].load(Ordering::Relaxed);
                // SAFETY: the address is the next definition of this symbol, which has this type.
                (address != 0).then(|| unsafe { std::mem::transmute::<usize, $type>(address) })
            }
        )*
        const NAMES: &[&CStr] = &[$($name),*];
    };
}

pub type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
pub type Two = unsafe extern "C" fn(usize, usize) -> *mut c_void;
pub type Free = unsafe extern "C" fn(*mut c_void);
pub type NewWithTwo = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;

functions! {
    0 malloc: Malloc, c"malloc";
    1 calloc: Two, c"calloc";
    2 realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void, c"realloc";
    3 reallocarray: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void, c"reallocarray";
    4 free: Free, c"free";
    5 aligned_alloc: Two, c"aligned_alloc";
    6 posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> i32, c"posix_memalign";
    7 memalign: Two, c"memalign";
    8 valloc: Malloc, c"valloc";
    9 pvalloc: Malloc, c"pvalloc";
    10 malloc_usable_size: unsafe extern "C" fn(*mut c_void) -> usize, c"malloc_usable_size";
    11 dlclose: unsafe extern "C" fn(*mut c_void) -> i32, c"dlclose";
}

/// Not every libc has it, so it is looked up when it is called: clearing the loader's message takes
/// libc's locale lock, which the caller of the process's first `malloc` may hold.
struct Optional<F> {
    name: &'static CStr,
    found: AtomicUsize,
    function: PhantomData<F>,
}

impl<F> Optional<F> {
    const MISSING: usize = 1;

    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    const unsafe fn new(name: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        Optional {
            name,
            found: AtomicUsize::new(0),
            function: PhantomData,
        }
    }

    fn get(&self) -> Option<F> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found == 0 {
            let _errno = Errno::keep();
            found = next(self.name).max(Self::MISSING);
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: the address of the next definition of the symbol, which has this type.
        (found != Self::MISSING).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}

macro_rules! optional_functions {
    ($($function:ident: $type:ty, $name:literal;)*) => {
        $(
            pub fn $function() -> Option<$type> {
                // SAFETY: libc declares it so.
                static FUNCTION: Optional<$type> = unsafe { Optional::new($name) };
                FUNCTION.get()
            }
        )*
    };
}

optional_functions! {
    free_sized: unsafe extern "C" fn(*mut c_void, usize), c"free_sized";
    free_aligned_sized: unsafe extern "C" fn(*mut c_void, usize, usize), c"free_aligned_sized";
    pthread_attr_setstack: SetStack, c"pthread_attr_setstack";
    pthread_attr_setguardsize: SetGuardSize, c"pthread_attr_setguardsize";
}

type SetStack = unsafe extern "C" fn(*mut libc::pthread_attr_t, *mut c_void, usize) -> i32;
type SetGuardSize = unsafe extern "C" fn(*mut libc::pthread_attr_t, usize) -> i32;

static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

const UNKNOWN: u8 = 0;
const LOOKING: u8 = 1;
const KNOWN: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

#[inline]
pub fn are_known() -> bool {
    STATE.load(Ordering::Acquire) == KNOWN
}

/// Looks the functions up. False during a look-up: allocate from the static area then.
#[cold]
pub fn look_up() -> bool {
    match STATE.compare_exchange(UNKNOWN, LOOKING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: the thread's own.
            let local = unsafe { &mut *arch::local() };
            let outer = std::mem::replace(&mut local.guard, guard::BELOW);
            for (place, name) in FOUND.iter().zip(NAMES) {
                place.store(next(name), Ordering::Relaxed);
            }
            local.guard = outer;
            STATE.store(KNOWN, Ordering::Release);
            true
        }
        Err(state) => state == KNOWN,
    }
}

/// Where this library's functions are, if it was loaded into a program that ran already; else 0. No other module
/// then finds its symbols, and nothing comes after it: below is what any module finds.
static LOADED_LATER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// REQUIRES: called before the first look-up.
pub fn load_later(own: Range<usize>) {
    LOADED_LATER[0].store(own.start, Ordering::Relaxed);
    LOADED_LATER[1].store(own.end, Ordering::Release);
}

pub fn is_loaded_later() -> bool {
    LOADED_LATER[1].load(Ordering::Acquire) != 0
}

/// The definition below, or 0.
pub fn next(name: &CStr) -> usize {
    let own = LOADED_LATER[0].load(Ordering::Relaxed)..LOADED_LATER[1].load(Ordering::Acquire);
    if own.is_empty() {
        return larder_wrap::next(name);
    }
    match larder_wrap::anywhere(name) {
        found if own.contains(&found) => 0,
        found => found,
    }
}

const AREA_BYTES: usize = 64 << 10;
const HEAD_BYTES: usize = 16;

#[repr(C, align(4096))]
struct Area(std::cell::UnsafeCell<[u8; AREA_BYTES]>);

// SAFETY: each part of it is returned once.
unsafe impl Sync for Area {}

static AREA: Area = Area(std::cell::UnsafeCell::new([0; AREA_BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Memory before there is an allocator; zeroed, never reused. Null when the area is full.
pub fn early(bytes: usize, align: usize) -> *mut c_void {
    let align = align.max(HEAD_BYTES);
    let base = AREA.0.get() as usize;
    let mut used = USED.load(Ordering::Relaxed);
    loop {
        let Some(start) = (base + used + HEAD_BYTES).checked_next_multiple_of(align) else {
            return std::ptr::null_mut();
        };
        let Some(end) = start
            .checked_add(bytes)
            .filter(|end| *end <= base + AREA_BYTES)
        else {
            return std::ptr::null_mut();
        };
        let new = end - base;
        match USED.compare_exchange_weak(used, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: the bytes before the block are this block's own.
                unsafe { ((start - HEAD_BYTES) as *mut usize).write(bytes) };
                return start as *mut c_void;
            }
            Err(now) => used = now,
        }
    }
}

#[inline]
pub fn is_early(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(AREA.0.get() as usize) < AREA_BYTES
}

/// The requested size of an early block.
pub fn early_size(block: *const c_void) -> usize {
    // SAFETY: `early` wrote it before the block.
    unsafe { ((block as usize - HEAD_BYTES) as *const usize).read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_blocks_are_aligned_and_known() {
        let a = early(10, 1);
        let b = early(100, 256);
        assert!(is_early(a) && is_early(b));
        assert_eq!((a as usize % 16, b as usize % 256), (0, 0));
        assert_eq!((early_size(a), early_size(b)), (10, 100));
        assert!(!is_early((&raw const a).cast()));
        assert!(early(AREA_BYTES, 1).is_null());
    }
}
