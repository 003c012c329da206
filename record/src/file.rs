//! The trace file of this process image: header page, chunks, and the end where it grows.
//!
//! Thread safety: an atomic counter assigns space, so threads write concurrently without a lock. A child
//! of fork does not write to the file: it forgets it (`forget`) and makes its own.
//!
//! Invariants: before every write the descriptor is checked to be this file, because programs close
//! descriptors that are not theirs; a failed write stops only the recording; what is written in place
//! (header slots, live regions) has its blocks reserved first.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use larder_trace::StopReason;
use larder_trace::layout::{
    CHUNK_ALIGN, CHUNK_HEADER_BYTES, ChunkHeader, FileHeader, HEADER_BYTES, IMAGE_OFFSET,
    PID_OFFSET, SLOTS_OFFSET, Slot,
};

use crate::fixed::FixedPath;
use crate::state;
use crate::sys::{self, Errno};

static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
static HEADER: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static PATH: FixedPath = FixedPath::new();

/// Our descriptor is at least this, because programs expect low ones for their own files.
const LOWEST_DESCRIPTOR: i32 = 512;
const PAGE: u64 = 4096;

/// A file for this image that is not yet in use.
pub struct NewFile {
    pub image: u32,
    fd: i32,
}

/// Makes `<folder>/<pid>-<n>.ltrace` with the first n that is free. The path stays in `PATH`.
pub fn create(folder: &[u8], pid: u32) -> Result<NewFile, Errno> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    for image in 0..100_000 {
        let Some(path) = PATH.set(&[
            folder,
            b"/",
            decimal(&mut [0; 10], pid),
            b"-",
            decimal(&mut [0; 10], image),
            b".ltrace",
        ]) else {
            return Err(Errno(libc::ENAMETOOLONG));
        };
        match sys::open(path, flags, 0o600) {
            Ok(fd) => {
                return Ok(NewFile {
                    image,
                    fd: move_up(fd),
                });
            }
            Err(Errno(libc::EEXIST)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno(libc::EEXIST))
}

fn move_up(fd: i32) -> i32 {
    match sys::duplicate_above(fd, LOWEST_DESCRIPTOR) {
        Ok(high) => {
            sys::close(fd);
            high
        }
        Err(_) => fd,
    }
}

fn decimal(out: &mut [u8; 10], mut number: u32) -> &[u8] {
    let mut start = out.len();
    loop {
        start -= 1;
        out[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &out[start..];
        }
    }
}

/// File systems on which reserved blocks stay reserved, so that a store into a mapped part never fails:
/// ext2 to 4, XFS, tmpfs, ramfs, F2FS, and overlays of them. With copy-on-write, a store on a full disk
/// would kill the program.
const KEEPS_BLOCKS: [i64; 6] = [
    0xef53,
    0x5846_5342,
    0x0102_1994,
    0x8584_58f6,
    0xf2f5_2010,
    0x794c_7630,
];

impl NewFile {
    /// Writes the header page and makes this the file that chunks go to.
    pub fn open(self, header: &FileHeader) -> Result<(), Errno> {
        let done = self.prepare(header);
        if done.is_err() {
            sys::close(self.fd);
            PATH.with(sys::unlink);
        }
        done
    }

    fn prepare(&self, header: &FileHeader) -> Result<(), Errno> {
        if !KEEPS_BLOCKS.contains(&sys::file_system(self.fd)?) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        reserve_blocks(self.fd, 0, HEADER_BYTES as u64)?;
        let page = sys::map_shared(self.fd, 0, HEADER_BYTES)?;
        let fixed = header.encode();
        // SAFETY: the page is ours, writable, and longer than the fixed part.
        unsafe { page.copy_from_nonoverlapping(fixed.as_ptr(), fixed.len()) };
        let (device, inode) = sys::identity(self.fd)?;
        DEVICE.store(device, Ordering::Relaxed);
        INODE.store(inode, Ordering::Relaxed);
        END.store(HEADER_BYTES as u64, Ordering::Relaxed);
        HEADER.store(page, Ordering::Release);
        DESCRIPTOR.store(self.fd, Ordering::Release);
        set_slot(Slot::LastTicks, header.start_ticks);
        set_slot(Slot::LastMonotonicNs, header.start_monotonic_ns);
        set_slot(Slot::FileEnd, HEADER_BYTES as u64);
        Ok(())
    }
}

/// Gives the descriptor back. What is mapped stays so.
pub fn close() {
    let fd = DESCRIPTOR.swap(-1, Ordering::Relaxed);
    if fd >= 0 && is_ours(fd) {
        sys::close(fd);
    }
}

/// In a child of fork: gives up the parent's file. `make` makes the child's; if that fails, the parent's
/// header, which the child still has mapped, counts it.
pub fn leave_to_child(make: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    close();
    let page = HEADER.load(Ordering::Relaxed);
    let made = make();
    if made.is_err() {
        add_to_slot(Slot::UnrecordedChildren, 1);
    }
    if !page.is_null() {
        // SAFETY: mapped by `prepare` with this length, and replaced or not used any more.
        unsafe { sys::unmap(page, HEADER_BYTES) };
    }
    if made.is_err() {
        HEADER.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    made
}

/// The process and image numbers of the file's name.
pub fn numbers() -> Option<[u32; 2]> {
    let page = HEADER.load(Ordering::Acquire);
    // SAFETY: the page is longer than its fixed part, and mapped like for `slot`.
    let number = |at| unsafe { page.add(at).cast::<u32>().read() };
    (!page.is_null()).then(|| [PID_OFFSET, IMAGE_OFFSET].map(number))
}

pub fn slot(slot: Slot) -> Option<&'static AtomicU64> {
    let page = HEADER.load(Ordering::Acquire);
    if page.is_null() {
        return None;
    }
    // SAFETY: the slots lie within the mapped page, aligned to eight; it is only unmapped in a child
    // of fork, before any other use.
    Some(unsafe {
        &*page
            .add(SLOTS_OFFSET + 8 * slot as usize)
            .cast::<AtomicU64>()
    })
}

pub fn set_slot(which: Slot, value: u64) {
    if let Some(slot) = slot(which) {
        slot.store(value, Ordering::Relaxed);
    }
}

pub fn add_to_slot(which: Slot, amount: u64) {
    if let Some(slot) = slot(which) {
        slot.fetch_add(amount, Ordering::Relaxed);
    }
}

fn is_ours(fd: i32) -> bool {
    let ours = (
        DEVICE.load(Ordering::Relaxed),
        INODE.load(Ordering::Relaxed),
    );
    sys::identity(fd) == Ok(ours)
}

/// The file's descriptor; opens the file again if the program has closed it.
fn descriptor() -> Result<i32, Errno> {
    let fd = DESCRIPTOR.load(Ordering::Acquire);
    if fd >= 0 && is_ours(fd) {
        return Ok(fd);
    }
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let again = move_up(PATH.with(|path| sys::open(path, flags, 0))?);
    if !is_ours(again) {
        sys::close(again);
        return Err(Errno(libc::ESTALE));
    }
    DESCRIPTOR.store(again, Ordering::Release);
    Ok(again)
}

fn reserve(bytes: u64, align: u64) -> u64 {
    let mut end = END.load(Ordering::Relaxed);
    loop {
        let start = end.next_multiple_of(align);
        let new = (start + bytes).next_multiple_of(CHUNK_ALIGN);
        match END.compare_exchange_weak(end, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                set_slot(Slot::FileEnd, new);
                return start;
            }
            Err(now) => end = now,
        }
    }
}

