//! The memory of another process, read by process_vm_readv: all of a range, or an error. Only `attach` writes to
//! it. Numbers in it have the machine's byte order, little-endian.
//!
//! The directory under /proc stays open, so that another process that gets the same number later is
//! not mistaken for this one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, openat};

use super::Obstacle;

/// Limit of one read: the descriptors of a region of 64 segments take 1 MiB.
pub const MOST_BYTES: usize = 4 << 20;
/// The kernel's limit for one call.
pub const MOST_RANGES: usize = 1024;
/// Limit of a text file under /proc: 65,530 mappings with long names.
const MOST_TEXT: u64 = 64 << 20;

pub struct Memory {
    id: u32,
    directory: File,
}

impl Memory {
    pub fn open(id: u32) -> Result<Self, Obstacle> {
        let directory = File::open(format!("/proc/{id}")).map_err(|_| Obstacle::NoProcess)?;
        Ok(Self { id, directory })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// A path below the process's directory in /proc.
    pub fn proc_path(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.id).into()
    }

    pub fn open_file(&self, name: &str) -> Result<File, Obstacle> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match openat(self.directory.as_fd(), name, flags, Mode::empty()) {
            Ok(file) => Ok(file.into()),
            Err(error) => Err(obstacle(error.kind())),
        }
    }

    pub fn text(&self, name: &str) -> Result<Vec<u8>, Obstacle> {
        let mut text = Vec::new();
        let file = self.open_file(name)?;
        let read = file.take(MOST_TEXT).read_to_end(&mut text);
        read.map_err(|error| obstacle(error.kind()))?;
        Ok(text)
    }

    /// Fills `bytes`, or fails.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Obstacle> {
        if bytes.is_empty() {
            return Ok(());
        }
        if address.checked_add(bytes.len() as u64).is_none() || bytes.len() > MOST_BYTES {
            return Err(Obstacle::Unsound("an address"));
        }
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: bytes.len(),
        };
        // SAFETY: `local` describes `bytes`, which lives through the call; `remote` is the other
        // process's, and the kernel checks it.
        let read = unsafe { libc::process_vm_readv(self.id as i32, &local, 1, &remote, 1, 0) };
        if usize::try_from(read) == Ok(bytes.len()) {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match (read, error.raw_os_error()) {
            (-1, Some(libc::EPERM | libc::ENOSYS)) => Err(Obstacle::NotPermitted),
            (-1, Some(libc::ESRCH)) => Err(Obstacle::Ended),
            // Not mapped: the process is another program now or is exiting, or the address is stale.
            _ if self.has_ended() => Err(Obstacle::Ended),
            _ => Err(Obstacle::Unsound("an address")),
        }
    }

    /// Writes all of `bytes`, or fails.
    #[cfg(target_arch = "x86_64")]
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Obstacle> {
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: bytes.len(),
        };
        // SAFETY: `local` describes `bytes`, which is only read; `remote` is the other process's, and the kernel
        // checks it.
        let written = unsafe { libc::process_vm_writev(self.id as i32, &local, 1, &remote, 1, 0) };
        match usize::try_from(written) == Ok(bytes.len()) {
            true => Ok(()),
            false if self.has_ended() => Err(Obstacle::Ended),
            false => Err(Obstacle::Unsound("an address")),
        }
    }

    pub fn bytes(&self, address: u64, count: usize) -> Result<Vec<u8>, Obstacle> {
        if count > MOST_BYTES {
            return Err(Obstacle::Unsound("a size"));
        }
        let mut bytes = vec![0; count];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` from the ranges in order, up to the first that cannot be read; returns how many
    /// bytes. REQUIRES: up to `MOST_RANGES` ranges, together as long as `bytes`.
    pub fn read_ranges(&self, ranges: &[(u64, usize)], bytes: &mut [u8]) -> usize {
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let remote: Vec<libc::iovec> = ranges
            .iter()
            .map(|(address, length)| libc::iovec {
                iov_base: *address as *mut libc::c_void,
                iov_len: *length,
            })
            .collect();
        let count = remote.len() as libc::c_ulong;
        // SAFETY: `local` describes `bytes`; `remote` is the other process's, and the kernel checks it.
        let read =
            unsafe { libc::process_vm_readv(self.id as i32, &local, 1, remote.as_ptr(), count, 0) };
        usize::try_from(read).unwrap_or(0)
    }

    pub fn word(&self, address: u64) -> Result<u64, Obstacle> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Whether the process has ended; a zombie has no memory either.
    pub fn has_ended(&self) -> bool {
        self.text("maps").map_or(true, |maps| maps.is_empty())
    }
}

/// Reads words that lie near each other: a cache of pages, up to 16 MiB.
pub struct Pieces<'a> {
    memory: &'a Memory,
    pages: HashMap<u64, Vec<u8>>,
}

impl<'a> Pieces<'a> {
    const BYTES: u64 = 4096;
    const MOST_PAGES: usize = 4096;

    pub fn new(memory: &'a Memory) -> Self {
        let pages = HashMap::new();
        Self { memory, pages }
    }

    /// Empties the cache.
    pub fn forget(&mut self) {
        self.pages.clear();
    }

    pub fn bytes(&mut self, at: u64, count: usize) -> Result<Vec<u8>, Obstacle> {
        let end = at
            .checked_add(count as u64)
            .ok_or(Obstacle::Unsound("an address"))?;
        let mut bytes = Vec::with_capacity(count);
        let mut from = at;
        while from < end {
            let base = from / Self::BYTES * Self::BYTES;
            if self.pages.len() >= Self::MOST_PAGES && !self.pages.contains_key(&base) {
                self.forget();
            }
            let page = match self.pages.entry(base) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.memory.bytes(base, Self::BYTES as usize)?),
            };
            let to = end.min(base + Self::BYTES);
            let part = page.get((from - base) as usize..(to - base) as usize);
            bytes.extend_from_slice(part.unwrap_or_default());
            from = to;
        }
        Ok(bytes)
    }

    pub fn word(&mut self, at: u64) -> Result<u64, Obstacle> {
        Ok(Fields(&self.bytes(at, 8)?).u64(0))
    }
}

fn obstacle(kind: ErrorKind) -> Obstacle {
    match kind {
        ErrorKind::PermissionDenied => Obstacle::NotPermitted,
        _ => Obstacle::Ended,
    }
}

/// Fields of a structure that was read, by their offsets in bytes. A field beyond its end is 0; the
/// check of the layout excludes that.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().unwrap_or([0; N])
    }
    pub fn u8(&self, at: usize) -> u8 {
        u8::from_ne_bytes(self.array(at))
    }
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
    pub fn u128(&self, at: usize) -> u128 {
        u128::from_ne_bytes(self.array(at))
    }
    pub fn f32(&self, at: usize) -> f32 {
        f32::from_ne_bytes(self.array(at))
    }
    pub fn f64(&self, at: usize) -> f64 {
        f64::from_ne_bytes(self.array(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_over_pages_and_kept_within_their_bound() {
        let memory = Memory::open(std::process::id()).unwrap();
        let mut there = vec![0u8; (Pieces::MOST_PAGES + 9) * 4096];
        let start = there.as_ptr() as u64;
        let edge = start.next_multiple_of(4096) + 4094 - start;
        there[edge as usize..][..4].copy_from_slice(&[1, 2, 3, 4]);
        let mut pieces = Pieces::new(&memory);
        assert_eq!(pieces.bytes(start + edge, 4), Ok(vec![1, 2, 3, 4]));
        for at in (0..there.len() as u64 - 8).step_by(4096) {
            assert!(pieces.word(start + at).is_ok());
        }
        assert!(pieces.pages.len() <= Pieces::MOST_PAGES);
        for beyond in [1, u64::MAX, u64::MAX - 8, u64::MAX - 4096] {
            assert!(pieces.bytes(beyond, 8).is_err(), "{beyond:#x}");
        }
    }
}
