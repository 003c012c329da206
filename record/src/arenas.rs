//! The arenas of CPython's pools, from which objects of up to 512 bytes come. The interpreter maps them past malloc, so
//! they are recorded like calls of `valloc` and `free`: without them most of what a Python program holds is missing.
//!
//! Thread safety: set before the program's own code runs, and constant from there on.

use std::ffi::c_void;
use std::sync::OnceLock;

use larder_trace::{AllocCall, FreeCall};
use larder_wrap::entry;

use crate::arch::Caller;
use crate::hooks::{self, Hook};
use crate::map;

type Take = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type GiveBack = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);
type Exchange = unsafe extern "C" fn(*mut Arenas);

/// CPython's `PyObjectArenaAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Arenas {
    context: *mut c_void,
    take: Option<Take>,
    give_back: Option<GiveBack>,
}

// SAFETY: the interpreter calls these functions with this context in any thread.
unsafe impl Send for Arenas {}
// SAFETY: as above.
unsafe impl Sync for Arenas {}

static BELOW: OnceLock<Arenas> = OnceLock::new();

/// Puts the functions here in front of the interpreter's, if the program has started with one.
pub fn watch() {
    let Some([get, set]) = map::current().and_then(|map| map.arena_functions()) else {
        return;
    };
    let own = [c"larder_record_arena", c"larder_record_arena_end"].map(larder_wrap::anywhere);
    if own.contains(&0) {
        return;
    }
    let mut arenas = Arenas {
        context: std::ptr::null_mut(),
        take: None,
        give_back: None,
    };
    // SAFETY: CPython's functions of these names have these types, and may be called before it is initialized; those
    // of this library have the types that the fields have.
    unsafe {
        let [get, set] = [get, set].map(|address| std::mem::transmute::<usize, Exchange>(address));
        get(&mut arenas);
        if arenas.take.is_none() || arenas.give_back.is_none() || BELOW.set(arenas).is_err() {
            return;
        }
        arenas.take = Some(std::mem::transmute::<usize, Take>(own[0]));
        arenas.give_back = Some(std::mem::transmute::<usize, GiveBack>(own[1]));
        set(&mut arenas);
    }
}

entry!("larder_record_arena" => take);
unsafe extern "C" fn take(
    context: *mut c_void,
    size: usize,
    _: usize,
    _: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    let Some(function) = BELOW.get().and_then(|below| below.take) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the interpreter's own arguments.
    let arena = unsafe { function(context, size) };
    if let Some(mut hook) = Hook::enter(sp, bp) {
        hook.made(AllocCall::Valloc, arena, size, 4096);
    }
    arena
}

entry!("larder_record_arena_end" => give_back);
unsafe extern "C" fn give_back(
    context: *mut c_void,
    arena: *mut c_void,
    size: usize,
    _: usize,
    sp: usize,
    bp: usize,
) {
    drop(hooks::end_block(
        FreeCall::Free,
        arena,
        0,
        0,
        Caller { sp, bp },
    ));
    if let Some(function) = BELOW.get().and_then(|below| below.give_back) {
        // SAFETY: the interpreter's own arguments.
        unsafe { function(context, arena, size) };
    }
}
