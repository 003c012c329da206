//! The file in which the preloaded library reports to `larder run --fail-…`: a header, then a slot for each
//! process image. All images map it, so that the data survives however they end.
//!
//! The library and the tool both compile this file. A slot is zero until it is claimed.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Identifies the format; its last digits are the version.
pub const MAGIC: u64 = 0x4c61_7264_4661_0002;
pub const HEADER_BYTES: usize = 4096;
pub const SLOT_BYTES: usize = 16 << 10;
pub const SLOTS: usize = 4096;
pub const FILE_BYTES: usize = HEADER_BYTES + SLOTS * SLOT_BYTES;
/// Limit on the frames of a stack; the innermost are stored.
pub const MAX_FRAMES: usize = 64;

pub const RANGE_VARIABLE: &str = "LARDER_FAIL";
pub const LOG_VARIABLE: &str = "LARDER_FAIL_LOG";

#[repr(C)]
pub struct Header {
    pub magic: u64,
    /// Images that requested a slot; those beyond `SLOTS` have none.
    pub images: AtomicU32,
}

#[repr(C)]
pub struct Slot {
    pub pid: AtomicU32,
    /// 1 when the fields behind `failed` are complete.
    pub described: AtomicU32,
    /// Calls so far.
    pub calls: AtomicU64,
    /// Of these, calls that were made to fail.
    pub failed: AtomicU64,
    /// The first failed call: its number from 1, its function (the trace format's code), its bytes.
    pub number: AtomicU64,
    pub call: AtomicU32,
    pub text_bytes: AtomicU32,
    pub size: AtomicU64,
    /// Its stack, innermost first, a line a frame: the return address in the module's file in hexadecimal, a
    /// space, the module's path, or `?`.
    pub text: [u8; TEXT_BYTES],
}

pub const TEXT_BYTES: usize = SLOT_BYTES - 48;
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);
