//! Rewrites the file of a process that has ended: without the regions that its recorder left, with the records of
//! threads that did not end in chunks, with compressed counters, and with each name once.
//!
//! Invariant: the file has every record that it had. One that is damaged, of another version, or written by
//! a process, stays as it is.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::chunk;
use crate::columns;
use crate::layout::{
    self, CHUNK_ALIGN, CHUNK_HEADER_BYTES, CONTENTS_BYTES, COUNTER_BYTES, COUNTERS_OFFSET,
    ChunkHeader, ChunkKind, Contents, FileHeader, Form, HEADER_BYTES, LIVE_DATA_OFFSET,
    LIVE_STATE_BYTES, MAX_RAW_BYTES, MAX_STORED_BYTES, SLOTS_OFFSET, Slot, chunk_span,
};
use crate::symbols::{SymbolChunk, Symbols};

/// Bytes that are searched for a chunk at once.
const WINDOW_BYTES: usize = 4096;
/// A stream's sums, before its counters.
const SUMS_BYTES: usize = COUNTERS_OFFSET - CHUNK_HEADER_BYTES;

/// Whether the file was rewritten.
pub fn pack(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    if has_writer(&file) {
        return Ok(false);
    }
    let beside = path.with_extension("packing");
    let done = rewrite(&file, &beside).and_then(|()| fs::rename(&beside, path));
    match done {
        Ok(()) => Ok(true),
        Err(error) => {
            let _ = fs::remove_file(&beside);
            match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Ok(false),
                _ => Err(error),
            }
        }
    }
}

/// Whether a process has the file open for writing, or mapped: then the kernel grants no lease.
fn has_writer(file: &File) -> bool {
    // SAFETY: the descriptor is open, and these commands take a number.
    unsafe {
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) != 0
            || libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) != 0
    }
}

fn damaged() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn rewrite(file: &File, beside: &Path) -> io::Result<()> {
    let mut page = [0; HEADER_BYTES];
    file.read_exact_at(&mut page, 0)?;
    let length = file.metadata()?.len();
    let is_cut = layout::slot(&page, Slot::FileEnd) >= length + CHUNK_ALIGN;
    if FileHeader::decode(&page).is_err() || layout::form(&page) != Form::V3 || is_cut {
        return Err(damaged());
    }
    let mut options = OpenOptions::new();
    let out = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)?;
    let mut packer = Packer {
        file,
        length,
        out: BufWriter::new(out),
        end: HEADER_BYTES as u64,
        symbols: Symbols::default(),
        sealed: HashSet::new(),
        live: Vec::new(),
    };
    packer.out.write_all(&page)?;
    let mut at = HEADER_BYTES as u64;
    while let Some(offset) = packer.next_data(at)? {
        at = packer.chunk(offset)?;
    }
    packer.finish()
}

struct Packer<'a> {
    file: &'a File,
    length: u64,
    out: BufWriter<File>,
    /// Bytes written.
    end: u64,
    symbols: Symbols,
    /// Streams and numbers of chunks of events.
    sealed: HashSet<(u32, u32)>,
    /// What was not sealed.
    live: Vec<(Contents, Vec<u8>)>,
}