/// Reserves blocks for a range, by a system call or by writing zeros.
fn reserve_blocks(fd: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
    let held = sys::FileSizeSignalHeld::new();
    let done = loop {
        match sys::allocate(fd, offset, bytes) {
            Err(Errno(libc::EINTR)) => {}
            Err(Errno(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                break write_zeros(fd, offset, bytes);
            }
            done => break done,
        }
    };
    if done == Err(Errno(libc::EFBIG)) {
        held.swallow();
    }
    done
}

fn write_zeros(fd: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
    let zeros = [0; PAGE as usize];
    let mut at = offset;
    while at < offset + bytes {
        let part = (offset + bytes - at).min(PAGE) as usize;
        at += sys::write_at(fd, &zeros[..part], at)? as u64;
    }
    Ok(())
}

fn write_all(fd: i32, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    let held = sys::FileSizeSignalHeld::new();
    while !bytes.is_empty() {
        match sys::write_at(fd, bytes, offset) {
            Ok(0) => return Err(Errno(libc::ENOSPC)),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or(&[]);
                offset += written as u64;
            }
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => {
                if errno == Errno(libc::EFBIG) {
                    held.swallow();
                }
                return Err(errno);
            }
        }
    }
    Ok(())
}

fn reason(errno: Errno) -> StopReason {
    match errno.0 {
        libc::ENOSPC => StopReason::DiskFull,
        libc::EDQUOT => StopReason::Quota,
        libc::EFBIG => StopReason::FileTooLarge,
        libc::ENOMEM => StopReason::NoMemory,
        _ => StopReason::WriteError,
    }
}

