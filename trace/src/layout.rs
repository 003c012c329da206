//! The fixed-size parts of a trace file: header page, chunk header, live region.
//!
//! Ownership: plain values. The recorder maps the header page and the live regions and writes them in
//! place; the reader decodes copies.
//!
//! Invariants: every number is little-endian; `chunk offset % CHUNK_ALIGN == 0`; a live region
//! begins at a multiple of the header's `page_bytes`; bytes between chunks are zero.

/// The first eight bytes. The first is no text, and the last two detect a newline translation.
pub const FILE_MAGIC: [u8; 8] = *b"\x89LARDR\r\n";
pub const VERSION_MAJOR: u16 = 3;
pub const VERSION_MINOR: u16 = 1;
/// The oldest major version that can be read.
pub const OLDEST_MAJOR: u16 = 1;

/// How records name addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A recent one by its place, a byte: before version 3.
    V2,
    /// A recent one by its age, a varint.
    V3,
    /// A live block by its age. Records have no times.
    Ordered,
}

/// The header page's size, and where the first chunk begins.
pub const HEADER_BYTES: usize = 4096;
/// The part of the header page that is written once and covered by its checksum.
pub const FIXED_BYTES: usize = 256;
/// Offset of the process's identity.
pub const PID_OFFSET: usize = 16;
pub const IMAGE_OFFSET: usize = 24;
/// Offset of the 64-bit slots, which are updated in place.
pub const SLOTS_OFFSET: usize = FIXED_BYTES;

pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"LCHK");
pub const CHUNK_HEADER_BYTES: usize = 80;
pub const CHUNK_ALIGN: u64 = 8;
pub const LIVE_STATE_BYTES: usize = 64;
/// Bytes of a live region before its records.
pub const LIVE_DATA_OFFSET: usize = CHUNK_HEADER_BYTES + LIVE_STATE_BYTES;

/// Offset of the counters in a chunk of counters, behind the stream's sums, and the bytes of one.
pub const COUNTERS_OFFSET: usize = 128;
pub const COUNTER_BYTES: usize = 64;
/// A counter's number = its chunk's number × 2^this + its index there.
pub const COUNTER_PLACE_BITS: u32 = 16;

/// Bounds that a reader may rely on when it reserves memory.
pub const MAX_RAW_BYTES: usize = 1 << 20;
pub const MAX_STORED_BYTES: usize = MAX_RAW_BYTES + (64 << 10);

