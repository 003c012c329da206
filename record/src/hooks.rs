//! The C functions that are interposed. Each calls the next definition ("below") and records the result.
//!
//! ```text
//! entry (asm) ─> implementation ─> Hook::enter ─> state::enter_slow (first call, child of fork)
//!                     │                └──────> stream::attach (first call of a thread)
//!                     ├─> real::… (below)
//!                     └─> Hook::record ─> Stream::call
//! ```
//!
//! Invariants: a deallocation is recorded before it happens, an allocation after; calls that the functions
//! below make in turn are not recorded, because one call is one event; no hook changes `errno`.

use std::ffi::{c_int, c_void};

use larder_trace::codec::{Class, SystemCallRecord};
use larder_trace::layout::Slot;
use larder_trace::{AllocCall, Fingerprint, FreeCall};
use larder_wrap::entry;

use crate::arch::{self, Caller, Local};
use crate::blocks::Block;
use crate::errno::{Errno, out_of_memory};
use crate::registers::Registers;
use crate::stream::{self, Call, Stream};
use crate::{clock, contents, counters, file, real, stack, state};

/// The code that the thread is in, in `Local::guard`.
pub mod guard {
    pub const NONE: u32 = 0;
    /// The recorder's own code: the caller of a hook is then a signal handler, or the recorder itself.
    pub const RECORDER: u32 = 1;
    /// A function below, which may call others of the family.
    pub const BELOW: u32 = 2;
    /// The `operator new` below: its allocation is part of its call, but the calls of a new-handler, or of
    /// an exception that it throws, are not.
    pub const NEW: u32 = 3;
}

/// A call that is being recorded. The guard is set until it is dropped.
pub struct Hook {
    local: &'static mut Local,
    stream: *mut Stream,
    caller: Caller,
    /// As wide as the others: a hook is moved in whole words, and the load of a word of which a half was just
    /// stored waits for that store.
    outer: u64,
}

impl Hook {
    /// `None`: call the function below, but do not record.
    #[inline(always)]
    pub fn enter(sp: usize, bp: usize) -> Option<Hook> {
        // SAFETY: the thread's own; the reference does not outlive the call.
        let local = unsafe { &mut *arch::local() };
        if local.guard != guard::NONE || !state::is_joined(local.joined) {
            return Self::enter_slow(local, sp, bp);
        }
        if local.in_vfork != 0 {
            return Self::in_vfork();
        }
        local.guard = guard::RECORDER;
        let stream = local.stream;
        Some(Hook {
            local,
            stream,
            caller: Caller { sp, bp },
            outer: guard::NONE.into(),
        })
    }

    /// The same for a function that the recorder itself calls: in its own code nothing is lost.
    #[inline(always)]
    pub fn enter_quietly(sp: usize, bp: usize) -> Option<Hook> {
        // SAFETY: as in `enter`.
        let guard = unsafe { (*arch::local()).guard };
        if guard != guard::NONE {
            return None;
        }
        Self::enter(sp, bp)
    }

    #[cold]
    fn in_vfork() -> Option<Hook> {
        file::add_to_slot(Slot::LostVfork, 1);
        None
    }

    #[cold]
    #[inline(never)]
    fn enter_slow(local: &'static mut Local, sp: usize, bp: usize) -> Option<Hook> {
        if local.in_vfork != 0 {
            return if state::is_recording() {
                Self::in_vfork()
            } else {
                None
            };
        }
        if local.guard == guard::NEW && state::is_joined(local.joined) {
            local.guard = guard::RECORDER;
            let stream = local.stream;
            return Some(Hook {
                local,
                stream,
                caller: Caller { sp, bp },
                outer: guard::NEW.into(),
            });
        }
        if local.guard != guard::NONE {
            if local.guard == guard::RECORDER && state::is_joined(local.joined) {
                file::add_to_slot(Slot::LostReentrant, 1);
            }
            return None;
        }
        let errno = Errno::keep();
        local.guard = guard::RECORDER;
        let mut stream = std::ptr::null_mut();
        if state::is_recording() || state::enter_slow() {
            stream = match state::is_joined(local.joined) {
                true => local.stream,
                false => stream::attach(sp),
            };
        }
        drop(errno);
        if stream.is_null() {
            local.guard = guard::NONE;
            return None;
        }
        Some(Hook {
            local,
            stream,
            caller: Caller { sp, bp },
            outer: guard::NONE.into(),
        })
    }

