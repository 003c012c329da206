//! Asks the tool, at the program's end, which live blocks no pointer leads to. All calls are in the file,
//! so the tool knows the blocks; it stops the threads and follows the pointers. The answer goes into the
//! trace.
//!
//! ```text
//! exit ─> before_destructors ─> ask ─(which file, when)─> tool
//!                                └─<─(payloads, 0)─────────┘ ─> chunks
//! ```
//!
//! Thread safety: one thread ends the program. While it waits, the others run, or are stopped. It waits as
//! long as the connection is open; it closes when the tool ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use larder_trace::layout::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, Contents, MAX_RAW_BYTES};

use crate::arch::{self, Local};
use crate::hooks::guard;
use crate::sys::{self, Errno};
use crate::{clock, file, state};

/// The socket's name, in the environment; null: leaks are not checked.
static NAME: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static NAME_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The thread that asked before the program's destructors; 0: none.
static ASKED_BY: AtomicU32 = AtomicU32::new(0);

/// The longest name that fits an address.
const MOST_NAME: usize = 100;

/// glibc's: runs the function when the thread ends or calls `exit`, before the functions of `atexit`.
type AtThreadExit =
    unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> i32;

pub fn start(name: &'static [u8]) {
    if name.len() <= MOST_NAME {
        NAME_BYTES.store(name.len(), Ordering::Relaxed);
        NAME.store(name.as_ptr().cast_mut(), Ordering::Release);
        sys::mark_memory();
    }
}

fn name() -> Option<&'static [u8]> {
    let start = NAME.load(Ordering::Acquire);
    let bytes = NAME_BYTES.load(Ordering::Relaxed);
    // SAFETY: from the initial environment, which stays.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, bytes) })
}

/// Makes the thread that runs constructors ask before any destructor has run. With musl the library's destructor asks.
pub fn watch_exit() {
    static HERE: u8 = 0;
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if name().is_none() || local.guard != guard::NONE {
        return;
    }
    let found = larder_wrap::anywhere(c"__cxa_thread_atexit_impl");
    if found == 0 {
        return;
    }
    // SAFETY: the function has this type.
    let at_thread_exit = unsafe { std::mem::transmute::<usize, AtThreadExit>(found) };
    // The block that it allocates is not the program's.
    local.guard = guard::BELOW;
    let library = (&raw const HERE).cast_mut().cast();
    // SAFETY: this library is never unloaded.
    unsafe { at_thread_exit(before_destructors, std::ptr::null_mut(), library) };
    local.guard = guard::NONE;
}

unsafe extern "C" fn before_destructors(_: *mut c_void) {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard != guard::NONE || !state::is_recording() {
        return;
    }
    ASKED_BY.store(sys::thread_id(), Ordering::Relaxed);
    ask(local);
    // libc frees the block of `watch_exit` next; the program's own destructors follow.
    // SAFETY: the function has the right type.
    if unsafe { libc::atexit(listen_again) } == 0 {
        local.guard = guard::BELOW;
    }
}

extern "C" fn listen_again() {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard == guard::BELOW {
        local.guard = guard::NONE;
    }
}

/// Called by the library's destructor: another thread than the first may have called `exit`.
pub fn at_exit(local: &mut Local) {
    if ASKED_BY.load(Ordering::Relaxed) != sys::thread_id() && local.guard == guard::NONE {
        ask(local);
    }
}

fn ask(local: &mut Local) {
    let (Some(name), Some(numbers)) = (name(), file::numbers()) else {
        return;
    };
    // A child of vfork shares its parent's memory.
    if local.in_vfork != 0 {
        return;
    }
    let _errno = crate::errno::Errno::keep();
    local.guard = guard::RECORDER;
    clear_stack_below();
    connect(name, numbers);
    local.guard = guard::NONE;
}

/// Clears the stack where this call's frames will be: earlier calls left addresses of blocks there.
#[inline(never)]
fn clear_stack_below() {
    let mut words = [0u64; 512];
    for word in &mut words {
        // SAFETY: a local variable; a volatile write is not optimised away.
        unsafe { std::ptr::write_volatile(word, 0) };
    }
}

/// Runs in a frame of its own, which is clear.
#[inline(never)]
fn connect(name: &[u8], numbers: [u32; 2]) {
    if let Ok(fd) = sys::connect(name) {
        let _ = converse(fd, numbers);
        sys::close(fd);
    }
}

/// Little-endian: sends the file's numbers and the time; receives payloads behind their lengths, then 0.
fn converse(fd: i32, numbers: [u32; 2]) -> Result<(), Errno> {
    let tool = sys::peer(fd)?;
    if tool.uid != sys::user_id() && tool.uid != 0 {
        return Err(Errno(libc::EACCES));
    }
    sys::allow_tracing_by(tool.pid);
    let mut question = [0; 16];
    question[..4].copy_from_slice(&numbers[0].to_le_bytes());
    question[4..8].copy_from_slice(&numbers[1].to_le_bytes());
    question[8..].copy_from_slice(&clock::now().to_le_bytes());
    sys::send(fd, &question)?;
    loop {
        let mut length = [0; 4];
        read_all(fd, &mut length)?;
        let bytes = u32::from_le_bytes(length);
        if bytes == 0 || bytes as usize > MAX_RAW_BYTES {
            return Ok(());
        }
        let mut chunk = vec![0; CHUNK_HEADER_BYTES + bytes as usize];
        read_all(fd, chunk.get_mut(CHUNK_HEADER_BYTES..).unwrap_or_default())?;
        let header = ChunkHeader {
            kind: ChunkKind::Lost,
            compressed: false,
            columns: false,
            stored_bytes: bytes,
            raw_bytes: bytes,
            contents: Contents::default(),
        };
        if !file::append(&mut chunk, header) {
            return Ok(());
        }
    }
}

fn read_all(fd: i32, mut out: &mut [u8]) -> Result<(), Errno> {
    while !out.is_empty() {
        match sys::read(fd, out) {
            Ok(0) => return Err(Errno(libc::EPIPE)),
            Ok(read) => out = out.get_mut(read..).unwrap_or_default(),
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
