//! The wrappers' code for aarch64.

use std::arch::asm;

use crate::sample::Own;

#[inline(always)]
pub fn own() -> *mut Own {
    let own: *mut Own;
    // SAFETY: the loader has stored the variable's offset from the thread pointer.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:larder_copies_left",
            "ldr {0}, [{0}, :gottprel_lo12:larder_copies_left]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) own,
            out(reg) _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    own
}

pub fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) };
    ticks
}

/// Copies memory that may overlap. No compiler turns this, and `fill`, into calls of what they stand for: each access is
/// volatile.
///
/// # Safety
/// Both are so long.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract.
    let one = |at| unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    // Where they overlap, the end that is read last goes first.
    match (to as usize).wrapping_sub(from as usize) >= bytes {
        true => (0..bytes).for_each(one),
        false => (0..bytes).rev().for_each(one),
    }
}

/// # Safety
/// It is so long.
pub unsafe fn fill(to: *mut u8, value: u8, bytes: usize) {
    // SAFETY: by contract.
    (0..bytes).for_each(|at| unsafe { to.add(at).write_volatile(value) });
}

/// Arguments for `counted`: in x1 the destination, in x2 the source, if there is one.
macro_rules! arguments {
    (copy) => {
        "mov x2, x1\nmov x1, x0"
    };
    (fill) => {
        "mov x2, #0\nmov x1, x0"
    };
    (backward) => {
        "mov x2, x0"
    };
}

macro_rules! argument {
    (second) => {
        "x1"
    };
    (third) => {
        "x2"
    };
}

/// An exported function. The number of elements is its argument `$number`, an element has `$unit` bytes.
macro_rules! memory_wrapper {
    ($name:literal $call:ident $shape:ident $number:ident $unit:literal $below:ident $own:ident) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "adrp x16, :gottprel:larder_copies_left",
            "ldr x16, [x16, :gottprel_lo12:larder_copies_left]",
            // 0 before relocation.
            "cbz x16, 2f",
            "mrs x17, tpidr_el0",
            "add x16, x16, x17",
            "ldr x17, [x16]",
            concat!("subs x17, x17, ", crate::arch::argument!($number), ", lsl #{shift}"),
            "str x17, [x16]",
            "b.le 2f",
            "adrp x16, {found} + {place}",
            "ldr x16, [x16, :lo12:{found} + {place}]",
            "br x16",
            "2:",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x4, sp",
            "mov x5, x29",
            "mov x29, sp",
            "stp x0, x1, [sp, #-32]!",
            ".cfi_def_cfa_offset 48",
            "str x2, [sp, #16]",
            concat!("lsl x3, ", crate::arch::argument!($number), ", #{shift}"),
            crate::arch::arguments!($shape),
            "mov w0, #{code}",
            "bl {counted}",
            "mov w16, w0",
            "ldr x2, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            ".cfi_def_cfa_offset 16",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "tbz w16, #0, 3f",
            "adrp x16, {found} + {place}",
            "ldr x16, [x16, :lo12:{found} + {place}]",
            "br x16",
            "3:",
            "b {own}",
            ".cfi_endproc",
            found = sym below::FOUND,
            place = const Below::$below as usize * 8,
            shift = const ($unit as u32).trailing_zeros(),
            code = const CopyCall::$call as u8,
            counted = sym counted,
            own = sym $own,
        }
    };
}
pub(crate) use {argument, arguments, memory_wrapper};

/// What the wrapper stores, in the order that `va_arg` expects (Procedure Call Standard for the Arm 64-bit Architecture,
/// "The va_list type").
#[repr(C)]
pub struct Registers {
    words: [usize; 8],
    vectors: [u128; 8],
    list: List,
}

/// A `va_list`.
#[repr(C)]
pub struct List {
    on_stack: usize,
    words_end: usize,
    vectors_end: usize,
    words_left: i32,
    vectors_left: i32,
}

impl Registers {
    pub fn arguments(&self) -> [usize; 6] {
        let [a, b, c, d, e, f, ..] = self.words;
        [a, b, c, d, e, f]
    }

    /// The values behind an argument of this number.
    pub fn list_after(&mut self, number: usize) -> &mut List {
        let on_stack = (&raw const *self).addr() + size_of::<Registers>() + PAIR;
        self.list = List {
            on_stack,
            words_end: self.words.as_ptr_range().end.addr(),
            vectors_end: self.vectors.as_ptr_range().end.addr(),
            words_left: 8 * (number as i32 + 1 - 8),
            vectors_left: -16 * 8,
        };
        &mut self.list
    }
}

/// Bytes of the frame pointer and the return address, which the wrapper stores above the registers.
const PAIR: usize = 16;

const _: () = assert!(size_of::<Registers>() == 224);

macro_rules! format_wrapper {
    ($number:literal, $name:literal) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "sub sp, sp, #224",
            ".cfi_def_cfa_offset 240",
            "stp x0, x1, [sp]",
            "stp x2, x3, [sp, #16]",
            "stp x4, x5, [sp, #32]",
            "stp x6, x7, [sp, #48]",
            "stp q0, q1, [sp, #64]",
            "stp q2, q3, [sp, #96]",
            "stp q4, q5, [sp, #128]",
            "stp q6, q7, [sp, #160]",
            "mov w0, #{number}",
            "mov x1, sp",
            "add x2, sp, #224",
            "mov x3, x29",
            "mov x29, x2",
            "bl {formatted}",
            "add sp, sp, #224",
            ".cfi_def_cfa_offset 16",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            number = const $number,
            formatted = sym formatted,
        }
    };
}
pub(crate) use format_wrapper;
