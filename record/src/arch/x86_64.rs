//! x86-64. `passage`, `vfork`, and the handler of dispatched calls with its stubs are whole functions in assembly.
//!
//! Invariant: an entry does not change the stack before it jumps, so that the implementation's frame is directly below
//! the caller's.

use std::arch::{asm, global_asm};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use framehop::{FrameAddress, Unwinder as _};
use gimli::{Register, Vendor, X86_64};

use super::{Local, segment};
use crate::map::Snapshot;
use crate::notes::Called;
use crate::registers::Registers;
use crate::rules::Cache;
use crate::stack::Frame;
use crate::sys::{self, Errno};

pub use crate::dispatch::start as dispatch_system_calls;
pub use framehop::x86_64::UnwindRegsX86_64 as UnwindRegisters;

/// ELF's number for this processor, and the kernel's for its system calls.
pub const MACHINE: u32 = 62;
pub const AUDIT: u32 = 0xc000_003e;

/// Where an entry's stack pointer has the return address, and how far above it the caller's is.
pub const RETURN_ADDRESS_AT: usize = 0;
pub const ENTRY_BYTES: usize = 8;

/// Kinds of relocations that make a word a symbol's address.
pub const WORD: u32 = 1;
pub const GOT_ENTRY: u32 = 6;
pub const PLT_ENTRY: u32 = 7;

/// The registers of the unwind tables, `COUNT` of them.
pub const VENDOR: Vendor = Vendor::Default;
pub const COUNT: usize = 17;
pub const IP: Register = X86_64::RA;
pub const SP: Register = X86_64::RSP;
pub const BP: Register = X86_64::RBP;
/// The one that has the return address.
pub const RETURN_ADDRESS: Register = IP;
/// Those that a call preserves, without the stack pointer.
pub const PRESERVED: [Register; 6] = [
    X86_64::RBX,
    X86_64::RBP,
    X86_64::R12,
    X86_64::R13,
    X86_64::R14,
    X86_64::R15,
];
/// In the order of the kernel's `sigcontext`.
pub const INTERRUPTED: [Register; COUNT] = [
    X86_64::R8,
    X86_64::R9,
    X86_64::R10,
    X86_64::R11,
    X86_64::R12,
    X86_64::R13,
    X86_64::R14,
    X86_64::R15,
    X86_64::RDI,
    X86_64::RSI,
    X86_64::RBP,
    X86_64::RBX,
    X86_64::RDX,
    X86_64::RAX,
    X86_64::RCX,
    X86_64::RSP,
    IP,
];
/// The return address of a function that makes no calls is on the stack, too.
pub const HAS_LINK_REGISTER: bool = false;

/// Where a frame's return address is, as an offset from the caller's stack pointer.
#[inline(always)]
pub const fn return_address_at(_bp_at: i16, _restores_bp: bool) -> i16 {
    -8
}

/// A return address that the stack has, without what signs it.
#[inline(always)]
pub fn without_signature(address: u64) -> u64 {
    address
}

pub fn unwind_registers(at: &Frame, _: &Option<Registers>) -> UnwindRegisters {
    UnwindRegisters::new(at.ip(), at.sp, at.bp)
}

