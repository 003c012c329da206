//! A stream's current chunk: records go into a live region, which is a mapped part of the trace file. When
//! it is full, it is compressed and appended to the file.
//!
//! So every record of a killed process is in the file: the kernel keeps what was stored.
//!
//! Thread safety: a `Live` belongs to a stream. Invariants: `committed` in the region counts complete
//! records only, and is raised after their bytes are stored; a region keeps its chunk until the sealed
//! one, with the same number, is written, so that nothing is lost in between.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use larder_trace::layout::{
    CHUNK_HEADER_BYTES, COMMITTED_FIELD, ChunkHeader, ChunkKind, Contents, EVENTS_FIELD,
    LIVE_DATA_OFFSET, LIVE_STATE_BYTES, MAX_RAW_BYTES,
};
use larder_trace::{StopReason, columns};
use zstd_safe::zstd_sys as zstd;

use crate::file::{self, Region};
use crate::memory::Pages;
use crate::{clock, state, sys};

/// The sizes of a thread's successive regions, so that a thread with few calls takes little.
const REGION_BYTES: [usize; 5] = [8 << 10, 32 << 10, 128 << 10, 256 << 10, 1 << 20];
const _: () = assert!(REGION_BYTES[4] + columns::HEADER_BYTES - LIVE_DATA_OFFSET <= MAX_RAW_BYTES);

/// Higher levels save a twentieth, and take twice the time.
const LEVEL: i32 = 1;

pub struct Live {
    region: Region,
    size: usize,
    /// Bytes of complete records.
    pub committed: usize,
    events: u32,
    contents: Contents,
}

impl Live {
    pub const fn new(stream: u32) -> Self {
        Live {
            region: Region::NONE,
            size: 0,
            committed: 0,
            events: 0,
            contents: Contents {
                stream,
                seq: 0,
                events: 0,
                tid: 0,
                first_node: 0,
                first_site: 0,
                first_frame: 0,
                generation: 0,
                check_or_committed: 0,
                first_time: 0,
                last_time: 0,
            },
        }
    }

    pub fn is_open(&self) -> bool {
        !self.region.start.is_null()
    }

    /// Gets a region; false if there is none.
    pub fn open(&mut self) -> bool {
        let bytes = REGION_BYTES[self.size];
        let Some(region) = file::map_region(bytes) else {
            return false;
        };
        let header = ChunkHeader {
            kind: ChunkKind::Live,
            compressed: false,
            columns: false,
            stored_bytes: (bytes - CHUNK_HEADER_BYTES) as u32,
            raw_bytes: 0,
            contents: Contents {
                stream: self.contents.stream,
                ..Contents::default()
            },
        };
        let encoded = header.encode();
        // SAFETY: a region is longer than a header.
        unsafe {
            region
                .start
                .copy_from_nonoverlapping(encoded.as_ptr(), encoded.len())
        };
        self.region = region;
        true
    }

    /// Begins a chunk with the stream's current state.
    pub fn begin(&mut self, from: Contents) {
        self.contents = Contents {
            stream: self.contents.stream,
            seq: self.contents.seq,
            ..from
        };
        self.contents.check_or_committed = 0;
        self.contents.events = 0;
        self.committed = 0;
        self.events = 0;
        let encoded = self.contents.encode();
        self.publish(0, 0);
        // SAFETY: the state follows the chunk header in every region.
        unsafe {
            self.region
                .start
                .add(CHUNK_HEADER_BYTES)
                .copy_from_nonoverlapping(encoded.as_ptr(), encoded.len());
        }
    }

    /// The number of the current chunk.
    pub fn chunk(&self) -> u32 {
        self.contents.seq
    }

    /// Remaining bytes.
    #[inline]
    pub fn room(&self) -> usize {
        self.region
            .bytes
            .saturating_sub(LIVE_DATA_OFFSET + self.committed)
    }