    /// The same for a call that may be the allocation, of this size, of the `operator new` below.
    #[inline(always)]
    pub fn enter_to_make(size: usize, sp: usize, bp: usize) -> Option<Hook> {
        // SAFETY: as in `enter`.
        let local = unsafe { &*arch::local() };
        if local.guard == guard::NEW && (local.new_low..=local.new_high).contains(&size) {
            return None;
        }
        Self::enter(sp, bp)
    }

    /// Runs the `operator new` below.
    #[inline(always)]
    pub fn below_new<R>(&mut self, size: usize, align: usize, act: impl FnOnce() -> R) -> R {
        self.local.new_low = size.max(1);
        self.local.new_high = size.max(1).saturating_add(align);
        self.below(guard::NEW, act)
    }

    /// Runs a function below.
    #[inline(always)]
    pub fn below<R>(&mut self, kind: u32, act: impl FnOnce() -> R) -> R {
        self.local.guard = kind;
        let result = act();
        self.local.guard = guard::RECORDER;
        result
    }

    /// After an exception left a function below.
    pub fn leave_below(&mut self) {
        self.local.guard = guard::RECORDER;
    }

    #[inline(always)]
    pub fn record(&mut self, call: &Call) {
        // SAFETY: the thread's own stream, and the guard excludes its signal handlers.
        let stream = unsafe { &mut *self.stream };
        stream.call(self.caller, call);
    }

    #[inline(always)]
    pub fn made(&mut self, call: AllocCall, block: *mut c_void, size: usize, extra: usize) {
        self.record(&Call {
            class: Class::Alloc,
            code: call.code(),
            time: now(),
            address: block as usize,
            size,
            extra,
            begin: 0,
            old: 0,
        });
        if contents::are_on() {
            contents::made(call, block as usize, size, extra);
        }
    }

    /// A realloc begins. Returns its old block if contents are recorded.
    #[inline(always)]
    fn hold(&mut self, old: *mut c_void, begin: u64) -> Option<Block> {
        if counters::are_on() {
            // SAFETY: as in `record`.
            unsafe { (*self.stream).hold(old as usize) };
        }
        if !contents::are_on() {
            return None;
        }
        let (block, held) = contents::hold(old as usize);
        self.tell(old, held, begin);
        block
    }

    /// Records a block's contents.
    fn tell(&mut self, block: *mut c_void, held: Option<Fingerprint>, time: u64) {
        if let Some(held) = held {
            // SAFETY: as in `record`.
            unsafe { &mut *self.stream }.contents(self.caller.sp, block as usize, held, time);
        }
    }

    #[inline(always)]
    pub fn ends(&mut self, call: FreeCall, block: *mut c_void, size: usize, extra: usize) {
        let time = now();
        if contents::are_on() {
            self.tell(block, contents::ending(block as usize), time);
        }
        self.record(&Call {
            class: Class::Free,
            code: call.code(),
            time,
            address: block as usize,
            size,
            extra,
            begin: 0,
            old: 0,
        });
    }
}

/// Records what does not come from the malloc family; see `notes`.
impl Hook {
    pub fn mark(&mut self, name: &[u8]) {
        // SAFETY: as in `record`.
        unsafe { &mut *self.stream }.mark(self.caller.sp, name, clock::now());
    }

    #[inline]
    pub fn copied(&mut self, code: u8, to: usize, from: usize, bytes: usize, rate: usize) {
        let call = Call {
            class: Class::Copy,
            code,
            time: clock::now(),
            address: to,
            size: bytes,
            extra: rate,
            begin: 0,
            old: from,
        };
        // SAFETY: as in `record`.
        unsafe { &mut *self.stream }.copied(self.caller, &call);
        if contents::are_on() && rate == 0 {
            contents::copied(to, from, bytes);
        }
    }

    pub fn system_call(&mut self, code: u8, record: SystemCallRecord) {
        // SAFETY: as in `record`.
        unsafe { &mut *self.stream }.system_call(self.caller, code, record);
    }

    /// The same for one that the kernel has dispatched.
    pub fn interrupted_call(&mut self, at: Registers, code: u8, record: SystemCallRecord) {
        // SAFETY: as in `record`.
        unsafe { &mut *self.stream }.interrupted_call(at, code, record);
    }

