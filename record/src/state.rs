//! Whether this process records, from its first call to its end, through fork, a full disk and exit.
//!
//! Thread safety: `MODE` changes by compare-and-swap. `alive` is a word in a page that the kernel zeroes
//! in a child of fork, so that the first call in a child detects the fork, whichever call made it, before
//! it accesses anything of the parent's.
//!
//! Invariant: hooks record only while `alive`, which is the recording's number, from 1 on; every way out of
//! recording clears it. A thread's stream is of the recording `joined - 1`.

use std::ffi::{CStr, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use larder_trace::layout::{
    CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, Contents, EndState, FileHeader, Origin, Slot,
};
use larder_trace::{StopReason, process};

use crate::arch::Local;
use crate::config;
use crate::fixed::FixedPath;
use crate::hooks::guard;
use crate::stream::{self, Stream};
use crate::sys::{self, Errno};
use crate::{
    HEAP, arch, ask, chunk, clock, contents, counters, cpu, file, map, real, redirect, walk,
};

const UNSTARTED: u8 = 0;
const STARTING: u8 = 1;
const RECORDING: u8 = 2;
/// Not requested, not allowed, or not possible.
const OFF: u8 = 3;
/// Ended early; calls are counted as lost.
const STOPPED: u8 = 4;

static MODE: AtomicU8 = AtomicU8::new(UNSTARTED);
static DEAD: AtomicU32 = AtomicU32::new(0);
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const DEAD).cast_mut());
static FOLDER: FixedPath = FixedPath::new();
/// How many recordings this process and those that it is forked from have begun.
static RECORDINGS: AtomicU32 = AtomicU32::new(0);
static COPIES: AtomicBool = AtomicBool::new(false);
static FOLLOW_FORK: AtomicBool = AtomicBool::new(true);
static KERNEL: AtomicBool = AtomicBool::new(false);
/// The pthread key whose destructor reports a thread's end, plus one; 0 for none.
static KEY: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
pub fn is_recording() -> bool {
    recording() != 0
}

/// The number of the recording that runs; 0: none does.
#[inline(always)]
pub fn recording() -> u32 {
    // SAFETY: points at `DEAD` or at a page that stays mapped.
    unsafe { (*ALIVE.load(Ordering::Relaxed)).load(Ordering::Relaxed) }
}

/// Whether a thread's stream is of the recording that runs. Never of a thread that has none: its word is 0.
#[inline(always)]
pub fn is_joined(joined: u32) -> bool {
    recording().wrapping_add(1) == joined
}

/// Called if `is_recording` is false: starts the recording if necessary. Returns whether to record now.
#[cold]
#[inline(never)]
pub fn enter_slow() -> bool {
    match MODE.load(Ordering::Acquire) {
        UNSTARTED => begin(UNSTARTED, start),
        RECORDING if !is_recording() => begin(RECORDING, start_child),
        RECORDING => true,
        STOPPED => {
            count_lost();
            false
        }
        _ => false,
    }
}

/// Counts a call that came after the recording had stopped early.
#[cold]
pub fn count_lost() {
    if MODE.load(Ordering::Relaxed) == STOPPED {
        file::add_to_slot(Slot::LostStopped, 1);
    }
}

/// Whether strdup and its like are recorded as copies, too.
#[inline]
pub fn copies_are_recorded() -> bool {
    COPIES.load(Ordering::Relaxed)
}

/// Whether every system call is recorded, also those made without libc.
pub fn system_calls_are_dispatched() -> bool {
    is_recording() && KERNEL.load(Ordering::Relaxed)
}