    /// Where the next record is stored.
    #[inline]
    pub fn tail(&mut self) -> &mut [u8] {
        // SAFETY: `room` bytes behind the committed ones lie in the region, which is mapped.
        unsafe {
            let start = self.region.start.add(LIVE_DATA_OFFSET + self.committed);
            std::slice::from_raw_parts_mut(start, self.room())
        }
    }

    /// Commits the record that was just stored at the tail.
    #[inline]
    pub fn commit(&mut self, bytes: usize, is_call: bool) {
        self.committed += bytes;
        self.events += u32::from(is_call);
        self.publish(self.committed as u32, self.events);
    }

    #[inline]
    fn publish(&mut self, committed: u32, events: u32) {
        // SAFETY: both fields lie in the region's state, aligned to four.
        unsafe {
            let state = self.region.start.add(CHUNK_HEADER_BYTES);
            (*state.add(EVENTS_FIELD).cast::<AtomicU32>()).store(events, Ordering::Relaxed);
            (*state.add(COMMITTED_FIELD).cast::<AtomicU32>()).store(committed, Ordering::Release);
        }
    }

    /// Appends the chunk to the file. If that fails, stops the recording and returns false; the region then
    /// still has the chunk.
    pub fn seal(&mut self, last_time: u64) -> bool {
        if self.committed == 0 {
            return true;
        }
        clock::note();
        self.contents.events = self.events;
        self.contents.last_time = last_time;
        // SAFETY: the committed records.
        let raw = unsafe {
            std::slice::from_raw_parts(self.region.start.add(LIVE_DATA_OFFSET), self.committed)
        };
        let contents = self.contents;
        let written = with_compressor(|compressor| compressor.write(raw, contents));
        if written {
            self.contents.seq += 1;
        }
        written
    }

    /// After a seal: changes to a larger region if this one was full.
    pub fn enlarge(&mut self) {
        if self.size + 1 < REGION_BYTES.len() {
            self.resize(self.size + 1);
        }
    }

    /// After a seal: changes to the smallest region, for the few records that may follow.
    pub fn shrink(&mut self) {
        if self.size > 0 {
            self.resize(0);
        }
    }

    fn resize(&mut self, size: usize) {
        let old = (self.region, self.size);
        self.publish(0, 0);
        self.size = size;
        if self.open() {
            // SAFETY: the old region is empty, and only this stream uses it.
            unsafe { old.0.release() };
        } else {
            self.size = old.1;
        }
    }

    /// The region stays in its file: in a child of fork the parent's, or that of an earlier recording.
    pub fn abandon(&mut self) {
        if !self.region.start.is_null() {
            // SAFETY: the process's own mapping of it, which only this stream uses.
            unsafe { sys::unmap(self.region.start, self.region.bytes) };
        }
        *self = Live::new(self.contents.stream);
    }
}

const _: () = assert!(LIVE_STATE_BYTES >= larder_trace::layout::CONTENTS_BYTES);

/// Memory for one compression at a time.
struct Compressor {
    busy: AtomicBool,
    work: std::cell::UnsafeCell<Work>,
}

struct Work {
    workspace: Pages<u64>,
    output: Pages<u8>,
    taken_apart: Pages<u8>,
    columns: Pages<u8>,
}

// SAFETY: only the thread that has set `busy` accesses the work.
unsafe impl Sync for Compressor {}

static COMPRESSORS: [Compressor; 4] = [const {
    Compressor {
        busy: AtomicBool::new(false),
        work: std::cell::UnsafeCell::new(Work::empty()),
    }
}; 4];

fn with_compressor(act: impl FnOnce(&mut Work) -> bool) -> bool {
    loop {
        for compressor in &COMPRESSORS {
            if !compressor.busy.swap(true, Ordering::Acquire) {
                // SAFETY: this thread set `busy`.
                let done = act(unsafe { &mut *compressor.work.get() });
                compressor.busy.store(false, Ordering::Release);
                return done;
            }
        }
        sys::yield_processor();
    }
}

