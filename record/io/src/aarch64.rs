//! The wrappers' code for aarch64.

/// An exported function. The argument registers, and where it is called by `...` what is on the stack, reach the
/// function below unchanged. The recorder gets the address of what the frame holds, `Called` in its `notes`.
macro_rules! wrapper {
    ($number:expr, $name:literal, $call:ident, $skipped:expr) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            ".cfi_def_cfa x29, 16",
            "sub sp, sp, #96",
            "stp x1, x0, [sp, #80]",
            "stp x3, x2, [sp, #64]",
            "stp x5, x4, [sp, #48]",
            "stp x6, x7, [sp]",
            "str xzr, [sp, #24]",
            "mov w0, #{number}",
            "mov w1, #{call}",
            "add x2, sp, #24",
            "bl {begin}",
            "str x0, [sp, #32]",
            "ldp x6, x7, [sp]",
            "ldp x5, x4, [sp, #48]",
            "ldp x3, x2, [sp, #64]",
            "ldp x1, x0, [sp, #80]",
            "adrp x16, {below} + {place}",
            "ldr x16, [x16, :lo12:{below} + {place}]",
            "blr x16",
            "str x0, [sp, #40]",
            "mov x1, x0",
            "mov w0, #{call}",
            "add x2, sp, #24",
            "adrp x16, {record}",
            "ldr x16, [x16, :lo12:{record}]",
            "blr x16",
            "ldr x0, [sp, #40]",
            "mov sp, x29",
            ".cfi_def_cfa sp, 16",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            below = sym BELOW,
            place = const $number * 8,
            number = const $number,
            begin = sym begin,
            call = const SystemCall::$call as u32 + ($skipped << 8),
            record = sym RECORD,
        }
    };
}
pub(crate) use wrapper;
