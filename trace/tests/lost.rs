//! A trace's lost blocks: they are read like they were written, and ignored if damaged.

use std::io::{Cursor, Write};

use larder_trace::layout::{CHUNK_ALIGN, CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, HEADER_BYTES};
use larder_trace::writer::{About, Class, Stack, Writer, WrittenCall};
use larder_trace::{AllocCall, Call, DamageCause, Trace};

fn written(lost: &[u64]) -> Vec<u8> {
    let about = About {
        pid: 1,
        executable: b"/nowhere/program",
        argv: &[],
        start_wall_ns: 0,
    };
    let mut out = Cursor::new(Vec::new());
    let mut writer = Writer::new(&mut out, &about).unwrap();
    let module = writer.module(b"/nowhere/program", &[], 1 << 36, 1 << 37);
    module.unwrap();
    writer.thread(1, 1).unwrap();
    let stack = writer.stack(Stack::EMPTY, (1 << 36) + 17);
    for number in 1..=100 {
        let call = WrittenCall {
            call: Call::Alloc(AllocCall::Malloc),
            class: Class::Alloc,
            stack,
            time: number,
            address: 64 * number,
            size: 40,
            extra: 0,
            old: 0,
        };
        writer.call(&call).unwrap();
    }
    writer.lost(100, lost).unwrap();
    writer.finish().unwrap();
    out.into_inner()
}

/// The offset of the chunk.
fn place(bytes: &[u8]) -> usize {
    let mut places = (HEADER_BYTES..bytes.len()).step_by(CHUNK_ALIGN as usize);
    let is_lost = |at: &usize| {
        let header = bytes[*at..].first_chunk().map(ChunkHeader::decode);
        matches!(header, Some(Ok(header)) if header.kind == ChunkKind::Lost)
    };
    places.find(is_lost).expect("a chunk")
}

/// The chunk's payload replaced, with checksums that match.
fn replaced(bytes: &[u8], payload: &[u8]) -> Vec<u8> {
    let at = place(bytes);
    let mut header = ChunkHeader::decode(bytes[at..].first_chunk().unwrap()).unwrap();
    let span = (CHUNK_HEADER_BYTES + header.stored_bytes as usize).next_multiple_of(8);
    header.stored_bytes = payload.len() as u32;
    header.raw_bytes = header.stored_bytes;
    header.contents.check_or_committed = crc32fast::hash(payload);
    let mut chunk = [&header.encode()[..], payload].concat();
    chunk.resize(chunk.len().next_multiple_of(8), 0);
    let mut file = [&bytes[..at], &chunk, &bytes[at + span..]].concat();
    // Otherwise the file seems truncated.
    file.resize(file.len().max(bytes.len()), 0);
    file
}

fn read(bytes: &[u8]) -> (Option<Vec<u64>>, Vec<DamageCause>, usize) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let trace = Trace::open(file.path()).unwrap();
    let mut events = trace.events();
    let calls = std::iter::from_fn(|| events.next());
    let calls = calls.filter(|event| event.time > 0).count();
    let causes = events.damage().iter().map(|damage| damage.cause).collect();
    let lost = trace.lost().map(|lost| lost.addresses().to_vec());
    (lost, causes, calls)
}

#[test]
fn lost_blocks_are_read_as_they_were_written() {
    let lost = [64, 128, 6400];
    let (found, damage, calls) = read(&written(&lost));
    assert_eq!(found.as_deref(), Some(&lost[..]));
    assert_eq!(damage, []);
    let (none, ..) = read(&written(&[]));
    assert_eq!(none, Some(Vec::new()));
    assert!(calls >= 100);
}

#[test]
fn of_a_damaged_chunk_nothing_is_believed_and_all_calls_are_there() {
    let bytes = written(&[64, 128, 6400]);
    let (_, _, calls) = read(&bytes);
    let mut flipped = bytes.clone();
    flipped[place(&bytes) + CHUNK_HEADER_BYTES + 2] ^= 1;
    assert_eq!(read(&flipped), (None, vec![DamageCause::Checksum], calls));
    // No time; no number of chunks; an address twice; one that is not there whole; one beyond all.
    let beyond = [&[7, 0][..], &[0xff; 9], &[1, 1]].concat();
    for payload in [&[][..], &[7], &[7, 0, 64, 0], &[7, 0, 64, 0x80], &beyond] {
        let found = read(&replaced(&bytes, payload));
        assert_eq!(found, (None, vec![DamageCause::Record], calls));
    }
    // A chunk of the result is missing.
    assert_eq!(
        read(&replaced(&bytes, &[7, 1, 64])),
        (None, Vec::new(), calls)
    );
}