/// Counters are compressed to no less than this part, so that the file's size bounds them.
pub const MAX_RATIO: usize = 32;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident : $int:ty { $($(#[$vdoc:meta])* $variant:ident = $number:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($int)]
        pub enum $name { $($(#[$vdoc])* $variant = $number),* }
        impl $name {
            pub const fn from_code(code: $int) -> Option<Self> {
                match code { $($number => Some($name::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// How this process image started.
    Origin: u32 {
        /// The first image the recorder saw of this process: started by a recorded or unrecorded parent.
        Start = 0;
        /// A child of `fork`: the parent's memory, its own file from the first call on.
        Fork = 1;
        /// `exec` in a process that was recorded before.
        Exec = 2;
        /// The recorder was loaded into a program that ran already.
        Attach = 3;
    }
}

numbered! {
    ClockKind: u32 {
        /// `CLOCK_MONOTONIC` in nanoseconds.
        Monotonic = 0;
        /// The processor's invariant time stamp counter.
        Tsc = 1;
    }
}

numbered! {
    /// Why recording ended before the program did.
    StopReason: u32 {
        None = 0;
        /// No space on the device.
        DiskFull = 1;
        /// A disk quota was reached.
        Quota = 2;
        /// `RLIMIT_FSIZE` or the file system's own bound.
        FileTooLarge = 3;
        WriteError = 4;
        /// The recorder could not get memory of its own.
        NoMemory = 5;
        /// The recorder's state was inconsistent.
        Internal = 6;
        /// The program has forbidden itself system calls that the recorder needs.
        Filtered = 7;
    }
}

numbered! {
    /// How the process image ended, if the recorder saw it.
    EndState: u32 {
        /// Still running, or ended by a signal or `_exit` without the recorder's knowledge.
        Running = 0;
        /// Ended by `exit` or by returning from `main`.
        Exited = 1;
        /// Called `exec`.
        Exec = 2;
    }
}

numbered! {
    ChunkKind: u8 {
        Process = 1;
        Modules = 2;
        Events = 3;
        Live = 4;
        Counters = 5;
        Symbols = 6;
        Lost = 7;
        /// Events of all threads in one order, without times and addresses.
        Ordered = 8;
    }
}

/// The slots of the header page, each a 64-bit number at `SLOTS_OFFSET + 8 * slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Slot {
    LastTicks = 0,
    LastMonotonicNs = 1,
    FileEnd = 2,
    StopReason = 3,
    StopErrno = 4,
    EndState = 5,
    /// Calls not recorded because recording had stopped.
    LostStopped = 6,
    /// Calls made by a signal handler that interrupted the recorder itself.
    LostReentrant = 7,
    /// Calls by a `vfork` child, which shares its parent's memory.
    LostVfork = 8,
    /// Calls whose stack does not reach the thread's first function.
    TruncatedStacks = 9,
    /// Children of fork that could not make a file of their own.
    UnrecordedChildren = 10,
    /// With counters only: bytes live now.
    LiveBytes = 11,
    /// With counters only: the most that were.
    PeakBytes = 12,
    /// Samples of processor time a second that were asked for; 0: none.
    SampleRate = 13,
    /// The process's processor time in nanoseconds; 0 without samples.
    CpuNs = 14,
    /// What is known not to be in the samples, in nanoseconds.
    LostSampleNs = 15,
}

pub const SLOT_COUNT: usize = 16;

/// The header page's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    pub pid: u32,
    pub ppid: u32,
    /// Counts the images of this pid in one trace, from 0.
    pub image: u32,
    pub origin: Origin,
    pub clock: ClockKind,
    /// A tick of the trace is `2^shift` ticks of the clock.
    pub shift: u32,
    pub start_ticks: u64,
    pub start_monotonic_ns: u64,
    /// Since 1970, UTC.
    pub start_wall_ns: u64,
    /// ELF's `e_machine`.
    pub machine: u32,
    pub page_bytes: u32,
    /// What is recorded besides calls of the malloc family: `FileHeader::COPIES` and the like.
    pub asked: u32,
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(slot) = out.get_mut(at..at + N) {
        slot.copy_from_slice(&bytes);
    }
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slot) = bytes.get(at..at + N) {
        out.copy_from_slice(slot);
    }
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

/// An error of a header page, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    Magic,
    Version(u16),
    Field { offset: u64, what: &'static str },
}

impl FileHeader {
    pub const COPIES: u32 = 1;
    pub const CONTENTS: u32 = 2;

    pub fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut out = [0; FIXED_BYTES];
        put(&mut out, 0, FILE_MAGIC);
        put(&mut out, 8, VERSION_MAJOR.to_le_bytes());
        put(&mut out, 10, VERSION_MINOR.to_le_bytes());
        put(&mut out, 12, (HEADER_BYTES as u32).to_le_bytes());
        put(&mut out, PID_OFFSET, self.pid.to_le_bytes());
        put(&mut out, 20, self.ppid.to_le_bytes());
        put(&mut out, IMAGE_OFFSET, self.image.to_le_bytes());
        put(&mut out, 28, (self.origin as u32).to_le_bytes());
        put(&mut out, 32, (self.clock as u32).to_le_bytes());
        put(&mut out, 36, self.shift.to_le_bytes());
        put(&mut out, 40, self.start_ticks.to_le_bytes());
        put(&mut out, 48, self.start_monotonic_ns.to_le_bytes());
        put(&mut out, 56, self.start_wall_ns.to_le_bytes());
        put(&mut out, 64, self.machine.to_le_bytes());
        put(&mut out, 68, self.page_bytes.to_le_bytes());
        put(&mut out, 72, self.asked.to_le_bytes());
        let crc = crc32fast::hash(&out[..FIXED_BYTES - 4]);
        put(&mut out, FIXED_BYTES - 4, crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        let fault = |offset, what| HeaderFault::Field { offset, what };
        if get::<8>(bytes, 0) != FILE_MAGIC {
            return Err(HeaderFault::Magic);
        }
        let version = u16::from_le_bytes(get(bytes, 8));
        if !(OLDEST_MAJOR..=VERSION_MAJOR).contains(&version) {
            return Err(HeaderFault::Version(version));
        }
        if crc32fast::hash(&bytes[..FIXED_BYTES - 4]) != u32_at(bytes, FIXED_BYTES - 4) {
            return Err(fault(FIXED_BYTES as u64 - 4, "its checksum does not match"));
        }
        let shift = u32_at(bytes, 36);
        if shift >= 32 {
            return Err(fault(36, "the clock's shift is 32 or more"));
        }
        Ok(FileHeader {
            pid: u32_at(bytes, PID_OFFSET),
            ppid: u32_at(bytes, 20),
            image: u32_at(bytes, IMAGE_OFFSET),
            origin: Origin::from_code(u32_at(bytes, 28)).ok_or(fault(28, "unknown origin"))?,
            clock: ClockKind::from_code(u32_at(bytes, 32)).ok_or(fault(32, "unknown clock"))?,
            shift,
            start_ticks: u64_at(bytes, 40),
            start_monotonic_ns: u64_at(bytes, 48),
            start_wall_ns: u64_at(bytes, 56),
            machine: u32_at(bytes, 64),
            page_bytes: u32_at(bytes, 68),
            asked: u32_at(bytes, 72),
        })
    }
}

/// The form of the records behind a valid header page.
pub fn form(page: &[u8; HEADER_BYTES]) -> Form {
    match u16::from_le_bytes(get(page, 8)) {
        ..=2 => Form::V2,
        _ => Form::V3,
    }
}

/// One slot out of a header page.
pub fn slot(page: &[u8; HEADER_BYTES], slot: Slot) -> u64 {
    u64_at(page, SLOTS_OFFSET + 8 * slot as usize)
}

/// Describes an event chunk; a chunk header and a live region's state have the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub stream: u32,
    /// Counts the chunks of the stream from 0.
    pub seq: u32,
    pub events: u32,
    /// The thread that wrote the first record.
    pub tid: u32,
    /// The stream's next free numbers when the chunk began.
    pub first_node: u32,
    pub first_site: u32,
    pub first_frame: u32,
    /// The module map that the chunk began with.
    pub generation: u32,
    /// A chunk: checksum of the stored payload. A live region: bytes of complete records.
    pub check_or_committed: u32,
    pub first_time: u64,
    pub last_time: u64,
}

/// Offset of `Contents` in a chunk header, and its length.
pub const CONTENTS_OFFSET: usize = 16;
pub const CONTENTS_BYTES: usize = 56;
/// Offsets in `Contents` of the numbers that a live region updates at every record.
pub const EVENTS_FIELD: usize = 8;
pub const COMMITTED_FIELD: usize = 28;

impl Contents {
    pub fn encode(&self) -> [u8; CONTENTS_BYTES] {
        let mut out = [0; CONTENTS_BYTES];
        put(&mut out, 0, self.stream.to_le_bytes());
        put(&mut out, 4, self.seq.to_le_bytes());
        put(&mut out, EVENTS_FIELD, self.events.to_le_bytes());
        put(&mut out, 12, self.tid.to_le_bytes());
        put(&mut out, 16, self.first_node.to_le_bytes());
        put(&mut out, 20, self.first_site.to_le_bytes());
        put(&mut out, 24, self.generation.to_le_bytes());
        put(
            &mut out,
            COMMITTED_FIELD,
            self.check_or_committed.to_le_bytes(),
        );
        put(&mut out, 32, self.first_time.to_le_bytes());
        put(&mut out, 40, self.last_time.to_le_bytes());
        put(&mut out, 48, self.first_frame.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Self {
        Contents {
            stream: u32_at(bytes, 0),
            seq: u32_at(bytes, 4),
            events: u32_at(bytes, EVENTS_FIELD),
            tid: u32_at(bytes, 12),
            first_node: u32_at(bytes, 16),
            first_site: u32_at(bytes, 20),
            generation: u32_at(bytes, 24),
            check_or_committed: u32_at(bytes, COMMITTED_FIELD),
            first_time: u64_at(bytes, 32),
            last_time: u64_at(bytes, 40),
            first_frame: u32_at(bytes, 48),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    pub kind: ChunkKind,
    /// The payload is one zstd frame.
    pub compressed: bool,
    /// After decompression, the records are in columns (`columns`).
    pub columns: bool,
    /// Bytes that follow the header.
    pub stored_bytes: u32,
    /// Bytes of the payload after decompression.
    pub raw_bytes: u32,
    pub contents: Contents,
}

/// Why bytes are not a chunk header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkFault {
    Magic,
    Checksum,
    /// The header is valid, of a kind that this version does not know, with this many bytes of chunk.
    UnknownKind {
        stored_bytes: u32,
    },
}

impl ChunkHeader {
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut out = [0; CHUNK_HEADER_BYTES];
        put(&mut out, 0, CHUNK_MAGIC.to_le_bytes());
        put(
            &mut out,
            4,
            [
                self.kind as u8,
                u8::from(self.compressed) | u8::from(self.columns) << 1,
            ],
        );
        put(&mut out, 8, self.stored_bytes.to_le_bytes());
        put(&mut out, 12, self.raw_bytes.to_le_bytes());
        put(&mut out, CONTENTS_OFFSET, self.contents.encode());
        let crc = crc32fast::hash(&out[..CHUNK_HEADER_BYTES - 4]);
        put(&mut out, CHUNK_HEADER_BYTES - 4, crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Result<Self, ChunkFault> {
        if u32_at(bytes, 0) != CHUNK_MAGIC {
            return Err(ChunkFault::Magic);
        }
        let crc = crc32fast::hash(&bytes[..CHUNK_HEADER_BYTES - 4]);
        if crc != u32_at(bytes, CHUNK_HEADER_BYTES - 4) {
            return Err(ChunkFault::Checksum);
        }
        let stored_bytes = u32_at(bytes, 8);
        let Some(kind) = ChunkKind::from_code(bytes[4]) else {
            return Err(ChunkFault::UnknownKind { stored_bytes });
        };
        Ok(ChunkHeader {
            kind,
            compressed: bytes[5] & 1 != 0,
            columns: bytes[5] & 2 != 0,
            stored_bytes,
            raw_bytes: u32_at(bytes, 12),
            contents: Contents::decode(&bytes[CONTENTS_OFFSET..]),
        })
    }
}

/// The end of a chunk with this payload, rounded up to the next chunk's possible start.
pub const fn chunk_span(stored_bytes: u32) -> u64 {
    (CHUNK_HEADER_BYTES as u64 + stored_bytes as u64).next_multiple_of(CHUNK_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ChunkHeader {
        ChunkHeader {
            kind: ChunkKind::Events,
            compressed: true,
            columns: true,
            stored_bytes: 10,
            raw_bytes: 20,
            contents: Contents {
                stream: 1,
                seq: 2,
                events: 3,
                tid: 4,
                first_node: 5,
                first_site: 6,
                first_frame: 11,
                generation: 7,
                check_or_committed: 8,
                first_time: 9,
                last_time: 10,
            },
        }
    }

    #[test]
    fn a_chunk_header_returns_as_written() {
        assert_eq!(ChunkHeader::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_of_a_chunk_header_is_noticed() {
        let good = sample().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_file_header_returns_as_written_and_notices_flips() {
        let header = FileHeader {
            pid: 1,
            ppid: 2,
            image: 3,
            origin: Origin::Exec,
            clock: ClockKind::Tsc,
            shift: 5,
            start_ticks: 6,
            start_monotonic_ns: 7,
            start_wall_ns: 8,
            machine: 62,
            page_bytes: 4096,
            asked: FileHeader::CONTENTS,
        };
        let mut page = [0; HEADER_BYTES];
        page[..FIXED_BYTES].copy_from_slice(&header.encode());
        assert_eq!(FileHeader::decode(&page), Ok(header));
        for (version, known) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let mut other = page;
            put(&mut other, 8, u16::to_le_bytes(version));
            let crc = crc32fast::hash(&other[..FIXED_BYTES - 4]);
            put(&mut other, FIXED_BYTES - 4, crc.to_le_bytes());
            assert_eq!(
                FileHeader::decode(&other).is_ok(),
                known,
                "version {version}"
            );
        }
        for bit in 0..FIXED_BYTES * 8 {
            let mut bad = page;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_live_fields_are_at_their_offsets() {
        let contents = Contents {
            events: 0x0102_0304,
            check_or_committed: 0x0506_0708,
            ..Default::default()
        };
        let bytes = contents.encode();
        assert_eq!(u32_at(&bytes, EVENTS_FIELD), 0x0102_0304);
        assert_eq!(u32_at(&bytes, COMMITTED_FIELD), 0x0506_0708);
    }
}