    /// The same for one that no code of this image has made.
    pub fn outer_call(&mut self, code: u8, record: SystemCallRecord) {
        // SAFETY: as in `record`.
        unsafe { &mut *self.stream }.outer_call(code, record);
    }
}

/// The time of a call; 0 with counters, which need none.
#[inline(always)]
fn now() -> u64 {
    if counters::are_on() { 0 } else { clock::now() }
}

impl Drop for Hook {
    #[inline(always)]
    fn drop(&mut self) {
        self.local.guard = self.outer as u32;
    }
}

/// Allocates by a function below, or, while these are being looked up, from the static area.
macro_rules! below {
    ($function:ident, $early:expr) => {
        match real::$function() {
            Some(function) => function,
            None if real::look_up() => match real::$function() {
                Some(function) => function,
                None => return out_of_memory(),
            },
            None => return $early,
        }
    };
}
pub(crate) use below;

entry!("malloc" => malloc);
unsafe extern "C" fn malloc(
    size: usize,
    _: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    let function = below!(malloc, real::early(size, 1));
    // SAFETY: any size may be asked for.
    let act = || unsafe { function(size) };
    let Some(mut hook) = Hook::enter_to_make(size, sp, bp) else {
        return act();
    };
    let block = hook.below(guard::BELOW, act);
    hook.made(AllocCall::Malloc, block, size, 0);
    block
}

entry!("calloc" => calloc);
unsafe extern "C" fn calloc(
    count: usize,
    size: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    let function = below!(calloc, real::early(count.saturating_mul(size), 1));
    // SAFETY: any number and size may be asked for.
    let act = || unsafe { function(count, size) };
    let Some(mut hook) = Hook::enter(sp, bp) else {
        return act();
    };
    let block = hook.below(guard::BELOW, act);
    hook.made(AllocCall::Calloc, block, count.saturating_mul(size), count);
    block
}

entry!("realloc" => realloc);
unsafe extern "C" fn realloc(
    old: *mut c_void,
    size: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    // SAFETY: while there is no realloc below, every block is of the static area.
    let function = below!(realloc, unsafe { move_early(old, size) });
    if real::is_early(old) {
        // SAFETY: just found to be of the static area.
        return unsafe { move_early(old, size) };
    }
    // SAFETY: the block is the caller's, and of the functions below.
    let act = || unsafe { function(old, size) };
    change_size(AllocCall::Realloc, old, size, 0, Caller { sp, bp }, act)
}

entry!("reallocarray" => reallocarray);
unsafe extern "C" fn reallocarray(
    old: *mut c_void,
    count: usize,
    size: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return out_of_memory();
    };
    let caller = Caller { sp, bp };
    if real::is_early(old) {
        // SAFETY: just found to be of the static area.
        return unsafe { move_early(old, bytes) };
    }
    match real::reallocarray() {
        Some(function) => {
            // SAFETY: the block is the caller's, and of the functions below.
            let act = || unsafe { function(old, count, size) };
            change_size(AllocCall::Reallocarray, old, bytes, count, caller, act)
        }
        None => {
            // SAFETY: while there is no realloc below, every block is of the static area.
            let function = below!(realloc, unsafe { move_early(old, bytes) });
            // SAFETY: the block is the caller's, and of the functions below.
            let act = || unsafe { function(old, bytes) };
            change_size(AllocCall::Reallocarray, old, bytes, count, caller, act)
        }
    }
}

#[inline(always)]
fn change_size(
    call: AllocCall,
    old: *mut c_void,
    size: usize,
    count: usize,
    caller: Caller,
    act: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let Some(mut hook) = Hook::enter(caller.sp, caller.bp) else {
        return act();
    };
    let begin = now();
    let held = hook.hold(old, begin);
    let block = hook.below(guard::BELOW, act);
    hook.record(&Call {
        class: Class::Realloc,
        code: call.code(),
        time: now(),
        address: block as usize,
        size,
        extra: count,
        begin,
        old: old as usize,
    });
    if contents::are_on() {
        let failed = block.is_null() && (size != 0 || old.is_null());
        match held {
            Some(held) if failed => contents::put_back(old as usize, held),
            _ => contents::made(call, block as usize, size, count),
        }
    }
    block
}

