//! aarch64. The kernel dispatches no system calls there.
//!
//! Invariant: an entry (`larder_wrap::entry`) stores the frame pointer and the return address at its stack pointer, and
//! nothing above.

use std::arch::asm;

use framehop::aarch64::PtrAuthMask;
use framehop::{FrameAddress, Unwinder as _};
use gimli::{AArch64, Register, RegisterRule, Vendor};

use super::Local;
use crate::file;
use crate::map::Snapshot;
use crate::registers::{Registers, with_row};
use crate::rules::Cache;
use crate::stack::Frame;

pub use framehop::aarch64::UnwindRegsAarch64 as UnwindRegisters;

/// ELF's number for this processor, and the kernel's for its system calls.
pub const MACHINE: u32 = 183;
pub const AUDIT: u32 = 0xc000_00b7;

/// Where an entry's stack pointer has the return address, and how far above it the caller's is.
pub const RETURN_ADDRESS_AT: usize = 8;
pub const ENTRY_BYTES: usize = 16;

/// Kinds of relocations that make a word a symbol's address.
pub const WORD: u32 = 257;
pub const GOT_ENTRY: u32 = 1025;
pub const PLT_ENTRY: u32 = 1026;

/// The registers of the unwind tables, `COUNT` of them.
pub const VENDOR: Vendor = Vendor::AArch64;
pub const COUNT: usize = 33;
pub const IP: Register = AArch64::PC;
pub const SP: Register = AArch64::SP;
pub const BP: Register = AArch64::X29;
/// The one that has the return address.
pub const RETURN_ADDRESS: Register = AArch64::X30;
/// Those that a call preserves, without the stack pointer.
pub const PRESERVED: [Register; 11] = [
    AArch64::X19,
    AArch64::X20,
    AArch64::X21,
    AArch64::X22,
    AArch64::X23,
    AArch64::X24,
    AArch64::X25,
    AArch64::X26,
    AArch64::X27,
    AArch64::X28,
    AArch64::X29,
];
/// In the order of the kernel's `sigcontext`: x0 to x30, the stack pointer, and where the code was interrupted.
pub const INTERRUPTED: [Register; COUNT] = {
    let mut registers = [Register(0); COUNT];
    let mut number = 0;
    while number < COUNT {
        registers[number] = Register(number as u16);
        number += 1;
    }
    registers
};
/// The return address of a function that makes no calls is in a register.
pub const HAS_LINK_REGISTER: bool = true;

/// Where a frame's return address is, as an offset from the caller's stack pointer: behind the frame pointer.
#[inline(always)]
pub const fn return_address_at(bp_at: i16, restores_bp: bool) -> i16 {
    bp_at + 8 * restores_bp as i16
}

/// What an address has in a process; pointer authentication uses the rest for the signature.
const ADDRESS: u64 = (1 << 48) - 1;

/// A return address that the stack has, without what signs it.
#[inline(always)]
pub fn without_signature(address: u64) -> u64 {
    address & ADDRESS
}

/// Only where code was interrupted may its caller follow from the link register.
pub fn unwind_registers(at: &Frame, interrupted: &Option<Registers>) -> UnwindRegisters {
    let link = interrupted.as_ref().filter(|_| at.is_interrupted());
    let link = link.and_then(|registers| registers.get(RETURN_ADDRESS));
    let mask = PtrAuthMask(ADDRESS);
    UnwindRegisters::new_with_ptr_auth_mask(mask, link.unwrap_or(0), at.sp, at.bp)
}

/// From a frame to its caller: where that continues, `None` if there is none. framehop takes tables for wrong that say
/// where a return address is signed, so it is only asked where there are none.
pub fn unwind(
    map: &Snapshot,
    address: FrameAddress,
    registers: &mut UnwindRegisters,
    cache: &mut Cache,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, framehop::Error> {
    let mut known = Registers::unknown();
    known.set(SP, Some(registers.sp()));
    known.set(BP, Some(registers.fp()));
    known.set(RETURN_ADDRESS, Some(registers.lr()));
    let mut read_word = |address| read(address).ok();
    let caller = with_row(map, address.address_for_lookup(), |row| {
        let is_last = row.register(RETURN_ADDRESS) == Some(RegisterRule::Undefined);
        match is_last {
            true => Some(None),
            false => known.step(row, &[BP], &mut read_word).map(Some),
        }
    });
    match caller.flatten() {
        Some(Some(caller)) => {
            registers.set_sp(caller.sp().unwrap_or(0));
            registers.set_fp(caller.bp().unwrap_or(0));
            Ok(caller.ip().filter(|ip| *ip != 0))
        }
        Some(None) => Ok(None),
        None => map.unwinder.unwind_frame(address, registers, cache, read),
    }
}

pub fn frame_pointer(registers: &UnwindRegisters) -> u64 {
    registers.fp()
}

/// Makes a system call; a failed one returns the negative error number.
///
/// # Safety
/// That of the call with these arguments.
#[inline(always)]
pub unsafe fn system_call(number: i64, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") first as isize => result,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth,
            options(nostack)
        );
    }
    result
}

