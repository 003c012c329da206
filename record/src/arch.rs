//! Code for the processor: how a hook gets its caller's registers, the thread's own state, its counter, system calls,
//! `vfork`, and what the unwinder has to know.
//!
//! Each file of `arch/` has the same for one processor, but what dispatches system calls, which only x86-64 has.
//!
//! Invariant: `Local` is in initial-exec TLS, so that accessing it never allocates.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::arch::global_asm;
use std::ops::Range;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

use crate::cpu::Sampler;
use crate::stream::Stream;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the recorder knows x86-64 and aarch64 only");

/// What a hook was called with: the stack pointer of its entry, where the return address is, and the caller's frame
/// pointer.
#[derive(Clone, Copy)]
pub struct Caller {
    pub sp: usize,
    pub bp: usize,
}

impl Caller {
    /// # Safety
    /// The entry has not returned.
    #[inline(always)]
    pub unsafe fn return_address(self) -> usize {
        // SAFETY: by contract.
        unsafe { ((self.sp + RETURN_ADDRESS_AT) as *const usize).read() }
    }
}

/// A thread's own state. Initially zero.
#[repr(C)]
pub struct Local {
    pub guard: u32,
    /// Not 0 between `vfork` and its return in the parent; the child runs with it set.
    pub in_vfork: u32,
    pub stream: *mut Stream,
    /// How often the destructors of the ending thread have run.
    pub rounds: usize,
    /// In the `operator new` below: the possible sizes of its own allocation.
    pub new_low: usize,
    pub new_high: usize,
    /// What samples the thread's processor time; null if nothing does.
    pub sampler: *mut Sampler,
    /// When the call began that a stub makes, or `vfork`.
    pub call_begin: u64,
    /// The recording that `stream` belongs to; see `state::is_joined`.
    pub joined: u32,
    pub reserved: u32,
}

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".hidden larder_record_local",
    ".globl larder_record_local",
    ".type larder_record_local, @object",
    ".size larder_record_local, 64",
    ".balign 64",
    "larder_record_local:",
    ".zero 64",
    ".text",
);

const _: () = assert!(size_of::<Local>() == 64);

/// A thread's first function and its argument.
#[repr(C)]
pub struct Start {
    pub function: usize,
    pub argument: usize,
}

/// The segment of this library that has its code.
pub fn segment() -> Range<usize> {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader's, and the range below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Range<usize>>()) };
        for number in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: there are so many.
            let header = unsafe { &*info.dlpi_phdr.add(number) };
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            let range = start..start + header.p_memsz as usize;
            if header.p_type == libc::PT_LOAD && range.contains(&(segment as *const () as usize)) {
                *found = range;
                return 1;
            }
        }
        0
    }
    let mut found = 0..0;
    // SAFETY: the function has the right type.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}