impl Packer<'_> {
    /// The next place from `at` on that is not zero.
    fn next_data(&self, mut at: u64) -> io::Result<Option<u64>> {
        let mut window = [0; WINDOW_BYTES];
        while at < self.length {
            let bytes = (self.length - at).min(WINDOW_BYTES as u64) as usize;
            self.file.read_exact_at(&mut window[..bytes], at)?;
            if let Some(found) = window[..bytes].iter().position(|&byte| byte != 0) {
                let found = at + found as u64;
                return Ok(Some(found - found % CHUNK_ALIGN));
            }
            at += bytes as u64;
        }
        Ok(None)
    }

    fn read(&self, bytes: usize, at: u64) -> io::Result<Vec<u8>> {
        let mut out = vec![0; bytes];
        self.file.read_exact_at(&mut out, at)?;
        Ok(out)
    }

    /// Writes the chunk, or keeps what belongs to a later one; returns where it ends.
    fn chunk(&mut self, offset: u64) -> io::Result<u64> {
        let mut head = [0; CHUNK_HEADER_BYTES];
        self.file.read_exact_at(&mut head, offset)?;
        let header = ChunkHeader::decode(&head).map_err(|_| damaged())?;
        let stored = header.stored_bytes as usize;
        if stored > MAX_STORED_BYTES {
            return Err(damaged());
        }
        if header.kind == ChunkKind::Live {
            self.keep(offset, stored)?;
            return Ok(offset + chunk_span(header.stored_bytes));
        }
        let payload = self.read(stored, offset + CHUNK_HEADER_BYTES as u64)?;
        match header.kind {
            ChunkKind::Counters if !header.compressed => {
                // Up to the last counter that counts anything.
                let used = payload.iter().rposition(|&byte| byte != 0);
                let behind_sums = used.map_or(0, |last| (last + 1).saturating_sub(SUMS_BYTES));
                let used = SUMS_BYTES + behind_sums.next_multiple_of(COUNTER_BYTES);
                let used = payload.get(..used).unwrap_or(&payload);
                self.write(header.kind, used, header.contents)?;
            }
            _ if crc32fast::hash(&payload) != header.contents.check_or_committed => {
                return Err(damaged());
            }
            ChunkKind::Symbols => self.symbols.apply(&payload).ok_or_else(damaged)?,
            kind => {
                if kind == ChunkKind::Events {
                    let contents = &header.contents;
                    self.sealed.insert((contents.stream, contents.seq));
                }
                let padding = chunk_span(header.stored_bytes) as usize - head.len() - stored;
                self.out.write_all(&head)?;
                self.out.write_all(&payload)?;
                self.out.write_all(&[0; CHUNK_ALIGN as usize][..padding])?;
                self.end += chunk_span(header.stored_bytes);
            }
        }
        Ok(offset + chunk_span(header.stored_bytes))
    }

    /// The records of a live region.
    fn keep(&mut self, offset: u64, stored: usize) -> io::Result<()> {
        let state = self.read(CONTENTS_BYTES, offset + CHUNK_HEADER_BYTES as u64)?;
        let contents = Contents::decode(&state);
        let committed = contents.check_or_committed as usize;
        let most = MAX_RAW_BYTES - columns::HEADER_BYTES;
        if committed > stored.saturating_sub(LIVE_STATE_BYTES).min(most) {
            return Err(damaged());
        }
        if committed > 0 {
            let records = self.read(committed, offset + LIVE_DATA_OFFSET as u64)?;
            self.live.push((contents, records));
        }
        Ok(())
    }

    fn write(&mut self, kind: ChunkKind, payload: &[u8], contents: Contents) -> io::Result<()> {
        self.end += chunk::write(&mut self.out, kind, payload, contents)?;
        Ok(())
    }

    /// Writes what was kept, and the new end.
    fn finish(mut self) -> io::Result<()> {
        for (contents, records) in std::mem::take(&mut self.live) {
            if self.sealed.insert((contents.stream, contents.seq)) {
                self.write(ChunkKind::Events, &records, contents)?;
            }
        }
        let symbols = std::mem::take(&mut self.symbols);
        let mut chunk = SymbolChunk::default();
        let mut named = symbols.addresses().peekable();
        while let Some((module, address)) = named.next() {
            let functions: Vec<_> = symbols.functions(module, address).collect();
            chunk.add(module, address, &functions);
            if chunk.is_full() || named.peek().is_none() {
                self.write(ChunkKind::Symbols, &chunk.take(), Contents::default())?;
            }
        }
        let at = SLOTS_OFFSET + 8 * Slot::FileEnd as usize;
        let out = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        out.write_all_at(&self.end.to_le_bytes(), at as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::call::{AllocCall, Call, FreeCall};
    use crate::symbols::Function;
    use crate::writer::{About, Class, Stack, Writer, WrittenCall};
    use crate::{ModuleId, StackId, Trace};

    const REGION_BYTES: usize = 8192;

    /// A trace of two calls of two functions.
    fn written() -> Vec<u8> {
        let about = About {
            pid: 7,
            executable: b"/bin/x",
            argv: &[b"x"],
            start_wall_ns: 0,
        };
        let mut writer = Writer::new(Cursor::new(Vec::new()), &about).unwrap();
        let module = writer.module(b"/bin/x", &[], 0x1000, 0x9000).unwrap();
        writer.thread(7, 1).unwrap();
        for (time, call, class) in [
            (1, Call::Alloc(AllocCall::Malloc), Class::Alloc),
            (2, Call::Free(FreeCall::Free), Class::Free),
        ] {
            let return_address = 0x2000 + time;
            let function = Function {
                name: format!("f{time}").leak().as_bytes(),
                file: b"x.c",
                line: time as u32,
            };
            writer
                .symbols(module, return_address - 1, &[function])
                .unwrap();
            let stack = writer.stack(Stack::EMPTY, return_address);
            let call = WrittenCall {
                call,
                class,
                stack,
                time,
                address: 0x5000,
                size: 32,
                extra: 0,
                old: 0,
            };
            writer.call(&call).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// As the recorder leaves it: the records in a live region behind a hole, then counters.
    fn recorded() -> Vec<u8> {
        let bytes = written();
        let (mut out, mut region) = (bytes[..HEADER_BYTES].to_vec(), vec![0; REGION_BYTES]);
        let mut at = HEADER_BYTES;
        while at < bytes.len() {
            let header = ChunkHeader::decode(bytes[at..][..CHUNK_HEADER_BYTES].try_into().unwrap());
            let header = header.unwrap();
            let span = chunk_span(header.stored_bytes) as usize;
            if header.kind == ChunkKind::Events {
                assert!(!header.compressed, "too short for it");
                let records = &bytes[at + CHUNK_HEADER_BYTES..][..header.stored_bytes as usize];
                let live = ChunkHeader {
                    kind: ChunkKind::Live,
                    stored_bytes: (REGION_BYTES - CHUNK_HEADER_BYTES) as u32,
                    ..header
                };
                let state = Contents {
                    check_or_committed: records.len() as u32,
                    ..header.contents
                };
                region[..CHUNK_HEADER_BYTES].copy_from_slice(&live.encode());
                region[CHUNK_HEADER_BYTES..][..CONTENTS_BYTES].copy_from_slice(&state.encode());
                region[LIVE_DATA_OFFSET..][..records.len()].copy_from_slice(records);
            } else {
                out.extend_from_slice(&bytes[at..][..span]);
            }
            at += span;
        }
        out.resize(128 << 10, 0);
        out.extend_from_slice(&region);
        let counters = ChunkHeader {
            kind: ChunkKind::Counters,
            compressed: false,
            columns: false,
            stored_bytes: (REGION_BYTES - CHUNK_HEADER_BYTES) as u32,
            raw_bytes: 0,
            contents: Contents::default(),
        };
        let mut region = vec![0; REGION_BYTES];
        region[..CHUNK_HEADER_BYTES].copy_from_slice(&counters.encode());
        for counter in 0..40 {
            region[COUNTERS_OFFSET + counter * COUNTER_BYTES] = 1;
            region[COUNTERS_OFFSET + counter * COUNTER_BYTES + 8] = 99 + 3 * counter as u8;
        }
        out.extend_from_slice(&region);
        out
    }

    fn stored(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7-0.ltrace");
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    /// All that a trace says.
    fn content(path: &Path) -> String {
        let trace = Trace::open(path).unwrap();
        let mut events = trace.events();
        let mut out = format!("{:?} {:?}\n", trace.process(), trace.counters());
        while let Some(event) = events.next() {
            let stack = event.action.stack().unwrap_or(StackId::COMPLETE_ROOT);
            let frames: Vec<_> = events.stacks().frames(stack).copied().collect();
            out += &format!("{event:?} {frames:?}");
            for frame in frames {
                let functions = trace
                    .symbols()
                    .functions(ModuleId(0), frame.lookup_address());
                out += &format!("{:?}\n", functions.collect::<Vec<_>>());
            }
        }
        assert_eq!(events.damage(), []);
        out
    }

    #[test]
    fn a_packed_file_has_no_hole_and_reads_the_same() {
        let (_folder, path) = stored(&recorded());
        let before = content(&path);
        assert!(pack(&path).unwrap());
        assert_eq!(content(&path), before);
        let bytes = fs::read(&path).unwrap();
        let most = HEADER_BYTES + 2048;
        assert!(bytes.len() < most, "{} bytes", bytes.len());
        assert!(pack(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn a_file_that_a_process_writes_stays() {
        let recorded = recorded();
        let (_folder, path) = stored(&recorded);
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(!pack(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), recorded);
        drop(writer);
        assert!(pack(&path).unwrap());
    }

    #[test]
    fn a_damaged_file_and_one_of_an_earlier_version_stay() {
        let good = recorded();
        let flipped = [5, CHUNK_HEADER_BYTES].map(|at| {
            let mut flipped = good.clone();
            flipped[HEADER_BYTES + at] ^= 1;
            flipped
        });
        let cut = good[..good.len() - 100].to_vec();
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
        let earlier = fs::read(corpus.join("killed.ltrace")).unwrap();
        for bytes in flipped.into_iter().chain([cut, earlier]) {
            let (folder, path) = stored(&bytes);
            assert!(!pack(&path).unwrap());
            assert_eq!(fs::read(&path).unwrap(), bytes);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}
