//! The wrappers' code for x86-64.

/// An exported function. All six argument registers, the first argument on the stack (of `syscall`), and
/// `al` of variadic calls reach the function below unchanged. The recorder gets the address of what the frame
/// holds, `Called` in its `notes`.
macro_rules! wrapper {
    ($number:expr, $name:literal, $call:ident, $skipped:expr) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            "sub rsp, 24",
            "mov rax, qword ptr [rbp + 16]",
            "mov qword ptr [rsp], rax",
            "mov qword ptr [rbp - 72], 0",
            "mov edi, {number}",
            "mov esi, {call}",
            "lea rdx, [rbp - 72]",
            "call {begin}",
            "mov qword ptr [rbp - 64], rax",
            "mov rax, qword ptr [rbp - 56]",
            "mov r9, qword ptr [rbp - 48]",
            "mov r8, qword ptr [rbp - 40]",
            "mov rcx, qword ptr [rbp - 32]",
            "mov rdx, qword ptr [rbp - 24]",
            "mov rsi, qword ptr [rbp - 16]",
            "mov rdi, qword ptr [rbp - 8]",
            "call qword ptr [rip + {below} + {place}]",
            "mov qword ptr [rbp - 56], rax",
            "mov edi, {call}",
            "mov rsi, rax",
            "lea rdx, [rbp - 72]",
            "call qword ptr [rip + {record}]",
            "mov rax, qword ptr [rbp - 56]",
            "leave",
            ".cfi_def_cfa rsp, 8",
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