/// Appends a chunk. `buffer` has room for the header, then the payload. If the write fails, stops the
/// recording and returns false.
pub fn append(buffer: &mut [u8], mut header: ChunkHeader) -> bool {
    let Some((head, payload)) = buffer.split_at_mut_checked(CHUNK_HEADER_BYTES) else {
        return false;
    };
    header.stored_bytes = payload.len() as u32;
    header.contents.check_or_committed = crc32fast::hash(payload);
    head.copy_from_slice(&header.encode());
    let written = descriptor().and_then(|fd| {
        let offset = reserve(buffer.len() as u64, CHUNK_ALIGN);
        write_all(fd, buffer, offset)
    });
    if let Err(errno) = written {
        state::stop(reason(errno), errno.0);
    }
    written.is_ok()
}

/// A mapped part of the file.
#[derive(Clone, Copy)]
pub struct Region {
    pub start: *mut u8,
    pub bytes: usize,
    offset: u64,
}

impl Region {
    pub const NONE: Region = Region {
        start: std::ptr::null_mut(),
        bytes: 0,
        offset: 0,
    };

    /// Returns its place in the file. Its contents are lost.
    ///
    /// # Safety
    /// No thread may access the region afterwards.
    pub unsafe fn release(self) {
        // SAFETY: the caller's promise.
        unsafe { sys::unmap(self.start, self.bytes) };
        if let Ok(fd) = descriptor() {
            sys::deallocate(fd, self.offset, self.bytes as u64);
        }
    }
}

/// A mapped part of the file, zeroed, with its blocks reserved. If there is no room, stops the recording
/// and returns `None`.
pub fn map_region(bytes: usize) -> Option<Region> {
    let mapped = descriptor().and_then(|fd| {
        let offset = reserve(bytes as u64, PAGE);
        reserve_blocks(fd, offset, bytes as u64)?;
        let start = sys::map_shared(fd, offset, bytes)?;
        Ok(Region {
            start,
            bytes,
            offset,
        })
    });
    match mapped {
        Ok(region) => Some(region),
        Err(errno) => {
            state::stop(reason(errno), errno.0);
            None
        }
    }
}

/// Reports an error in one line on stderr.
pub fn warn(what: &[u8], subject: &CStr, errno: Option<Errno>, remedy: &[u8]) {
    let mut line = [0u8; 1024];
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        let part = bytes.len().min(line.len() - len);
        line[len..len + part].copy_from_slice(&bytes[..part]);
        len += part;
    };
    put(b"larder: ");
    put(what);
    put(subject.to_bytes());
    if let Some(Errno(number)) = errno {
        put(b": ");
        put(state::describe(number));
    }
    put(b"; ");
    put(remedy);
    put(b"\n");
    let _ = sys::write(2, &line[..len]);
}