fn begin(from: u8, start: impl FnOnce() -> bool) -> bool {
    if MODE
        .compare_exchange(from, STARTING, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    let started = std::panic::catch_unwind(AssertUnwindSafe(start)).unwrap_or(false);
    if started {
        let number = RECORDINGS.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: the first two words of the page that `start` made.
        unsafe {
            let alive = ALIVE.load(Ordering::Relaxed);
            (*alive.add(1)).store(sys::process_id(), Ordering::Relaxed);
            (*alive).store(number, Ordering::Release);
        }
    }
    // The first write may have failed because the disk is full.
    let to = if started { RECORDING } else { OFF };
    let _ = MODE.compare_exchange(STARTING, to, Ordering::AcqRel, Ordering::Relaxed);
    started && MODE.load(Ordering::Relaxed) == RECORDING
}

/// Ends the recording permanently; the program continues.
#[cold]
pub fn stop(reason: StopReason, errno: i32) {
    // After `detach` a thread may still fail to write.
    let stopped = |mode| (mode != OFF).then_some(STOPPED);
    let Ok(was) = MODE.fetch_update(Ordering::AcqRel, Ordering::Acquire, stopped) else {
        return;
    };
    // SAFETY: as in `is_recording`.
    unsafe { (*ALIVE.load(Ordering::Relaxed)).store(0, Ordering::Release) };
    if was != STOPPED {
        file::set_slot(Slot::StopErrno, errno as u64);
        file::set_slot(Slot::StopReason, reason as u64);
        clock::note();
    }
}

/// The first call of the image, or the library's constructor.
fn start() -> bool {
    if is_privileged() {
        return false;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let stack = InitialStack::find();
    let Some(config) = config::read(&stack) else {
        return false;
    };
    clock::start();
    if !make_alive_page() || !make_key() {
        return false;
    }
    FOLLOW_FORK.store(config.follow_fork, Ordering::Relaxed);
    if !config.counters_only {
        if config.contents {
            contents::start();
        }
        COPIES.store(config.copies, Ordering::Relaxed);
    }
    if let Err(errno) = open_file(config.folder, Origin::Start) {
        file::warn(
            b"this program is not recorded: cannot write a trace into ",
            FOLDER.get(),
            Some(errno),
            b"give `larder record -o` a folder that can be written",
        );
        return false;
    }
    if config.counters_only {
        counters::start();
    } else {
        if let Some(name) = config.leaks {
            ask::start(name);
        }
    }
    walk::start(stack.address() as u64);
    map::start();
    write_process(&stack);
    if config.cpu_hz > 0 && !config.counters_only {
        cpu::start(config.cpu_hz);
    }
    KERNEL.store(config.kernel && !config.counters_only, Ordering::Relaxed);
    true
}

/// Begins to record a program that runs already, and only this process. REQUIRES: `folder` is absolute. `None`: it
/// is recorded already.
pub fn attach(folder: &[u8]) -> Option<Result<(), Errno>> {
    if MODE.load(Ordering::Acquire) == RECORDING && !is_recording() {
        // A child of fork, in which no call was made yet: its parent is recorded.
        enter_slow();
    }
    let from = MODE.load(Ordering::Acquire);
    if from != UNSTARTED && from != OFF {
        return None;
    }
    let mut done = Err(Errno(libc::ENOMEM));
    begin(from, || {
        done = start_attached(folder);
        done.is_ok()
    });
    Some(done)
}

fn start_attached(folder: &[u8]) -> Result<(), Errno> {
    if is_privileged() {
        return Err(Errno(libc::EPERM));
    }
    std::panic::set_hook(Box::new(|_| {}));
    FOLLOW_FORK.store(false, Ordering::Relaxed);
    clock::start();
    let is_first = ALIVE.load(Ordering::Relaxed).cast_const() == &raw const DEAD;
    if is_first && !(make_alive_page() && make_key()) {
        return Err(Errno(libc::ENOMEM));
    }
    // A thread that still noted a module has opened the last file again.
    file::close();
    open_file(folder, Origin::Attach)?;
    let stack = InitialStack::find();
    walk::start(stack.address() as u64);
    map::start();
    write_process(&stack);
    Ok(())
}

/// Ends the recording that `attach` began; another may follow. Returns whether there was one.
pub fn detach() -> bool {
    let was = MODE.swap(OFF, Ordering::AcqRel);
    if was == RECORDING {
        clock::note();
    }
    // SAFETY: as in `recording`.
    unsafe { (*ALIVE.load(Ordering::Relaxed)).store(0, Ordering::Release) };
    // A thread that is in a hook may still add a call to its part of the file, which stays mapped, but no chunk.
    stream::await_writers();
    file::close();
    was == RECORDING || was == STOPPED
}

fn is_privileged() -> bool {
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn make_alive_page() -> bool {
    let Ok(page) = sys::map_anonymous(4096) else {
        return false;
    };
    ALIVE.store(page.cast(), Ordering::Release);
    // SAFETY: the page just mapped; the handler only clears its word. A kernel before 4.14 refuses the first, and qemu
    // ignores it: libc's handlers see fork(), if not the bare system call.
    unsafe {
        let _ = sys::wipe_on_fork(page, 4096);
        libc::pthread_atfork(None, None, Some(clear_alive)) == 0
    }
}

/// In a child, which may be recorded already if the kernel has wiped the page.
extern "C" fn clear_alive() {
    // SAFETY: the first two words of the page.
    unsafe {
        let alive = ALIVE.load(Ordering::Relaxed);
        if (*alive.add(1)).load(Ordering::Relaxed) != sys::process_id() {
            (*alive).store(0, Ordering::Relaxed);
        }
    }
}

fn make_key() -> bool {
    let mut key = 0;
    // SAFETY: the destructor has the right type.
    if unsafe { libc::pthread_key_create(&mut key, Some(at_thread_end)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
    true
}

/// Makes the trace file in the folder.
fn open_file(folder: &[u8], origin: Origin) -> Result<(), Errno> {
    let mut cwd = [0u8; 4096];
    let joined = if folder.first() == Some(&b'/') {
        FOLDER.set(&[folder])
    } else {
        let len = sys::working_directory(&mut cwd).unwrap_or(0);
        FOLDER.set(&[&cwd[..len], b"/", folder])
    };
    match joined {
        Some(_) => make_file(origin),
        None => Err(Errno(libc::ENAMETOOLONG)),
    }
}

/// `origin`: what the process's first image would have.
fn make_file(origin: Origin) -> Result<(), Errno> {
    let pid = sys::process_id();
    let new = FOLDER.with(|folder| file::create(folder.to_bytes(), pid))?;
    let (kind, shift) = clock::kind();
    let (start_ticks, start_monotonic_ns) = clock::origin();
    let origin = match (origin, new.image) {
        (Origin::Attach, _) | (_, 0) => origin,
        _ => Origin::Exec,
    };
    let header = FileHeader {
        pid,
        ppid: sys::parent_id(),
        image: new.image,
        origin,
        clock: kind,
        shift,
        start_ticks,
        start_monotonic_ns,
        start_wall_ns: sys::clock_ns(libc::CLOCK_REALTIME),
        machine: arch::MACHINE,
        page_bytes: 4096,
        asked: asked(),
    };
    new.open(&header)
}

/// For the header.
fn asked() -> u32 {
    let kinds = [
        (copies_are_recorded(), FileHeader::COPIES),
        (contents::are_on(), FileHeader::CONTENTS),
    ];
    let kinds = kinds.iter().filter(|(is_on, _)| *is_on);
    kinds.fold(0, |all, (_, kind)| all | kind)
}

/// The first call of a child of fork: abandons all state of the parent.
fn start_child() -> bool {
    HEAP.after_fork();
    map::after_fork();
    chunk::after_fork();
    redirect::after_fork();
    stream::forget_threads();
    if !FOLLOW_FORK.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the thread's own. Its stream was the parent's.
    unsafe { (*arch::local()).stream = std::ptr::null_mut() };
    stream::after_fork();
    counters::after_fork();
    contents::after_fork();
    // A child with another user or root may not be able to write here. The parent's header page, which it
    // still has mapped, counts it.
    file::leave_to_child(|| make_file(Origin::Fork)).is_ok_and(|()| {
        map::write_all_loads();
        write_process(&InitialStack::find());
        // SAFETY: the thread's own.
        cpu::after_fork(unsafe { &mut *arch::local() });
        true
    })
}

fn write_process(stack: &InitialStack) {
    let mut buffer = vec![0; CHUNK_HEADER_BYTES + (64 << 10)];
    let executable = map::executable();
    let room = &mut buffer[CHUNK_HEADER_BYTES..];
    let Some(bytes) = process::encode(room, &executable, stack.arguments()) else {
        return;
    };
    buffer.truncate(CHUNK_HEADER_BYTES + bytes);
    let header = ChunkHeader {
        kind: ChunkKind::Process,
        compressed: false,
        columns: false,
        stored_bytes: bytes as u32,
        raw_bytes: bytes as u32,
        contents: Contents::default(),
    };
    file::append(&mut buffer, header);
}

/// The kernel's data above the main thread's stack: argument count, arguments, environment.
pub struct InitialStack {
    start: *const usize,
}

impl InitialStack {
    #[cfg(target_env = "gnu")]
    pub fn find() -> Self {
        // SAFETY: the loader's variable, which holds the stack pointer at the program's entry.
        let start = unsafe {
            let variable = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr());
            if variable.is_null() {
                std::ptr::null()
            } else {
                *variable.cast::<*const usize>()
            }
        };
        InitialStack { start }
    }

    #[cfg(target_env = "musl")]
    pub fn find() -> Self {
        // The program may close /proc to itself later.
        static START: AtomicPtr<usize> = AtomicPtr::new(std::ptr::null_mut());
        if START.load(Ordering::Relaxed).is_null() {
            let start = sys::first_stack_pointer().unwrap_or(0);
            START.store(start as *mut usize, Ordering::Relaxed);
        }
        InitialStack {
            start: START.load(Ordering::Relaxed),
        }
    }

    fn address(&self) -> usize {
        self.start as usize
    }

    fn count(&self) -> usize {
        if self.start.is_null() {
            return 0;
        }
        // SAFETY: the first word is argc.
        unsafe { self.start.read() }
    }

    pub fn arguments(&self) -> impl Iterator<Item = &'static [u8]> {
        let first = self.start.wrapping_add(1);
        // SAFETY: `count` pointers to C strings follow argc; they live as long as the program.
        (0..self.count()).map_while(move |number| unsafe {
            let argument = first.add(number).read() as *const libc::c_char;
            (!argument.is_null()).then(|| CStr::from_ptr(argument).to_bytes())
        })
    }

    /// The value of a variable in the initial environment.
    pub fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        if self.start.is_null() {
            return None;
        }
        let mut at = self.start.wrapping_add(1 + self.count() + 1);
        loop {
            // SAFETY: behind the arguments' null, pointers to C strings up to another null.
            let entry = unsafe {
                let entry = at.read() as *const libc::c_char;
                if entry.is_null() {
                    return None;
                }
                CStr::from_ptr(entry).to_bytes()
            };
            if let Some(value) = entry
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(b"="))
            {
                return Some(value);
            }
            at = at.wrapping_add(1);
        }
    }
}

/// Registers the calling thread, so that libc reports its end.
pub fn watch_thread_end(stream: *mut Stream) {
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the thread's own.
        let local = unsafe { &mut *arch::local() };
        // For a high key libc allocates.
        let outer = std::mem::replace(&mut local.guard, guard::BELOW);
        // SAFETY: the key was made by `make_key`.
        unsafe { libc::pthread_setspecific(key, stream.cast()) };
        local.guard = outer;
    }
}

