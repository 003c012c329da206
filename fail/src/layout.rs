//! The file through which `larder run --fail-…` learns what the preloaded library did: a header, then
//! a slot for each process image, mapped by all of them, so that it holds however they end.
//!
//! Library and tool are built from this one file. Only zeros before a slot is claimed.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Names the format; its last digits count its versions.
pub const MAGIC: u64 = 0x4c61_7264_4661_0002;
pub const HEADER_BYTES: usize = 4096;
pub const SLOT_BYTES: usize = 16 << 10;
pub const SLOTS: usize = 4096;
pub const FILE_BYTES: usize = HEADER_BYTES + SLOTS * SLOT_BYTES;
/// Frames of the stack that are kept, the innermost.
pub const MAX_FRAMES: usize = 64;

pub const RANGE_VARIABLE: &str = "LARDER_FAIL";
pub const LOG_VARIABLE: &str = "LARDER_FAIL_LOG";

#[repr(C)]
pub struct Header {
    pub magic: u64,
    /// Images that wanted a slot; more than `SLOTS` of them did without.
    pub images: AtomicU32,
}

#[repr(C)]
pub struct Slot {
    pub pid: AtomicU32,
    /// 1 when what follows `failed` is whole.
    pub described: AtomicU32,
    /// Calls so far.
    pub calls: AtomicU64,
    /// Of these, made to fail.
    pub failed: AtomicU64,
    /// The first that was made to fail: its number from 1, what was called (by the code of the trace format's calls), bytes.
    pub number: AtomicU64,
    pub call: AtomicU32,
    pub text_bytes: AtomicU32,
    pub size: AtomicU64,
    /// Its stack, innermost first: a line a frame, the return address in the module's file in
    /// hexadecimal, a space, the module's path; `?` without one.
    pub text: [u8; TEXT_BYTES],
}

pub const TEXT_BYTES: usize = SLOT_BYTES - 48;
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);
