//! The wrappers' code for x86-64.

use std::arch::asm;

use crate::sample::Own;

#[inline(always)]
pub fn own() -> *mut Own {
    let own: *mut Own;
    // SAFETY: the thread pointer is at fs:0, and the loader has stored the variable's offset from it.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + larder_copies_left@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) own,
            options(pure, readonly, nostack)
        );
    }
    own
}

pub fn ticks() -> u64 {
    // SAFETY: rdtsc has no preconditions.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Copies memory that may overlap. No compiler turns this, and `fill`, into calls of what they stand for.
///
/// # Safety
/// Both are so long.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract; where they overlap, the end that is read last goes first.
    unsafe {
        if (to as usize).wrapping_sub(from as usize) >= bytes {
            asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags));
        } else {
            let (to, from) = (
                to.add(bytes).wrapping_sub(1),
                from.add(bytes).wrapping_sub(1),
            );
            asm!("std", "rep movsb", "cld", inout("rcx") bytes => _, inout("rdi") to => _,
                inout("rsi") from => _, options(nostack));
        }
    }
}

/// # Safety
/// It is so long.
pub unsafe fn fill(to: *mut u8, value: u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") to => _, in("al") value,
            options(nostack, preserves_flags));
    }
}

/// Arguments for `counted`: in rsi the destination, in rdx the source, if there is one.
macro_rules! arguments {
    (copy) => {
        "mov rdx, rsi\nmov rsi, rdi"
    };
    (fill) => {
        "xor edx, edx\nmov rsi, rdi"
    };
    (backward) => {
        "mov rdx, rdi"
    };
}

macro_rules! argument {
    (second) => {
        "rsi"
    };
    (third) => {
        "rdx"
    };
}

/// An exported function. The number of elements is its argument `$number`, an element has `$unit` bytes.
macro_rules! memory_wrapper {
    ($name:literal $call:ident $shape:ident $number:ident $unit:literal $below:ident $own:ident) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "mov rax, qword ptr [rip + larder_copies_left@GOTTPOFF]",
            concat!("lea r11, [", crate::arch::argument!($number), " * ", $unit, "]"),
            // 0 before relocation.
            "test rax, rax",
            "je 2f",
            "sub qword ptr fs:[rax], r11",
            "jle 2f",
            "jmp qword ptr [rip + {found} + {place}]",
            "2:",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "push rcx",
            ".cfi_adjust_cfa_offset 8",
            "lea r8, [rsp + 32]",
            "mov r9, rbp",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            crate::arch::arguments!($shape),
            "mov rcx, r11",
            "mov edi, {code}",
            "call {counted}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rcx",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test al, al",
            "je {own}",
            "jmp qword ptr [rip + {found} + {place}]",
            ".cfi_endproc",
            found = sym below::FOUND,
            place = const Below::$below as usize * 8,
            code = const CopyCall::$call as u8,
            counted = sym counted,
            own = sym $own,
        }
    };
}
pub(crate) use {argument, arguments, memory_wrapper};

/// What the wrapper stores, in the order that `va_arg` expects (System V ABI, AMD64, 3.5.7).
#[repr(C)]
pub struct Registers {
    words: [usize; 6],
    vectors: [u128; 8],
    list: List,
}

/// A `va_list`.
#[repr(C)]
pub struct List {
    words_used: u32,
    vectors_used: u32,
    on_stack: usize,
    registers: usize,
}

impl Registers {
    pub fn arguments(&self) -> [usize; 6] {
        let [a, b, c, d, e, f] = self.words;
        [a, b, c, d, e, f]
    }

    /// The values behind an argument of this number.
    pub fn list_after(&mut self, number: usize) -> &mut List {
        self.list.words_used = 8 * (number as u32 + 1);
        self.list.vectors_used = 48;
        &mut self.list
    }
}

const _: () = assert!(std::mem::offset_of!(Registers, list) == 176);

macro_rules! format_wrapper {
    ($number:literal, $name:literal) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "sub rsp, 208",
            "mov qword ptr [rsp], rdi",
            "mov qword ptr [rsp + 8], rsi",
            "mov qword ptr [rsp + 16], rdx",
            "mov qword ptr [rsp + 24], rcx",
            "mov qword ptr [rsp + 32], r8",
            "mov qword ptr [rsp + 40], r9",
            "test al, al",
            "je 2f",
            "movaps xmmword ptr [rsp + 48], xmm0",
            "movaps xmmword ptr [rsp + 64], xmm1",
            "movaps xmmword ptr [rsp + 80], xmm2",
            "movaps xmmword ptr [rsp + 96], xmm3",
            "movaps xmmword ptr [rsp + 112], xmm4",
            "movaps xmmword ptr [rsp + 128], xmm5",
            "movaps xmmword ptr [rsp + 144], xmm6",
            "movaps xmmword ptr [rsp + 160], xmm7",
            "2:",
            "lea rax, [rbp + 16]",
            "mov qword ptr [rsp + 184], rax",
            "mov qword ptr [rsp + 192], rsp",
            "mov edi, {number}",
            "mov rsi, rsp",
            "lea rdx, [rbp + 8]",
            "mov rcx, qword ptr [rbp]",
            "call {formatted}",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            number = const $number,
            formatted = sym formatted,
        }
    };
}
pub(crate) use format_wrapper;
