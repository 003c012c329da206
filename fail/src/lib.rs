//! Makes calls of the malloc family fail, as if memory had run out: preloaded by `larder run --fail-…`.
//!
//! It is no mode of the recorder: a single counter decides, so it is easy to see that the library changes
//! nothing else, and a process image needs only a page or two.
//!
//! A call of the program, or of one of its libraries (libc included), counts once. Each process image has
//! its own count, which starts again after exec and in a child of fork. Numbers come from one atomic
//! counter, so exactly the requested calls fail, with any threads; with one thread they are the same in
//! every run of a deterministic program.
//!
//! Not counted: free, a realloc to size 0, calls of a process that shares its parent's memory (vfork).

#[allow(dead_code, reason = "each side uses its part")]
mod layout;
mod operators;
mod real;
mod stack;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use larder_trace::AllocCall;
use layout::{FILE_BYTES, HEADER_BYTES, Header, LOG_VARIABLE, MAGIC, RANGE_VARIABLE, SLOTS, Slot};

/// The first call that fails, and the last, counted from 1.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// The state of this image, in a page that the kernel zeroes in a child of fork.
static STATE: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNSTARTED).cast_mut());
static UNSTARTED: AtomicU32 = AtomicU32::new(NEW);
const NEW: u32 = 0;
const STARTING: u32 = 1;
const COUNTING: u32 = 2;
const OFF: u32 = 3;

/// The shared file, or null.
static LOG: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// This image's slot, while it counts.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        real::look_up();
        is_counting();
    }
    constructor
};

/// Counts a call and decides whether it fails.
#[inline]
fn fails(call: AllocCall, size: usize) -> bool {
    if !is_counting() || operators::is_below_new() {
        return false;
    }
    // SAFETY: while counting, a slot in memory that stays mapped.
    let slot = unsafe { &*SLOT.load(Ordering::Relaxed) };
    let number = slot.calls.fetch_add(1, Ordering::Relaxed) + 1;
    if number < FIRST.load(Ordering::Relaxed) || number > LAST.load(Ordering::Relaxed) {
        return false;
    }
    if slot.failed.fetch_add(1, Ordering::Relaxed) == 0 {
        describe(slot, number, call, size);
    }
    true
}

#[inline]
fn is_counting() -> bool {
    // SAFETY: points at `UNSTARTED` or at a page that stays mapped.
    let state = unsafe { &*STATE.load(Ordering::Acquire) };
    match state.load(Ordering::Acquire) {
        COUNTING => true,
        NEW => begin(state),
        _ => false,
    }
}

/// The first call of an image, or of a child of fork.
#[cold]
fn begin(state: &AtomicU32) -> bool {
    // Another library's start-up calls before libc's has run: this library's constructor runs later.
    // SAFETY: reads a word that is set once by then.
    if unsafe { libc_environment() }.is_null() {
        return false;
    }
    let claimed = state.compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Relaxed);
    if claimed.is_err() {
        return false;
    }
    let errno = errno();
    let first_image = SLOT.load(Ordering::Relaxed).is_null();
    let wanted = !first_image || start();
    let slot = if wanted { claim_slot() } else { None };
    if let Some(slot) = slot {
        SLOT.store(slot, Ordering::Release);
    }
    let now = if slot.is_some() { COUNTING } else { OFF };
    // SAFETY: as above; `start` may have moved it.
    unsafe { &*STATE.load(Ordering::Acquire) }.store(now, Ordering::Release);
    set_errno(errno);
    slot.is_some()
}

unsafe fn libc_environment() -> *const *const libc::c_char {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: the caller's promise.
    unsafe { environ }
}

/// Reads the configuration, and maps the log.
fn start() -> bool {
    // SAFETY: reads the auxiliary vector, and the environment before the program can change it.
    let (privileged, range, log) = unsafe {
        (
            libc::getauxval(libc::AT_SECURE) != 0,
            variable(RANGE_VARIABLE),
            variable(LOG_VARIABLE),
        )
    };
    let (Some(range), false) = (range, privileged) else {
        return false;
    };
    if let Some((first, last)) = parse_range(range.to_bytes()) {
        FIRST.store(first, Ordering::Relaxed);
        LAST.store(last, Ordering::Relaxed);
    }
    if let Some(path) = log {
        // SAFETY: a path that ends with a NUL; the mapping is new.
        unsafe {
            let file = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if file >= 0 {
                let flags = libc::MAP_SHARED;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let mapped =
                    libc::mmap(std::ptr::null_mut(), FILE_BYTES, protection, flags, file, 0);
                libc::close(file);
                if mapped != libc::MAP_FAILED && (*mapped.cast::<Header>()).magic == MAGIC {
                    LOG.store(mapped.cast(), Ordering::Release);
                }
            }
        }
    }
    move_state();
    true
}

/// `first-last`. Without the first nothing fails, without the last all calls from the first on.
fn parse_range(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (first, last) = text.split_once('-')?;
    let last = if last.is_empty() {
        u64::MAX
    } else {
        last.parse().ok()?
    };
    Some((first.parse().ok()?, last))
}