/// libc runs the destructors of a thread's keys up to four times while any is set. This one requests the
/// next call until the last, so that what the others free is still recorded.
unsafe extern "C" fn at_thread_end(stream: *mut c_void) {
    const ROUNDS: usize = 4;
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.stream.cast() != stream {
        return;
    }
    if !is_joined(local.joined) {
        if real::is_loaded_later() && MODE.load(Ordering::Relaxed) == OFF {
            // Its recording has ended; the stream may serve in the next.
            stream::set_aside(local.stream);
        }
        return;
    }
    local.rounds += 1;
    let outer = std::mem::replace(&mut local.guard, guard::RECORDER);
    if local.rounds < ROUNDS {
        watch_thread_end(local.stream);
    } else {
        cpu::end_thread(local);
        stream::retire(local.stream);
    }
    local.guard = outer;
}

/// The image ends: writes the contents of live blocks to the trace, if requested. Not from a signal
/// handler that interrupted the recorder, which may hold a lock.
pub fn tell_live(local: &mut Local) {
    // SAFETY: the thread's own stream, or null.
    let stream = unsafe { local.stream.as_mut() };
    if let Some(stream) = stream
        && contents::are_on()
        && local.guard == guard::NONE
    {
        local.guard = guard::RECORDER;
        let here = 0u8;
        contents::each_live(|address, fingerprint| {
            stream.contents((&raw const here).addr(), address, fingerprint, clock::now());
        });
        local.guard = guard::NONE;
    }
}