/// From a frame to its caller: where that continues, `None` if there is none.
#[inline(always)]
pub fn unwind(
    map: &Snapshot,
    address: FrameAddress,
    registers: &mut UnwindRegisters,
    cache: &mut Cache,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, framehop::Error> {
    map.unwinder.unwind_frame(address, registers, cache, read)
}

pub fn frame_pointer(registers: &UnwindRegisters) -> u64 {
    registers.bp()
}

/// Makes a system call; a failed one returns the negative error number.
///
/// # Safety
/// That of the call with these arguments.
#[inline(always)]
pub unsafe fn system_call(number: i64, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the caller's promise; the kernel clobbers rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first, in("rsi") second, in("rdx") third,
            in("r10") fourth, in("r8") fifth, in("r9") sixth,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

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

/// Where musl began the thread's stack: below the first table of the thread's variables, which libraries that are loaded
/// later may replace.
#[cfg(target_env = "musl")]
pub fn stack_top() -> u64 {
    let top: u64;
    // SAFETY: the second word of the thread's control block.
    unsafe { asm!("mov {0}, qword ptr fs:[8]", out(reg) top, options(pure, readonly, nostack)) };
    top
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
        "mov rsi, rsp",
        "mov rdx, rbp",
        "sub rsp, 8",
        "call {after}",
        "add rsp, 8",
        "2:",
        "ret",
        before = sym crate::dispatch::vfork_begins,
        after = sym crate::dispatch::vfork_returns,
    )
}

/// Where a handler of the recorder's returns to: asks the kernel for the interrupted registers. Unwinders know
/// these nine bytes, and that no table describes them: `mov rax, 15; syscall`.
#[unsafe(naked)]
pub extern "C" fn signal_return() {
    core::arch::naked_asm!(".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05", "nop",)
}

/// libc passes a restorer to the kernel, which is known.
#[inline(always)]
pub fn is_signal_return(_: u64, _: impl FnOnce() -> bool) -> bool {
    false
}

/// The address to which the function of a new context returns. `stack`: the context's.
#[cfg(target_env = "gnu")]
pub fn context_root(context: &libc::ucontext_t, stack: &[usize]) -> u64 {
    let top = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    let place = stack
        .iter()
        .find(|place| std::ptr::from_ref(*place) as usize == top);
    place.map_or(0, |address| *address as u64)
}

/// Whether the kernel makes system calls, or sends SIGSYS: of all threads.
pub static SELECTOR: AtomicU8 = AtomicU8::new(DISPATCH);
pub const ALLOW: u8 = 0;
const DISPATCH: u8 = 1;

/// The instructions of this library whose system calls are never dispatched: all but `larder_record_made`.
static OWN_CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Has the kernel dispatch the thread's system calls, and those of the threads and processes that it starts.
pub fn dispatch_calls() -> Result<(), Errno> {
    let own = own_code();
    OWN_CODE[0].store(own.start, Ordering::Relaxed);
    OWN_CODE[1].store(own.len(), Ordering::Relaxed);
    sys::dispatch_calls(own, SELECTOR.as_ptr())
}

/// The part of its segment that this function is in.
fn own_code() -> Range<usize> {
    let segment = segment();
    let [made, end] = MADE.map(|place| place as *const () as usize);
    match (own_code as *const () as usize) < made {
        true => segment.start..made,
        false => end..segment.end,
    }
}

/// A system call that a handler makes, in its frame.
#[repr(C)]
pub struct MadeCall {
    pub called: Called,
    pub number: i64,
    /// What an argument points at instead of the program's. After the call the first is the mask that it left.
    pub words: [usize; 4],
}

const _: () = assert!(size_of::<Called>() == 88 && size_of::<MadeCall>() == 128);

/// The handler of SIGSYS, with all signals blocked: makes the call, if `prepare` wants it to, with those that the
/// program blocks. Only then may a handler of the program's jump away, and a cancelled thread be unwound.
#[unsafe(naked)]
pub unsafe extern "C" fn dispatched() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "sub rsp, 136",
        "mov rbx, rdx",
        "mov rcx, rsp",
        "call {prepare}",
        "test al, al",
        "je 2f",
        "mov edi, {set}",
        "lea rsi, [rbx + {mask}]",
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, {change_mask}",
        "syscall",
        ".globl larder_record_call_begins",
        ".hidden larder_record_call_begins",
        "larder_record_call_begins:",
        "mov rdi, qword ptr [rsp + 64]",
        "mov rsi, qword ptr [rsp + 56]",
        "mov rdx, qword ptr [rsp + 48]",
        "mov r10, qword ptr [rsp + 40]",
        "mov r8, qword ptr [rsp + 32]",
        "mov r9, qword ptr [rsp + 24]",
        "mov rax, qword ptr [rsp + 88]",
        "syscall",
        "mov qword ptr [rsp + 16], rax",
        "mov edi, {block}",
        "lea rsi, [rip + {all}]",
        "lea rdx, [rsp + 96]",
        "mov r10d, 8",
        "mov eax, {change_mask}",
        ".globl larder_record_call_ends",
        ".hidden larder_record_call_ends",
        "larder_record_call_ends:",
        "syscall",
        "mov rdi, rbx",
        "mov rsi, rsp",
        "call {finish}",
        "2:",
        "add rsp, 136",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        mask = const std::mem::offset_of!(libc::ucontext_t, uc_sigmask),
        set = const libc::SIG_SETMASK,
        block = const libc::SIG_BLOCK,
        change_mask = const libc::SYS_rt_sigprocmask,
        all = sym sys::ALL_SIGNALS,
        prepare = sym crate::dispatch::prepare,
        finish = sym crate::dispatch::finish,
    )
}

