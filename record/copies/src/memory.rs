//! `memcpy` and its like, whose number of bytes is an argument. A wrapper jumps to the function below with the
//! stack and the argument registers as it found them.

use larder_trace::CopyCall;

use crate::arch::{self, memory_wrapper};
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

unsafe extern "C" fn own_copy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: both are so long by contract.
    unsafe { arch::copy(to, from, bytes) };
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
    for at in 0..count {
        // SAFETY: so long by contract, and aligned or not.
        unsafe { own_copy(to.add(at * WIDE), (&raw const value).cast(), WIDE) };
    }
    to
}

unsafe extern "C" fn own_backward(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe { own_copy(to, from, bytes) };
}

unsafe extern "C" fn own_fill(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: so long by contract.
    unsafe { arch::fill(to, value as u8, bytes) };
    to
}

unsafe extern "C" fn own_zero(to: *mut u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe { own_fill(to, 0, bytes) };
}

memory_wrapper!("memcpy" Memcpy copy third 1 MEMMOVE own_copy);
memory_wrapper!("memmove" Memmove copy third 1 MEMMOVE own_copy);
memory_wrapper!("mempcpy" Mempcpy copy third 1 MEMPCPY own_copy_to_end);
memory_wrapper!("__mempcpy" Mempcpy copy third 1 MEMPCPY own_copy_to_end);
memory_wrapper!("memset" Memset fill third 1 MEMSET own_fill);
memory_wrapper!("bcopy" Bcopy backward third 1 BCOPY own_backward);
memory_wrapper!("bzero" Bzero fill second 1 BZERO own_zero);
memory_wrapper!("wmemcpy" Wmemcpy copy third 4 WMEMMOVE own_wide_copy);
memory_wrapper!("wmemmove" Wmemmove copy third 4 WMEMMOVE own_wide_copy);
memory_wrapper!("wmempcpy" Wmempcpy copy third 4 WMEMPCPY own_wide_copy_to_end);
memory_wrapper!("wmemset" Wmemset fill third 4 WMEMSET own_wide_fill);
memory_wrapper!("__memcpy_chk" Memcpy copy third 1 MEMMOVE_CHK own_copy);
memory_wrapper!("__memmove_chk" Memmove copy third 1 MEMMOVE_CHK own_copy);
memory_wrapper!("__mempcpy_chk" Mempcpy copy third 1 MEMPCPY_CHK own_copy_to_end);
memory_wrapper!("__memset_chk" Memset fill third 1 MEMSET_CHK own_fill);
memory_wrapper!("__wmemcpy_chk" Wmemcpy copy third 4 WMEMMOVE_CHK own_wide_copy);
memory_wrapper!("__wmemmove_chk" Wmemmove copy third 4 WMEMMOVE_CHK own_wide_copy);
memory_wrapper!("__wmempcpy_chk" Wmempcpy copy third 4 WMEMPCPY_CHK own_wide_copy_to_end);
memory_wrapper!("__wmemset_chk" Wmemset fill third 4 WMEMSET_CHK own_wide_fill);

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