/// In a child of fork: the thread that was compressing does not exist. It may have moved its memory without having
/// noted where to, so the child leaves that alone.
pub fn after_fork() {
    for compressor in &COMPRESSORS {
        if compressor.busy.load(Ordering::Acquire) {
            // SAFETY: the process has no other thread.
            unsafe { compressor.work.get().write(Work::empty()) };
            compressor.busy.store(false, Ordering::Release);
        }
    }
}

impl Work {
    const fn empty() -> Self {
        Work {
            workspace: Pages::empty(),
            output: Pages::empty(),
            taken_apart: Pages::empty(),
            columns: Pages::empty(),
        }
    }

    fn write(&mut self, raw: &[u8], contents: Contents) -> bool {
        if !self.prepare(raw.len()) {
            state::stop(StopReason::NoMemory, libc::ENOMEM);
            return false;
        }
        let output = self.output.slice();
        let Some(room) = output.get_mut(CHUNK_HEADER_BYTES..) else {
            return false;
        };
        let columns = self.columns.slice();
        let split = columns::split(raw, self.taken_apart.slice(), columns);
        let content = match split {
            Some(bytes) => columns.get(..bytes).unwrap_or(raw),
            None => raw,
        };
        let packed = compress(self.workspace.slice(), room, content);
        let (compressed, stored) = match packed {
            Some(bytes) if bytes < raw.len() => (true, bytes),
            _ => {
                let Some(place) = room.get_mut(..raw.len()) else {
                    return false;
                };
                place.copy_from_slice(raw);
                (false, raw.len())
            }
        };
        let header = ChunkHeader {
            kind: ChunkKind::Events,
            compressed,
            columns: compressed && split.is_some(),
            stored_bytes: stored as u32,
            raw_bytes: if compressed { content.len() } else { raw.len() } as u32,
            contents,
        };
        match output.get_mut(..CHUNK_HEADER_BYTES + stored) {
            Some(buffer) => file::append(buffer, header),
            None => false,
        }
    }

    fn prepare(&mut self, raw: usize) -> bool {
        let columns = raw + columns::HEADER_BYTES;
        // SAFETY: these two only compute.
        let (workspace, output) = unsafe {
            (
                zstd::ZSTD_estimateCCtxSize(LEVEL),
                zstd::ZSTD_compressBound(columns),
            )
        };
        self.workspace.grow(workspace / 8 + 1)
            && self.output.grow(CHUNK_HEADER_BYTES + output)
            && self.taken_apart.grow(columns::COLUMNS * raw)
            && self.columns.grow(columns)
    }
}

/// One zstd frame; `None` if it does not fit.
fn compress(workspace: &mut [u64], out: &mut [u8], raw: &[u8]) -> Option<usize> {
    // SAFETY: the workspace is as large as zstd asked for and aligned to eight; the context made in
    // it is not used after this function.
    unsafe {
        let context =
            zstd::ZSTD_initStaticCCtx(workspace.as_mut_ptr().cast(), size_of_val(workspace));
        if context.is_null() {
            return None;
        }
        let level = zstd::ZSTD_cParameter::ZSTD_c_compressionLevel;
        zstd::ZSTD_CCtx_setParameter(context, level, LEVEL);
        let written = zstd::ZSTD_compress2(
            context,
            out.as_mut_ptr().cast(),
            out.len(),
            raw.as_ptr().cast(),
            raw.len(),
        );
        (zstd::ZSTD_isError(written) == 0).then_some(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_thread_was_moving_during_fork_is_not_used_in_the_child() {
        with_compressor(|work| {
            assert!(work.taken_apart.grow(1));
            let moved = work.taken_apart.slice();
            // SAFETY: whole pages of this compressor's, without another pointer into them.
            unsafe { sys::unmap(moved.as_mut_ptr(), moved.len()) };
            after_fork();
            true
        });
        with_compressor(|work| {
            assert!(work.taken_apart.grow(1));
            work.taken_apart.slice()[0] = 1;
            true
        });
    }
}