/// The calls that a handler cannot make, by what comes after them.
#[derive(Clone, Copy)]
pub enum Stub {
    /// Their child makes dispatched calls, too.
    Forks,
    /// Their child does not.
    Borrows,
    /// They have none.
    Plain,
}

/// Of each stub: where in the program its call returns to, and above that its number; 0 if it has none.
static STUBS: [AtomicUsize; 48] = [const { AtomicUsize::new(0) }; 48];
const STUBS_OF_A_KIND: usize = 16;
const STUB_BYTES: usize = 32;
const NUMBER_SHIFT: u32 = 48;

/// A place in this library that makes the call whose number is in `rax`, has it recorded, and then jumps back;
/// `None` if all are in use.
pub fn stub(kind: Stub, number: i64, back: usize) -> Option<usize> {
    let number = usize::try_from(number)
        .ok()
        .filter(|number| number >> 16 == 0)?;
    let entry = number << NUMBER_SHIFT | back;
    let first = kind as usize * STUBS_OF_A_KIND;
    let mut range = first..first + STUBS_OF_A_KIND;
    let found = range.find(|place| {
        let taken = STUBS[*place].compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(entry)
    })?;
    Some(stubs as *const () as usize + found * STUB_BYTES)
}

/// A call that a stub has made.
pub struct StubCall {
    pub number: i64,
    pub result: i64,
    /// Where it returns to, and with which stack pointer.
    pub ip: usize,
    pub sp: usize,
}

/// The call that a stub has dispatched itself for, if the code was interrupted there.
///
/// # Safety
/// The registers of interrupted code.
pub unsafe fn made_by_stub(ip: usize, sp: usize) -> Option<StubCall> {
    if ip != MADE[1] as *const () as usize {
        return None;
    }
    // SAFETY: the stub has just pushed both.
    let [entry, result] = unsafe { (sp as *const [usize; 2]).read() };
    // SAFETY: within `STUBS`.
    let entry = unsafe { (*(entry as *const AtomicUsize)).load(Ordering::Acquire) };
    Some(StubCall {
        number: (entry >> NUMBER_SHIFT) as i64,
        result: result as i64,
        ip: entry & ((1 << NUMBER_SHIFT) - 1),
        sp: sp + MADE_BYTES,
    })
}

/// Below the program's stack pointer: its red zone, and two words.
const MADE_BYTES: usize = 128 + 16;

unsafe extern "C" {
    safe fn larder_record_made();
    safe fn larder_record_made_end();
}

/// The instruction of this library that is dispatched, so that the handler records what a stub has made.
const MADE: [extern "C" fn(); 2] = [larder_record_made, larder_record_made_end];

// In a section of its own, because what is not dispatched must be one range. If nothing is dispatched any more, it
// asks for the process, and the call returns.
global_asm!(
    ".section larder_record_made_code, \"ax\", @progbits",
    ".hidden larder_record_made",
    ".globl larder_record_made",
    "larder_record_made:",
    "syscall",
    ".hidden larder_record_made_end",
    ".globl larder_record_made_end",
    "larder_record_made_end:",
    "pop rcx",
    "pop rax",
    "lea rsp, [rsp + 128]",
    "mov rcx, qword ptr [rcx]",
    "shl rcx, 16",
    "shr rcx, 16",
    "jmp rcx",
    ".text",
);

