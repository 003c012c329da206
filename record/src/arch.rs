//! Code for the processor: how a hook gets its caller's registers, the thread's own state, the time stamp
//! counter, and `vfork`.
//!
//! Invariants: an entry does not change the stack before it jumps, so that the implementation's frame is
//! directly below the caller's and needs no unwinding; `Local` is in initial-exec TLS, so that accessing
//! it never allocates.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the recorder knows x86-64 only");

use std::arch::{asm, global_asm};

use crate::cpu::Sampler;
use crate::registers::Registers;
use crate::stream::Stream;

/// ELF's number for this processor.
pub const MACHINE: u32 = 62;

/// What a hook was called with: the caller's stack pointer (it points at the return address) and
/// frame pointer.
#[derive(Clone, Copy)]
pub struct Caller {
    pub sp: usize,
    pub bp: usize,
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
    pub reserved: [usize; 2],
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

#[inline(always)]
pub fn local() -> *mut Local {
    let local: *mut Local;
    // SAFETY: the thread pointer is at fs:0, and the linker knows the variable's offset from it.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + larder_record_local@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) local,
            options(pure, readonly, nostack)
        );
    }
    local
}

/// The thread's control block, which glibc puts at the top of every stack that it makes.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: fs:0 holds the thread pointer itself.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack))
    };
    pointer
}

/// The counter, read after all earlier loads and before any later store is visible: not before the caller
/// has the block that it frees, and not after another thread can get its memory. Plain `rdtsc` may run
/// ahead of the load that read the block's address.
#[inline(always)]
pub fn ticks() -> u64 {
    let mut processor = 0;
    // SAFETY: rdtscp waits for all earlier loads. Its presence was checked with the counter's.
    unsafe { core::arch::x86_64::__rdtscp(&mut processor) }
}

/// The counter, possibly some instructions early or late. Waiting for earlier loads, like `ticks`, takes
/// a tenth of the time to record a call.
#[inline(always)]
pub fn ticks_about() -> u64 {
    // SAFETY: rdtsc has no preconditions.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the counter runs at one rate, in all power states, and can be read in order.
pub fn has_invariant_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    let highest = __cpuid(0x8000_0000).eax;
    highest >= 0x8000_0007
        && __cpuid(0x8000_0007).edx & (1 << 8) != 0
        && __cpuid(0x8000_0001).edx & (1 << 27) != 0
}

/// Calls a function on another stack. The function must not unwind.
///
/// # Safety
/// `top` must be the 16-aligned end of memory that no other code currently uses as a stack.
pub unsafe fn on_stack(top: *mut u8, function: extern "C" fn(*mut u8), argument: *mut u8) {
    // SAFETY: r12 survives the call and brings the stack pointer back.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {function}",
            "mov rsp, r12",
            top = in(reg) top,
            function = in(reg) function,
            inout("rdi") argument => _,
            out("r12") _,
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
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            "call {0}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp r11",
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
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rdi",
        "mov eax, 58",
        "syscall",
        "push rdi",
        "test eax, eax",
        "je 2f",
        "mov rdi, rax",
        "sub rsp, 8",
        "call {after}",
        "add rsp, 8",
        "2:",
        "ret",
        before = sym crate::hooks::vfork_before,
        after = sym crate::hooks::vfork_after,
    )
}

/// Where a handler of the recorder's returns to: asks the kernel for the interrupted registers.
#[unsafe(naked)]
pub extern "C" fn signal_return() {
    core::arch::naked_asm!("mov eax, 15", "syscall")
}

/// A thread's first function and its argument.
#[repr(C)]
pub struct Start {
    pub function: usize,
    pub argument: usize,
}

/// A thread's first function while processor time is sampled: gets what the program asked for, and jumps
/// there, so that no frame of it remains on the stack.
#[unsafe(naked)]
pub unsafe extern "C" fn thread_start(waiting: usize) -> usize {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {begin}",
        "add rsp, 8",
        "mov rdi, rdx",
        "jmp rax",
        begin = sym crate::cpu::thread_begins,
    )
}

/// Where the kernel has stored the interrupted registers, relative to the signal's return trampoline.
pub fn interrupted(sp: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<Registers> {
    // The stack pointer is at the ucontext: flags, link and alternate stack, then the registers; see
    // sigcontext(7)'s struct in the kernel's headers.
    const REGISTERS: u64 = 8 + 8 + 24;
    let first = sp.checked_add(REGISTERS)?;
    Registers::interrupted(|offset| read(first.checked_add(offset)?).ok())
}
