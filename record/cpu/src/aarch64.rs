//! The wrappers of what starts threads, for aarch64.

use crate::below::{FOUND, PTHREAD_CREATE, THRD_CREATE};
use crate::threads::prepare;

/// A wrapper that changes the function and its argument, and jumps to the function below.
macro_rules! wrapper {
    ($name:literal, $number:expr, [$($take:literal),*], [$($give:literal),*]) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "stp x0, x1, [sp, #16]",
            "mov x29, sp",
            $($take,)*
            "mov w2, #{number}",
            "bl {prepare}",
            "mov x16, x0",
            "mov x17, x1",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            $($give,)*
            "adrp x16, {found} + {place}",
            "ldr x16, [x16, :lo12:{found} + {place}]",
            "br x16",
            ".cfi_endproc",
            number = const $number,
            prepare = sym prepare,
            found = sym FOUND,
            place = const $number * 8,
        }
    };
}

// (thread, attributes, function, argument)
wrapper!(
    "pthread_create",
    PTHREAD_CREATE,
    ["mov x0, x2", "mov x1, x3"],
    ["mov x2, x16", "mov x3, x17"]
);

// (thread, function, argument)
wrapper!(
    "thrd_create",
    THRD_CREATE,
    ["mov x0, x1", "mov x1, x2"],
    ["mov x1, x16", "mov x2, x17"]
);
