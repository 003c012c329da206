//! A path in static memory, so that storing it needs no allocation.
//!
//! Thread safety: only the thread that starts the recorder calls `set`; afterwards the path is only read.

use std::cell::UnsafeCell;
use std::ffi::CStr;

const BYTES: usize = 4096 + 64;

pub struct FixedPath(UnsafeCell<[u8; BYTES]>);

// SAFETY: see the module's note.
unsafe impl Sync for FixedPath {}

impl FixedPath {
    pub const fn new() -> Self {
        FixedPath(UnsafeCell::new([0; BYTES]))
    }

    /// Joins the parts; `None` if they do not fit or hold a NUL.
    pub fn set(&self, parts: &[&[u8]]) -> Option<&CStr> {
        // SAFETY: one thread, as said above.
        let bytes = unsafe { &mut *self.0.get() };
        let mut len = 0;
        for part in parts {
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        *bytes.get_mut(len)? = 0;
        CStr::from_bytes_with_nul(bytes.get(..=len)?).ok()
    }

    pub fn get(&self) -> &CStr {
        // SAFETY: no writer is left, as said above.
        let bytes = unsafe { &*self.0.get() };
        CStr::from_bytes_until_nul(bytes).unwrap_or(c"")
    }

    pub fn with<R>(&self, act: impl FnOnce(&CStr) -> R) -> R {
        act(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_too_long_is_refused() {
        let path = FixedPath::new();
        assert_eq!(path.set(&[b"/a", b"/", b"b"]), Some(c"/a/b"));
        assert_eq!(path.get(), c"/a/b");
        assert_eq!(path.set(&[b"a\0b"]), None);
        assert_eq!(path.set(&[&[b'x'; 5000]]), None);
    }
}
