//! `memcpy` and its like, whose number of bytes is an argument. A wrapper jumps to the function below with the
//! stack and the argument registers as it found them.

use std::arch::asm;

use larder_trace::CopyCall;

use crate::below::{self, Below};
use crate::note::{Caller, Copy, note_counted};

/// Records a copy that used up what was left; whether the function below is known.
extern "C" fn counted(
    code: u8,
    destination: usize,
    source: usize,
    bytes: usize,
    sp: usize,
    bp: usize,
) -> bool {
    if !below::are_known() {
        return false;
    }
    let copy = Copy {
        code,
        destination,
        source,
        bytes,
    };
    note_counted(&copy, Caller { sp, bp });
    true
}

/// No compiler turns these into calls of what they stand for.
unsafe extern "C" fn own_copy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: both are so long by contract; where they overlap, the end that is read last goes first.
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
    to
}

unsafe extern "C" fn own_copy_to_end(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { own_copy(to, from, bytes).add(bytes) }
}

const WIDE: usize = size_of::<libc::wchar_t>();

unsafe extern "C" fn own_wide_copy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { own_copy(to, from, count * WIDE) }
}

unsafe extern "C" fn own_wide_copy_to_end(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { own_copy_to_end(to, from, count * WIDE) }
}

unsafe extern "C" fn own_wide_fill(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    // SAFETY: so long by contract.
    unsafe {
        asm!("rep stosd", inout("rcx") count => _, inout("rdi") to => _, in("eax") value,
            options(nostack, preserves_flags));
    }
    to
}

unsafe extern "C" fn own_backward(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe { own_copy(to, from, bytes) };
}

unsafe extern "C" fn own_fill(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: so long by contract.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") to => _, in("al") value as u8,
            options(nostack, preserves_flags));
    }
    to
}

unsafe extern "C" fn own_zero(to: *mut u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe { own_fill(to, 0, bytes) };
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

/// An exported function. The number of elements is in `$number`, an element has `$unit` bytes.
macro_rules! wrapper {
    ($name:literal $call:ident $shape:ident $number:literal $unit:literal $below:ident $own:ident) => {
        larder_wrap::exported! {
            $name,
            ".cfi_startproc",
            "mov rax, qword ptr [rip + larder_copies_left@GOTTPOFF]",
            concat!("lea r11, [", $number, " * ", $unit, "]"),
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
            arguments!($shape),
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

wrapper!("memcpy" Memcpy copy "rdx" 1 MEMMOVE own_copy);
wrapper!("memmove" Memmove copy "rdx" 1 MEMMOVE own_copy);
wrapper!("mempcpy" Mempcpy copy "rdx" 1 MEMPCPY own_copy_to_end);
wrapper!("__mempcpy" Mempcpy copy "rdx" 1 MEMPCPY own_copy_to_end);
wrapper!("memset" Memset fill "rdx" 1 MEMSET own_fill);
wrapper!("bcopy" Bcopy backward "rdx" 1 BCOPY own_backward);
wrapper!("bzero" Bzero fill "rsi" 1 BZERO own_zero);
wrapper!("wmemcpy" Wmemcpy copy "rdx" 4 WMEMMOVE own_wide_copy);
wrapper!("wmemmove" Wmemmove copy "rdx" 4 WMEMMOVE own_wide_copy);
wrapper!("wmempcpy" Wmempcpy copy "rdx" 4 WMEMPCPY own_wide_copy_to_end);
wrapper!("wmemset" Wmemset fill "rdx" 4 WMEMSET own_wide_fill);
wrapper!("__memcpy_chk" Memcpy copy "rdx" 1 MEMMOVE_CHK own_copy);
wrapper!("__memmove_chk" Memmove copy "rdx" 1 MEMMOVE_CHK own_copy);
wrapper!("__mempcpy_chk" Mempcpy copy "rdx" 1 MEMPCPY_CHK own_copy_to_end);
wrapper!("__memset_chk" Memset fill "rdx" 1 MEMSET_CHK own_fill);
wrapper!("__wmemcpy_chk" Wmemcpy copy "rdx" 4 WMEMMOVE_CHK own_wide_copy);
wrapper!("__wmemmove_chk" Wmemmove copy "rdx" 4 WMEMMOVE_CHK own_wide_copy);
wrapper!("__wmempcpy_chk" Wmempcpy copy "rdx" 4 WMEMPCPY_CHK own_wide_copy_to_end);
wrapper!("__wmemset_chk" Wmemset fill "rdx" 4 WMEMSET_CHK own_wide_fill);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_functions_below_the_same_is_done() {
        let mut bytes: Vec<u8> = (0..200).collect();
        let mut expected = bytes.clone();
        for (to, from, count) in [
            (0, 100, 50),
            (10, 5, 100),
            (5, 10, 100),
            (7, 7, 9),
            (3, 90, 0),
        ] {
            expected.copy_within(from..from + count, to);
            let base = bytes.as_mut_ptr();
            // SAFETY: within the vector.
            let returned = unsafe { own_copy(base.add(to), base.add(from), count) };
            assert_eq!((returned, &bytes), (base.wrapping_add(to), &expected));
        }
        let base = bytes.as_mut_ptr();
        // SAFETY: within the vector.
        unsafe {
            assert_eq!(own_copy_to_end(base, base.add(50), 9), base.add(9));
            assert_eq!(own_fill(base.add(20), 0x1ff, 3), base.add(20));
            assert_eq!(own_wide_fill(base.add(60), 0x0403_0201, 2), base.add(60));
            assert_eq!(
                own_wide_copy_to_end(base.add(80), base.add(60), 2),
                base.add(88)
            );
            own_wide_copy(base.add(90), base.add(60), 1);
            own_zero(base.add(30), 4);
            own_backward(base.add(100), base.add(150), 5);
        }
        expected.copy_within(50..59, 0);
        expected[20..23].fill(0xff);
        expected[60..68].copy_from_slice(&[1, 2, 3, 4, 1, 2, 3, 4]);
        expected.copy_within(60..68, 80);
        expected.copy_within(60..64, 90);
        expected[30..34].fill(0);
        expected.copy_within(100..105, 150);
        assert_eq!(bytes, expected);
    }
}
