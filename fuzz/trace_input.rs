//! What the trace reader is asked to do with hostile bytes: by the fuzzer, and by the tests with
//! seeded mutations. A panic, or memory without bound, is a fault; damage that is reported is none.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

use larder_trace::codec::MAX_MARK_NAME;
use larder_trace::layout::{CHUNK_ALIGN, CHUNK_HEADER_BYTES, FIXED_BYTES, HEADER_BYTES};
use larder_trace::{Action, StackId, Trace};

/// Reads everything that a trace of these bytes has.
pub fn read(bytes: &[u8]) {
    let (_file, path) = memory_file(bytes);
    let Ok(trace) = Trace::open(&path) else {
        return;
    };
    let _ = (trace.process(), trace.losses(), trace.event_count());
    let _ = trace.sampling();
    let mut events = trace.events();
    let mut stacks = 0;
    while let Some(event) = events.next() {
        let _ = trace.clock().monotonic_ns(event.time);
        if let Action::Mark { name } = event.action {
            assert!(events.mark_name(name).len() <= MAX_MARK_NAME);
        }
        let Some(stack) = event.action.stack() else {
            continue;
        };
        // Deep stacks of many calls would take all the time.
        if stacks < 10_000 {
            stacks += look_at(&trace, &events, stack);
        }
    }
    for counted in events.counted().iter().take(1000) {
        look_at(&trace, &events, counted.stack);
    }
    if let Some(lost) = trace.lost() {
        assert!(lost.addresses().is_sorted());
    }
    if let Some(counters) = trace.counters() {
        let _ = (counters.calls(), counters.peak_bytes);
    }
    for damage in events.damage() {
        let _ = damage.to_string();
    }
}

/// Names the frames of a stack; how many there were.
fn look_at(trace: &Trace, events: &larder_trace::Events<'_>, stack: StackId) -> usize {
    let mut frames = 0;
    for frame in events.stacks().frames(stack) {
        frames += 1;
        if let Some(module) = frame.module.and_then(|id| trace.module(id)) {
            let in_file = frame.lookup_address().wrapping_sub(module.bias);
            frames += trace.symbols().functions(module.id, in_file).count();
        }
    }
    frames
}

fn memory_file(bytes: &[u8]) -> (File, PathBuf) {
    // SAFETY: the name is a terminated string, and the descriptor is nobody else's.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"trace".as_ptr(), libc::MFD_CLOEXEC);
        assert!(descriptor >= 0, "memfd_create failed");
        File::from_raw_fd(descriptor)
    };
    file.write_all(bytes).expect("memory");
    file.seek(SeekFrom::Start(0)).expect("memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    (file, path)
}

/// Makes the checksums right, so that what they cover is looked at and not refused.
pub fn repair(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    seal(bytes, 0, FIXED_BYTES);
    let mut at = HEADER_BYTES;
    while at + CHUNK_HEADER_BYTES <= bytes.len() {
        if &bytes[at..at + 4] != b"LCHK" {
            at += CHUNK_ALIGN as usize;
            continue;
        }
        let stored = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes"));
        let begin = at + CHUNK_HEADER_BYTES;
        let end = begin.saturating_add(stored as usize);
        // A live region's state is at the same place, and no checksum.
        if end <= bytes.len() && bytes[at + 4] != 4 {
            let sum = crc32fast::hash(&bytes[begin..end]);
            bytes[at + 44..at + 48].copy_from_slice(&sum.to_le_bytes());
        }
        seal(bytes, at, CHUNK_HEADER_BYTES);
        at += if bytes[at + 4] == 4 || end > bytes.len() {
            CHUNK_ALIGN as usize
        } else {
            (CHUNK_HEADER_BYTES + stored as usize).next_multiple_of(CHUNK_ALIGN as usize)
        };
    }
}

/// The last four of `length` bytes are the checksum of those before.
fn seal(bytes: &mut [u8], at: usize, length: usize) {
    let sum = crc32fast::hash(&bytes[at..at + length - 4]);
    bytes[at + length - 4..at + length].copy_from_slice(&sum.to_le_bytes());
}
