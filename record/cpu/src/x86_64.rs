//! The wrappers of what starts threads, for x86-64.

use crate::below::{FOUND, PTHREAD_CREATE, THRD_CREATE};
use crate::threads::prepare;

/// A wrapper that changes the function and its argument, and jumps to the function below.
macro_rules! wrapper {
    ($name:literal, $number:expr, [$($take:literal),*], [$($give:literal),*]) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "push rdi",
            ".cfi_def_cfa_offset 16",
            "push rsi",
            ".cfi_def_cfa_offset 24",
            "sub rsp, 8",
            ".cfi_def_cfa_offset 32",
            $($take,)*
            "mov edx, {number}",
            "call {prepare}",
            "add rsp, 8",
            ".cfi_def_cfa_offset 24",
            "pop rsi",
            ".cfi_def_cfa_offset 16",
            "pop rdi",
            ".cfi_def_cfa_offset 8",
            $($give,)*
            "jmp qword ptr [rip + {found} + {place}]",
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
    ["mov rdi, rdx", "mov rsi, rcx"],
    ["mov rcx, rdx", "mov rdx, rax"]
);

// (thread, function, argument)
wrapper!(
    "thrd_create",
    THRD_CREATE,
    ["mov rdi, rsi", "mov rsi, rdx"],
    ["mov rsi, rax"]
);