/// A realloc of a block from the static area.
unsafe fn move_early(old: *mut c_void, size: usize) -> *mut c_void {
    let block = match real::malloc() {
        // SAFETY: any size may be asked for.
        Some(function) => unsafe { function(size) },
        None => real::early(size, 1),
    };
    if !block.is_null() && !old.is_null() {
        let bytes = real::early_size(old).min(size);
        // SAFETY: both blocks are at least this long, and apart.
        unsafe { std::ptr::copy_nonoverlapping(old.cast::<u8>(), block.cast::<u8>(), bytes) };
    }
    block
}

entry!("free" => free);
unsafe extern "C" fn free(block: *mut c_void, _: usize, _: usize, _: usize, sp: usize, bp: usize) {
    // SAFETY: the caller's own block.
    let act = || unsafe { give_back(block) };
    match end_block(FreeCall::Free, block, 0, 0, Caller { sp, bp }) {
        Some(mut hook) => hook.below(guard::BELOW, act),
        None => act(),
    }
}

#[inline(always)]
pub fn end_block(
    call: FreeCall,
    block: *mut c_void,
    size: usize,
    align: usize,
    caller: Caller,
) -> Option<Hook> {
    if real::is_early(block) {
        return None;
    }
    let mut hook = Hook::enter(caller.sp, caller.bp)?;
    hook.ends(call, block, size, align);
    Some(hook)
}

/// `free` of the functions below; blocks of the static area are never freed.
///
/// # Safety
/// The caller's own block.
pub unsafe fn give_back(block: *mut c_void) {
    if real::is_early(block) {
        return;
    }
    if real::free().is_none() {
        real::look_up();
    }
    if let Some(function) = real::free() {
        // SAFETY: the caller's promise.
        unsafe { function(block) };
    }
}

entry!("free_sized" => free_sized);
unsafe extern "C" fn free_sized(
    block: *mut c_void,
    size: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) {
    let hook = end_block(FreeCall::FreeSized, block, size, 0, Caller { sp, bp });
    let act = || match real::free_sized() {
        // SAFETY: the caller's own block and its size; it is of the functions below.
        Some(function) if !real::is_early(block) => unsafe { function(block, size) },
        // SAFETY: the caller's own block.
        _ => unsafe { give_back(block) },
    };
    match hook {
        Some(mut hook) => hook.below(guard::BELOW, act),
        None => act(),
    }
}

entry!("free_aligned_sized" => free_aligned_sized);
unsafe extern "C" fn free_aligned_sized(
    block: *mut c_void,
    align: usize,
    size: usize,
    _: usize,
    sp: usize,
    bp: usize,
) {
    let hook = end_block(
        FreeCall::FreeAlignedSized,
        block,
        size,
        align,
        Caller { sp, bp },
    );
    let act = || match real::free_aligned_sized() {
        // SAFETY: the caller's own block, its alignment and size; it is of the functions below.
        Some(function) if !real::is_early(block) => unsafe { function(block, align, size) },
        // SAFETY: the caller's own block.
        _ => unsafe { give_back(block) },
    };
    match hook {
        Some(mut hook) => hook.below(guard::BELOW, act),
        None => act(),
    }
}

macro_rules! aligned {
    ($name:literal, $function:ident, $call:ident) => {
        entry!($name => $function);
        unsafe extern "C" fn $function(
            align: usize,
            size: usize,
            _: usize,
            _: usize,
            sp: usize,
            bp: usize,
        ) -> *mut c_void {
            let function = below!($function, real::early(size, align));
            // SAFETY: any size may be asked for, and a bad alignment is refused.
            let act = || unsafe { function(align, size) };
            let Some(mut hook) = Hook::enter_to_make(size, sp, bp) else {
                return act();
            };
            let block = hook.below(guard::BELOW, act);
            hook.made(AllocCall::$call, block, size, align);
            block
        }
    };
}

aligned!("aligned_alloc", aligned_alloc, AlignedAlloc);
aligned!("memalign", memalign, Memalign);

