//! Writes the calling thread's stack as text at the first call that fails, without allocating.

use std::ffi::{CStr, c_int, c_void};

use crate::layout::MAX_FRAMES;

type Context = c_void;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

struct Frames {
    addresses: [usize; MAX_FRAMES],
    count: usize,
}

extern "C" fn keep(context: *mut Context, argument: *mut c_void) -> c_int {
    // SAFETY: the struct that `write` waits with, and the unwinder's own context.
    let (frames, address) = unsafe { (&mut *argument.cast::<Frames>(), _Unwind_GetIP(context)) };
    match frames.addresses.get_mut(frames.count) {
        Some(place) if address != 0 => {
            *place = address;
            frames.count += 1;
            GO_ON
        }
        _ => STOP,
    }
}

/// Where an address lies.
struct Module {
    address: usize,
    bias: usize,
    path: *const libc::c_char,
}

unsafe extern "C" fn covers(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: what `dl_iterate_phdr` hands on, and the struct that waits for it.
    unsafe {
        let (info, module) = (&*info, &mut *argument.cast::<Module>());
        let bias = info.dlpi_addr as usize;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let inside = headers.iter().any(|header| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            header.p_type == libc::PT_LOAD
                && module.address.wrapping_sub(start) < header.p_memsz as usize
        });
        if inside {
            module.bias = bias;
            module.path = info.dlpi_name;
        }
        c_int::from(inside)
    }
}

fn module_of(address: usize) -> Option<Module> {
    let mut module = Module {
        address,
        bias: 0,
        path: std::ptr::null(),
    };
    // SAFETY: the callback has the right type, and the struct outlives the call.
    let found = unsafe { libc::dl_iterate_phdr(Some(covers), (&raw mut module).cast()) } != 0;
    found.then_some(module)
}

struct Text<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    /// Writes all or nothing.
    fn line(&mut self, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let Some(place) = self.out.get_mut(self.len..self.len + bytes) else {
            return;
        };
        let all = parts.iter().copied().flatten().chain(b"\n");
        for (to, from) in place.iter_mut().zip(all) {
            *to = *from;
        }
        self.len += bytes;
    }
}

/// Writes the callers of this library in the form of `layout::Slot::text`; returns the bytes.
pub fn write(out: &mut [u8]) -> usize {
    let mut frames = Frames {
        addresses: [0; MAX_FRAMES],
        count: 0,
    };
    // SAFETY: the callback has the right type, and the struct outlives the call.
    unsafe { _Unwind_Backtrace(keep, (&raw mut frames).cast()) };
    let own = module_of(write as *const () as usize).map(|module| module.bias);
    let mut executable = [0u8; 4096];
    // SAFETY: the kernel writes up to the length given.
    let length = unsafe {
        let link = c"/proc/self/exe".as_ptr();
        libc::readlink(link, executable.as_mut_ptr().cast(), executable.len())
    };
    let executable = executable.get(..length.max(0) as usize).unwrap_or_default();
    let mut text = Text { out, len: 0 };
    let mut digits = [0u8; 18];
    for address in frames.addresses.iter().take(frames.count) {
        let Some(module) = module_of(*address) else {
            text.line(&[hexadecimal(*address, &mut digits), b" ?"]);
            continue;
        };
        if Some(module.bias) == own {
            continue;
        }
        // SAFETY: the loader's own string, which stays while the module is loaded: it is being called.
        let mut path = unsafe { CStr::from_ptr(module.path) }.to_bytes();
        if path.is_empty() {
            path = executable;
        }
        let at = hexadecimal(address.wrapping_sub(module.bias), &mut digits);
        text.line(&[at, b" ", path]);
    }
    text.len
}

fn hexadecimal(mut number: usize, digits: &mut [u8; 18]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b"0123456789abcdef"[number & 15];
        number >>= 4;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_hexadecimal_and_lines_whole() {
        assert_eq!(hexadecimal(0, &mut [0; 18]), b"0");
        assert_eq!(hexadecimal(usize::MAX, &mut [0; 18]), b"ffffffffffffffff");
        let mut out = [0; 8];
        let mut text = Text {
            out: &mut out,
            len: 0,
        };
        text.line(&[b"a", b" ", b"b"]);
        text.line(&[b"too", b" ", b"long"]);
        assert_eq!((text.len, &out[..4]), (4, &b"a b\n"[..]));
    }

    #[test]
    fn a_stack_names_the_modules_of_its_frames() {
        let module = module_of(libc::getpid as *const () as usize).expect("libc is loaded");
        // SAFETY: libc stays loaded.
        let path = unsafe { CStr::from_ptr(module.path) };
        assert!(path.to_bytes().ends_with(b"libc.so.6"), "{path:?}");
        assert!(module_of(16).is_none());
    }
}