unsafe fn variable(name: &str) -> Option<&'static std::ffi::CStr> {
    let mut terminated = [0u8; 32];
    terminated
        .get_mut(..name.len())?
        .copy_from_slice(name.as_bytes());
    // SAFETY: the name ends with a NUL; the value lives as long as the environment.
    unsafe {
        let value = libc::getenv(terminated.as_ptr().cast());
        (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value))
    }
}

/// Puts the state where fork clears it. Without such a page (Linux before 4.14) a child of fork continues
/// to count in its parent's slot.
fn move_state() {
    if let Some(page) = map_anonymous(4096) {
        // SAFETY: the page just mapped; it is never unmapped.
        unsafe {
            libc::madvise(page.cast(), 4096, libc::MADV_WIPEONFORK);
            let state = page.cast::<AtomicU32>();
            (*state).store(STARTING, Ordering::Release);
            STATE.store(state, Ordering::Release);
        }
    }
}

fn map_anonymous(bytes: usize) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (page != libc::MAP_FAILED).then_some(page.cast())
}

/// A slot in the log; a dummy if there is no log, or if it is full.
fn claim_slot() -> Option<*mut Slot> {
    let log = LOG.load(Ordering::Acquire);
    if !log.is_null() {
        // SAFETY: the log begins with its header.
        let number = unsafe {
            (*log.cast::<Header>())
                .images
                .fetch_add(1, Ordering::Relaxed)
        };
        if (number as usize) < SLOTS {
            let offset = HEADER_BYTES + number as usize * size_of::<Slot>();
            // SAFETY: within the mapping; getpid has no way to fail.
            unsafe {
                let slot = log.add(offset).cast::<Slot>();
                (*slot).pid.store(libc::getpid() as u32, Ordering::Relaxed);
                return Some(slot);
            }
        }
    }
    map_anonymous(size_of::<Slot>()).map(<*mut u8>::cast)
}

/// Records the first call that fails.
#[cold]
fn describe(slot: &Slot, number: u64, call: AllocCall, size: usize) {
    let errno = errno();
    slot.number.store(number, Ordering::Relaxed);
    slot.call.store(u32::from(call.code()), Ordering::Relaxed);
    slot.size.store(size as u64, Ordering::Relaxed);
    let text = (&raw const slot.text).cast_mut().cast::<u8>();
    // SAFETY: only the thread that has made the count of failures 1 gets here and writes the text.
    let bytes = unsafe { stack::write(std::slice::from_raw_parts_mut(text, slot.text.len())) };
    slot.text_bytes.store(bytes as u32, Ordering::Relaxed);
    slot.described.store(1, Ordering::Release);
    set_errno(errno);
}

fn errno() -> c_int {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() }
}

fn set_errno(number: c_int) {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = number };
}

fn out_of_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

macro_rules! family {
    ($($name:ident: $call:ident($($argument:ident: $type:ty),*), $size:expr;)*) => {
        $(
            /// # Safety
            /// As libc's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, allow(dead_code))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
                if fails(AllocCall::$call, $size) {
                    return out_of_memory();
                }
                match real::$name() {
                    // SAFETY: the caller's own arguments.
                    Some(function) => unsafe { function($($argument),*) },
                    None => out_of_memory(),
                }
            }
        )*
    };
}

family! {
    malloc: Malloc(size: usize), size;
    calloc: Calloc(count: usize, size: usize), count.saturating_mul(size);
    aligned_alloc: AlignedAlloc(align: usize, size: usize), size;
    memalign: Memalign(align: usize, size: usize), size;
    valloc: Valloc(size: usize), size;
    pvalloc: Pvalloc(size: usize), size;
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    let frees = size == 0 && !old.is_null();
    if !frees && fails(AllocCall::Realloc, size) {
        return out_of_memory();
    }
    match real::realloc() {
        // SAFETY: the caller's own arguments.
        Some(function) => unsafe { function(old, size) },
        None => out_of_memory(),
    }
}

/// Calls the realloc below: the reallocarray below may call our realloc, which would count twice.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub unsafe extern "C" fn reallocarray(old: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return out_of_memory();
    };
    let frees = bytes == 0 && !old.is_null();
    if !frees && fails(AllocCall::Reallocarray, bytes) {
        return out_of_memory();
    }
    match real::realloc() {
        // SAFETY: the caller's own arguments.
        Some(function) => unsafe { function(old, bytes) },
        None => out_of_memory(),
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if fails(AllocCall::PosixMemalign, size) {
        return libc::ENOMEM;
    }
    match real::posix_memalign() {
        // SAFETY: the caller's own arguments.
        Some(function) => unsafe { function(place, align, size) },
        None => libc::ENOMEM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_numbers_or_open_at_its_end() {
        assert_eq!(parse_range(b"17-17"), Some((17, 17)));
        assert_eq!(parse_range(b"11-"), Some((11, u64::MAX)));
        for nothing in [&b"-"[..], b"", b"x-", b"-5", b"1", b"1-x", b"\xff-"] {
            assert_eq!(parse_range(nothing), None, "{nothing:?}");
        }
    }
}