#[inline(always)]
pub fn local() -> *mut Local {
    let local: *mut Local;
    // SAFETY: the loader has stored the variable's offset from the thread pointer.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:larder_record_local",
            "ldr {0}, [{0}, :gottprel_lo12:larder_record_local]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) local,
            out(reg) _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    local
}

/// The end of the thread's control block, which glibc puts at the top of every stack that it makes.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {0}, tpidr_el0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags))
    };
    pointer
}

/// The counter, read after all earlier instructions.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
    ticks_about()
}

/// The counter, possibly some instructions early or late.
#[inline(always)]
pub fn ticks_about() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) };
    ticks
}

/// It does, but at 25 MHz on many machines, which is too slow for the trace's ticks.
pub fn has_invariant_counter() -> bool {
    false
}

/// Calls a function on another stack. The function must not unwind.
///
/// # Safety
/// `top` must be the 16-aligned end of memory that no other code currently uses as a stack.
pub unsafe fn on_stack(top: *mut u8, function: extern "C" fn(*mut u8), argument: *mut u8) {
    // SAFETY: x20 survives the call and brings the stack pointer back.
    unsafe {
        asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top,
            function = in(reg) function,
            inout("x0") argument => _,
            out("x20") _,
            clobber_abi("C")
        );
    }
}

/// An exported function that first calls another one, and then jumps to the function below with its own
/// arguments, whatever they are. The first one returns the address of the function below.
macro_rules! passage {
    ($name:literal => $look:path) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "stp x29, x30, [sp, #-80]!",
            ".cfi_def_cfa_offset 80",
            ".cfi_offset x29, -80",
            ".cfi_offset x30, -72",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "mov x29, sp",
            "bl {0}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldp x29, x30, [sp], #80",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            sym $look
        }
    };
}
pub(crate) use passage;

/// The child of vfork returns first, on the parent's stack. So the return address must be in a register:
/// the stack below the caller's frame is overwritten.
#[cfg_attr(not(test), unsafe(export_name = "vfork"))]
#[cfg_attr(test, allow(dead_code))]
#[unsafe(naked)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {before}",
        "ldp x29, x30, [sp], #16",
        "mov x0, #{flags}",
        "mov x1, #0",
        "mov x8, #{clone}",
        "svc #0",
        "cbz x0, 2f",
        "stp x29, x30, [sp, #-16]!",
        "bl {after}",
        "ldp x29, x30, [sp], #16",
        "2:",
        "ret",
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        clone = const libc::SYS_clone,
        before = sym crate::hooks::vfork_before,
        after = sym crate::hooks::vfork_after,
    )
}

/// `mov x8, #139; svc #0`: what unwinders know a signal's trampoline by.
const SIGNAL_RETURN: u64 = 0xd400_0001_d280_1168;

/// Where a handler of the recorder's returns to: asks the kernel for the interrupted registers.
#[unsafe(naked)]
pub extern "C" fn signal_return() {
    core::arch::naked_asm!("mov x8, #139", "svc #0")
}

/// Whether a handler returns to this address: libc uses the kernel's own trampoline, which no table describes well.
pub fn is_signal_return(ip: u64, can_be_read: impl FnOnce() -> bool) -> bool {
    // SAFETY: code, which is in one page from a multiple of 8 on; before a page's last instruction there is another.
    ip % 4 == 0
        && ip % 4096 != 4092
        && can_be_read()
        && unsafe { (ip as *const u64).read_unaligned() } == SIGNAL_RETURN
}

/// The address to which the function of a new context returns.
#[cfg(target_env = "gnu")]
pub fn context_root(context: &libc::ucontext_t, _stack: &[usize]) -> u64 {
    context.uc_mcontext.regs[30]
}

/// The kernel has no such thing for this processor.
pub fn dispatch_system_calls() {
    file::warn(
        b"the kernel dispatches no system calls",
        c"",
        None,
        b"on aarch64 it cannot; `record --syscalls` records libc's functions",
    );
}

/// A thread's first function while processor time is sampled: gets what the program asked for, and jumps
/// there, so that no frame of it remains on the stack.
#[unsafe(naked)]
pub unsafe extern "C" fn thread_start(waiting: usize) -> usize {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {begin}",
        "ldp x29, x30, [sp], #16",
        "mov x16, x0",
        "mov x0, x1",
        "br x16",
        begin = sym crate::cpu::thread_begins,
    )
}

/// Where a handler's stack pointer, when it returns, has the kernel's `ucontext`.
pub const CONTEXT_AT: u64 = size_of::<libc::siginfo_t>() as u64;

/// The registers that the kernel has stored in a context.
pub fn interrupted(
    context: u64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Registers> {
    const REGISTERS: usize = std::mem::offset_of!(libc::ucontext_t, uc_mcontext)
        + std::mem::offset_of!(libc::mcontext_t, regs);
    let first = context.checked_add(REGISTERS as u64)?;
    Registers::interrupted(|offset| read(first.checked_add(offset)?).ok())
}
