//! Redirects the calls of a program that runs already: the words through which its modules call the malloc family
//! (GOT entries, and pointers in data that the loader has relocated) lead to the hooks, and back again.
//!
//! A word is changed only if it has the address of the function below, or is not yet bound; back only if it has the
//! hook's. So a module that calls another malloc keeps it, and what the program has stored there since stays.
//!
//! Thread safety: a word is changed by one store; a spin lock, under which no other is taken, has one thread at a time
//! make words writable. The table is complete before `READY` is set.
//!
//! Not seen: pointers to the functions that the program has copied, and a malloc that is linked in statically.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{GOT_ENTRY, PLT_ENTRY, WORD};
use crate::exports::{Dynamic, NAMES, SYMBOLS};
use crate::sys;

/// A function, its hook, and what is below that.
struct Function {
    name: &'static CStr,
    hook: AtomicUsize,
    below: AtomicUsize,
}

macro_rules! functions {
    ($($name:literal)*) => {
        [$(Function { name: $name, hook: AtomicUsize::new(0), below: AtomicUsize::new(0) }),*]
    };
}

/// Its hook is not exported by this name, because only here it is one.
const LOOK_UP: &CStr = c"dlsym";
const LOOK_UP_HOOK: &CStr = c"larder_record_dlsym";

/// Sorted by name. All that the preloaded library replaces, but `malloc_usable_size`, which it only passes on, and
/// what says how stacks lie: the recorder trusts no guard page here.
static FUNCTIONS: [Function; 51] = functions! {
    c"_ZdaPv" c"_ZdaPvRKSt9nothrow_t" c"_ZdaPvSt11align_val_t" c"_ZdaPvSt11align_val_tRKSt9nothrow_t"
    c"_ZdaPvm" c"_ZdaPvmSt11align_val_t"
    c"_ZdlPv" c"_ZdlPvRKSt9nothrow_t" c"_ZdlPvSt11align_val_t" c"_ZdlPvSt11align_val_tRKSt9nothrow_t"
    c"_ZdlPvm" c"_ZdlPvmSt11align_val_t"
    c"_Znam" c"_ZnamRKSt9nothrow_t" c"_ZnamSt11align_val_t" c"_ZnamSt11align_val_tRKSt9nothrow_t"
    c"_Znwm" c"_ZnwmRKSt9nothrow_t" c"_ZnwmSt11align_val_t" c"_ZnwmSt11align_val_tRKSt9nothrow_t"
    c"__strdup" c"__strndup" c"aligned_alloc" c"calloc" c"dlclose" c"dlsym"
    c"execl" c"execle" c"execlp" c"execv" c"execve" c"execveat" c"execvp" c"execvpe" c"fexecve"
    c"free" c"free_aligned_sized" c"free_sized" c"malloc" c"memalign" c"posix_memalign" c"prctl" c"pvalloc"
    c"realloc" c"reallocarray" c"strdup" c"strndup" c"syscall" c"valloc" c"vfork" c"wcsdup"
};

/// How many modules the loader had loaded when `new_modules` looked last.
static LOADED: AtomicU64 = AtomicU64::new(0);
static READY: AtomicBool = AtomicBool::new(false);
/// Whether calls lead to the hooks.
static ON: AtomicBool = AtomicBool::new(false);

/// One thread makes changes.
static LOCKED: AtomicBool = AtomicBool::new(false);

/// In a child of fork: resets the lock, which another thread may have held.
pub fn after_fork() {
    LOCKED.store(false, Ordering::Release);
}

/// Finds the hooks and what is below them. `below`: of a name, or 0.
pub fn prepare(own: *mut c_void, below: fn(&CStr) -> usize) {
    for function in &FUNCTIONS {
        let hook = match function.name == LOOK_UP {
            true => LOOK_UP_HOOK,
            false => function.name,
        };
        // SAFETY: an open handle of this library, a C string.
        let hook = unsafe { larder_wrap::find(own, hook) };
        function.hook.store(hook, Ordering::Relaxed);
        let below = below(function.name);
        function.below.store(below, Ordering::Relaxed);
    }
    READY.store(true, Ordering::Release);
}

/// Redirects the calls of all modules. Another thread may just bind a word: a second pass finds it bound.
pub fn to_hooks() {
    ON.store(true, Ordering::Release);
    for _ in 0..2 {
        each_module();
    }
}

pub fn back() {
    ON.store(false, Ordering::Release);
    each_module();
}

/// The same for modules that were loaded since. REQUIRES: the caller may take the loader's locks.
pub fn new_modules() {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        // SAFETY: the loader's.
        let loaded = unsafe { (*info).dlpi_adds };
        i32::from(LOADED.swap(loaded, Ordering::Relaxed) != loaded)
    }
    if !ON.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the callback fits.
    if unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) } != 0 {
        each_module();
    }
}

/// The same for a module that a stack has led to. Takes no lock.
pub fn module_loaded(bias: usize, headers: &'static [libc::Elf64_Phdr]) {
    if ON.load(Ordering::Acquire) {
        change(bias, headers);
    }
}