/// The library's destructor.
pub fn at_exit() {
    if !is_recording() {
        return;
    }
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    tell_live(local);
    ask::at_exit(local);
    // A handler may have jumped out of the recorder: then it is set.
    let outer = std::mem::replace(&mut local.guard, guard::RECORDER);
    cpu::flush(local);
    stream::seal_at_exit(local.stream);
    clock::note();
    file::set_slot(Slot::EndState, EndState::Exited as u64);
    local.guard = outer;
}

/// Describes the errors that opening a file may have.
pub fn describe(errno: i32) -> &'static [u8] {
    match errno {
        libc::ENOENT => b"it does not exist",
        libc::EACCES | libc::EPERM => b"no permission",
        libc::ENOTDIR => b"it is not a folder",
        libc::ENOSPC => b"no space left on the device",
        libc::EDQUOT => b"the disk quota is used up",
        libc::EFBIG => b"the limit on file sizes is reached",
        libc::EROFS => b"the file system is read-only",
        libc::ENAMETOOLONG => b"the path is too long",
        libc::EMFILE | libc::ENFILE => b"too many open files",
        libc::ELOOP => b"too many symbolic links",
        libc::ENOMEM => b"out of memory",
        libc::EOPNOTSUPP => b"its file system is not ext4, xfs, tmpfs, f2fs or overlay",
        _ => b"the system refused",
    }
}