entry!("posix_memalign" => posix_memalign);
unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: usize,
    size: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> c_int {
    if !real::are_known() && !real::look_up() {
        // SAFETY: the caller's own place.
        unsafe { *place = real::early(size, align) };
        return 0;
    }
    let Some(function) = real::posix_memalign() else {
        return libc::ENOMEM;
    };
    // SAFETY: the caller's own place; any size may be asked for, and a bad alignment is refused.
    let act = || unsafe { function(place, align, size) };
    let Some(mut hook) = Hook::enter_to_make(size, sp, bp) else {
        return act();
    };
    let result = hook.below(guard::BELOW, act);
    let block = if result == 0 {
        // SAFETY: on success the function below has written the place.
        unsafe { *place }
    } else {
        std::ptr::null_mut()
    };
    hook.made(AllocCall::PosixMemalign, block, size, align);
    result
}

macro_rules! page_aligned {
    ($name:literal, $function:ident, $call:ident) => {
        entry!($name => $function);
        unsafe extern "C" fn $function(
            size: usize,
            _: usize,
            _: usize,
            _: usize,
            sp: usize,
            bp: usize,
        ) -> *mut c_void {
            let function = below!($function, real::early(size, 4096));
            // SAFETY: any size may be asked for.
            let act = || unsafe { function(size) };
            let Some(mut hook) = Hook::enter(sp, bp) else { return act() };
            let block = hook.below(guard::BELOW, act);
            hook.made(AllocCall::$call, block, size, 4096);
            block
        }
    };
}

page_aligned!("valloc", valloc, Valloc);
page_aligned!("pvalloc", pvalloc, Pvalloc);

entry!("malloc_usable_size" => malloc_usable_size);
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if real::is_early(block) {
        return real::early_size(block);
    }
    match real::malloc_usable_size() {
        // SAFETY: the caller's own block.
        Some(function) => unsafe { function(block) },
        None => 0,
    }
}

/// The next module may have the same addresses, so the map is updated at once.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(function) = real::dlclose() else {
        return -1;
    };
    // SAFETY: the caller's own handle.
    let result = unsafe { function(handle) };
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard == guard::NONE && local.in_vfork == 0 && state::is_recording() {
        let errno = Errno::keep();
        local.guard = guard::RECORDER;
        crate::map::check_all();
        local.guard = guard::NONE;
        drop(errno);
    }
    result
}

/// The program provides threads' stacks: no guard page separates them from what lies below.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub unsafe extern "C" fn pthread_attr_setstack(
    attributes: *mut libc::pthread_attr_t,
    start: *mut c_void,
    bytes: usize,
) -> c_int {
    stack::trust_no_guard();
    match real::pthread_attr_setstack() {
        // SAFETY: the caller's own arguments.
        Some(function) => unsafe { function(attributes, start, bytes) },
        None => libc::ENOSYS,
    }
}

/// The same if threads' stacks get no guard pages.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
pub unsafe extern "C" fn pthread_attr_setguardsize(
    attributes: *mut libc::pthread_attr_t,
    bytes: usize,
) -> c_int {
    if bytes == 0 {
        stack::trust_no_guard();
    }
    match real::pthread_attr_setguardsize() {
        // SAFETY: the caller's own arguments.
        Some(function) => unsafe { function(attributes, bytes) },
        None => libc::ENOSYS,
    }
}

/// Called by the parent before `vfork`.
pub extern "C" fn vfork_before() {
    // SAFETY: the thread's own.
    unsafe { (*arch::local()).in_vfork += 1 };
}

/// Called by the parent when its child has ended; `result` is the system call's.
pub extern "C" fn vfork_after(result: isize) -> c_int {
    // SAFETY: the thread's own.
    unsafe { (*arch::local()).in_vfork -= 1 };
    if result < 0 {
        // SAFETY: the thread's own variable.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as c_int
}

/// Begins to record the calling thread before its first call.
pub fn begin_now() {
    start();
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard == guard::NONE && local.in_vfork == 0 && state::is_recording() {
        let errno = Errno::keep();
        local.guard = guard::RECORDER;
        if !state::is_joined(local.joined) {
            let here = 0u8;
            stream::attach((&raw const here).addr());
        }
        local.guard = guard::NONE;
        drop(errno);
    }
}

/// Starts the recording before the first call.
pub fn start() {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard == guard::NONE && !state::is_recording() {
        let errno = Errno::keep();
        local.guard = guard::RECORDER;
        state::enter_slow();
        local.guard = guard::NONE;
        drop(errno);
    }
}