fn each_module() {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> i32 {
        // SAFETY: the loader's.
        let info = unsafe { &*info };
        if !info.dlpi_phdr.is_null() {
            let count = usize::from(info.dlpi_phnum);
            // SAFETY: the loader says how many there are; the module stays while it calls this.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) };
            change(info.dlpi_addr as usize, headers);
        }
        0
    }
    // SAFETY: the callback fits.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}

fn change(bias: usize, headers: &[libc::Elf64_Phdr]) {
    if !READY.load(Ordering::Acquire) {
        return;
    }
    if let Some(module) = Module::of(bias, headers)
        && !module.is_own()
    {
        while LOCKED.swap(true, Ordering::Acquire) {
            sys::yield_processor();
        }
        module.change(ON.load(Ordering::Acquire));
        LOCKED.store(false, Ordering::Release);
    }
}

#[repr(C)]
struct Relocation {
    offset: usize,
    kind: u32,
    symbol: u32,
    addend: isize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// A loaded module, as far as its dynamic section says.
struct Module<'a> {
    bias: usize,
    headers: &'a [libc::Elf64_Phdr],
    symbols: *const Symbol,
    names: *const libc::c_char,
    tables: [&'a [Relocation]; 2],
    /// What the loader has made read-only.
    read_only: Range<usize>,
}

impl<'a> Module<'a> {
    fn of(bias: usize, headers: &'a [libc::Elf64_Phdr]) -> Option<Self> {
        const TABLE: (i64, i64) = (7, 8);
        const PLT_TABLE: (i64, i64) = (23, 2);
        let header = |kind| headers.iter().find(|header| header.p_type == kind);
        // SAFETY: the loader calls this for a module that stays meanwhile.
        let dynamic = unsafe { Dynamic::of(bias as u64, headers) }?;
        let table = |(start, bytes)| match (dynamic.address(start), dynamic.value(bytes)) {
            // SAFETY: the module's table, of so many bytes.
            (Some(start), Some(bytes)) => unsafe {
                let count = bytes as usize / size_of::<Relocation>();
                std::slice::from_raw_parts(start as *const Relocation, count)
            },
            _ => &[],
        };
        let read_only = header(libc::PT_GNU_RELRO).map_or(0..0, |header| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            let end = start.wrapping_add(header.p_memsz as usize);
            start & !(PAGE - 1)..end & !(PAGE - 1)
        });
        Some(Module {
            bias,
            headers,
            symbols: dynamic.address(SYMBOLS)? as *const Symbol,
            names: dynamic.address(NAMES)? as *const libc::c_char,
            tables: [table(TABLE), table(PLT_TABLE)],
            read_only,
        })
    }

    fn is_own(&self) -> bool {
        self.segment_of(change as *const () as usize).is_some()
    }

    fn segment_of(&self, address: usize) -> Option<&libc::Elf64_Phdr> {
        let loaded = self
            .headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        loaded.into_iter().find(|header| {
            let start = self.bias.wrapping_add(header.p_vaddr as usize);
            (start..start.saturating_add(header.p_memsz as usize)).contains(&address)
        })
    }

    fn change(&self, to_hooks: bool) {
        let mut opened = false;
        for relocation in self.tables.into_iter().flatten() {
            let Some((place, value)) = self.wanted(relocation, to_hooks) else {
                continue;
            };
            if self.read_only.contains(&place) && !opened {
                // SAFETY: the pages were written by the loader, and nobody else relies on a fault there.
                opened = unsafe { sys::protect(self.read_only.clone(), true) }.is_ok();
                if !opened {
                    return;
                }
            }
            // SAFETY: an aligned word of a writable segment, now writable; all threads read it as one word.
            unsafe { (*(place as *const AtomicUsize)).store(value, Ordering::Release) };
        }
        if opened {
            // SAFETY: as the loader left it.
            let _ = unsafe { sys::protect(self.read_only.clone(), false) };
        }
    }

    /// The word of a relocation and its new value, if it is to change.
    fn wanted(&self, relocation: &Relocation, to_hooks: bool) -> Option<(usize, usize)> {
        let in_kind = match relocation.kind {
            WORD => relocation.addend == 0,
            GOT_ENTRY | PLT_ENTRY => true,
            _ => false,
        };
        if !in_kind || relocation.symbol == 0 {
            return None;
        }
        // SAFETY: the module's own symbol, whose name is in its table.
        let (symbol, name) = unsafe {
            let symbol = &*self.symbols.add(relocation.symbol as usize);
            (symbol, CStr::from_ptr(self.names.add(symbol.name as usize)))
        };
        let found = FUNCTIONS
            .binary_search_by(|function| function.name.cmp(name))
            .ok()?;
        let function = FUNCTIONS.get(found)?;
        let [hook, below] = [&function.hook, &function.below].map(|at| at.load(Ordering::Relaxed));
        let place = self.bias.wrapping_add(relocation.offset);
        let writable = |header: &libc::Elf64_Phdr| header.p_flags & libc::PF_W != 0;
        if hook == 0
            || below == 0
            || !place.is_multiple_of(8)
            || !self.segment_of(place).is_some_and(writable)
        {
            return None;
        }
        // SAFETY: an aligned word of a loaded segment.
        let now = unsafe { (*(place as *const AtomicUsize)).load(Ordering::Acquire) };
        // Not bound yet, it leads to the module's own stub.
        let unbound = || {
            relocation.kind == PLT_ENTRY && symbol.section == 0 && self.segment_of(now).is_some()
        };
        match to_hooks {
            true => (now == below || unbound()).then_some((place, hook)),
            false => (now == hook).then_some((place, below)),
        }
    }
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_sorted() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.name < b.name));
    }
}