/// The child of a call is 0 in `rax`. What else a system call keeps must be kept; it changes `rcx` and `r11`.
macro_rules! stubs {
    ($($number:literal $child:literal)*) => {
        #[unsafe(naked)]
        unsafe extern "C" fn stubs() {
            core::arch::naked_asm!(
                $(
                    ".balign 32",
                    "syscall",
                    concat!("lea rcx, [rip + {stubs} + 8 * ", $number, "]"),
                    "test rax, rax",
                    concat!("je ", $child),
                    "jmp 5f",
                )*
                ".balign 32",
                "3:",
                "lea rsp, [rsp - 128]",
                "push rcx",
                "push rdi",
                "push rsi",
                "push rdx",
                "push r8",
                "push r10",
                "mov edi, 59",
                "mov esi, 1",
                "mov rdx, qword ptr [rip + {code}]",
                "mov r10, qword ptr [rip + {code} + 8]",
                "lea r8, [rip + {selector}]",
                "mov eax, 157",
                "syscall",
                "pop r10",
                "pop r8",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rcx",
                "lea rsp, [rsp + 128]",
                "xor eax, eax",
                "4:",
                "mov rcx, qword ptr [rcx]",
                "shl rcx, 16",
                "shr rcx, 16",
                "jmp rcx",
                "5:",
                "cmp byte ptr [rip + {selector}], {allow}",
                "je 4b",
                "lea rsp, [rsp - 128]",
                "push rax",
                "push rcx",
                "mov eax, {get_process}",
                "jmp {made}",
                stubs = sym STUBS,
                code = sym OWN_CODE,
                selector = sym SELECTOR,
                allow = const ALLOW,
                get_process = const libc::SYS_getpid,
                made = sym larder_record_made,
            )
        }
    };
}

stubs! {
    0 "3f" 1 "3f" 2 "3f" 3 "3f" 4 "3f" 5 "3f" 6 "3f" 7 "3f"
    8 "3f" 9 "3f" 10 "3f" 11 "3f" 12 "3f" 13 "3f" 14 "3f" 15 "3f"
    16 "4f" 17 "4f" 18 "4f" 19 "4f" 20 "4f" 21 "4f" 22 "4f" 23 "4f"
    24 "4f" 25 "4f" 26 "4f" 27 "4f" 28 "4f" 29 "4f" 30 "4f" 31 "4f"
    32 "5f" 33 "5f" 34 "5f" 35 "5f" 36 "5f" 37 "5f" 38 "5f" 39 "5f"
    40 "5f" 41 "5f" 42 "5f" 43 "5f" 44 "5f" 45 "5f" 46 "5f" 47 "5f"
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

/// Where a handler's stack pointer, when it returns, has the kernel's `ucontext`.
pub const CONTEXT_AT: u64 = 0;

/// The registers that the kernel has stored in a context.
pub fn interrupted(
    context: u64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Registers> {
    // Flags, link and alternate stack, then the registers; see sigcontext(7)'s struct in the kernel's headers.
    const REGISTERS: u64 = 8 + 8 + 24;
    let mut at = |context: u64| {
        let first = context.checked_add(REGISTERS)?;
        Registers::interrupted(|offset| read(first.checked_add(offset)?).ok())
    };
    let registers = at(context)?;
    match registers.ip()? {
        ip if is_made_call(ip) => at(registers.get(X86_64::RBX)?),
        _ => Some(registers),
    }
}

/// Whether the call that `dispatched` makes was interrupted, on behalf of the code whose context is in `rbx`.
fn is_made_call(ip: u64) -> bool {
    unsafe extern "C" {
        safe fn larder_record_call_begins();
        safe fn larder_record_call_ends();
    }
    let [begin, end] = [larder_record_call_begins, larder_record_call_ends]
        .map(|place: extern "C" fn()| place as *const () as u64);
    (begin..=end).contains(&ip)
}
