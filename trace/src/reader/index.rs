//! Finds the chunks of a file, reads the small ones at once, and stores where the others are.
//!
//! Invariants: an entry lies wholly inside the file; `stored_bytes <= MAX_STORED_BYTES` and
//! `raw_bytes <= MAX_RAW_BYTES`; the entries of a stream are in the order of their numbers.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::counters::Counters;
use super::map::ModuleMap;
use crate::error::{Damage, DamageCause, TraceError};
use crate::layout::{
    CHUNK_ALIGN, CHUNK_HEADER_BYTES, CHUNK_MAGIC, CONTENTS_BYTES, ChunkFault, ChunkHeader,
    ChunkKind, Contents, HEADER_BYTES, LIVE_DATA_OFFSET, LIVE_STATE_BYTES, MAX_RATIO,
    MAX_RAW_BYTES, MAX_STORED_BYTES, chunk_span,
};
use crate::lost::{self, Lost};
use crate::modules::{self, Module, ModuleId};
use crate::process;
use crate::symbols::Symbols;

/// An event chunk that can be read.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The offset of the chunk header, for messages.
    pub offset: u64,
    pub payload_offset: u64,
    pub stored_bytes: u32,
    pub raw_bytes: u32,
    pub compressed: bool,
    pub columns: bool,
    /// Without times, and of all threads.
    pub ordered: bool,
    /// It is not sealed, so no checksum covers it.
    pub live: bool,
    pub contents: Contents,
}

type Arguments = (Vec<u8>, Vec<Vec<u8>>);

#[derive(Debug, Default)]
pub struct Index {
    /// Sorted by stream, then by number; with equal numbers the sealed chunk first.
    streams: BTreeMap<u32, Vec<Entry>>,
    modules: Vec<Module>,
    /// Indices of the modules by number; the first one if a number occurs twice.
    by_number: HashMap<ModuleId, usize>,
    map: ModuleMap,
    symbols: Symbols,
    process: Option<Arguments>,
    counters: Option<Counters>,
    lost: Option<Lost>,
    damage: Vec<Damage>,
}

impl Index {
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    pub fn module(&self, id: ModuleId) -> Option<&Module> {
        // Numbers are in order of loading, so this is the index unless a chunk was lost.
        match self.modules.get(id.0 as usize) {
            Some(module) if module.id == id => Some(module),
            _ => self.modules.get(*self.by_number.get(&id)?),
        }
    }

    /// The newest module at an address in a generation of the map.
    pub fn module_at(&self, address: u64, generation: u32) -> Option<ModuleId> {
        self.map.find(&self.modules, address, generation)
    }

    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    pub fn process(&self) -> Option<(&[u8], &[Vec<u8>])> {
        self.process
            .as_ref()
            .map(|(executable, argv)| (executable.as_slice(), argv.as_slice()))
    }

    pub fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    pub fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref().filter(|lost| lost.is_whole())
    }

    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    pub fn streams(&self) -> impl Iterator<Item = &[Entry]> {
        self.streams.values().map(Vec::as_slice)
    }

    /// Whether events have times.
    pub fn has_times(&self) -> bool {
        let mut entries = self.streams.values().flatten();
        !entries.any(|entry| entry.ordered)
    }

    pub fn event_count(&self) -> u64 {
        let count = |entries: &Vec<Entry>| {
            let mut last = None;
            let mut sum = 0;
            for entry in entries {
                if last != Some(entry.contents.seq) {
                    sum += u64::from(entry.contents.events);
                }
                last = Some(entry.contents.seq);
            }
            sum
        };
        self.streams.values().map(count).sum()
    }

    pub fn set_peak(&mut self, bytes: u64) {
        if let Some(counters) = &mut self.counters {
            counters.peak_bytes = bytes;
        }
    }

    /// A recording that ended in order reaches up to `end`, except for the padding of the last chunk; a shorter
    /// file was cut off between chunks.
    pub fn expect_end(&mut self, length: u64, end: u64) {
        let reported = self.damage.iter().any(|d| d.cause == DamageCause::CutChunk);
        if length.saturating_add(CHUNK_ALIGN) <= end && !reported {
            self.damage.push(Damage {
                offset: length,
                length: 0,
                events: None,
                cause: DamageCause::CutChunk,
            });
        }
    }

    /// Walks the file from chunk to chunk.
    pub fn scan(path: &Path, file: &File, length: u64) -> Result<Index, TraceError> {
        let mut scan = Scan {
            path,
            file,
            length,
            index: Index::default(),
            cut: None,
        };
        let mut offset = HEADER_BYTES as u64;
        while let Some(next) = scan.step(offset)? {
            offset = next;
        }
        scan.look_for_the_cut_one();
        let mut index = scan.index;
        index.map = ModuleMap::new(&index.modules);
        for (place, module) in index.modules.iter().enumerate() {
            index.by_number.entry(module.id).or_insert(place);
        }
        for entries in index.streams.values_mut() {
            entries.sort_by_key(|e| (e.contents.seq, e.live, u32::MAX - e.contents.events));
        }
        Ok(index)
    }
}

struct Scan<'a> {
    path: &'a Path,
    file: &'a File,
    length: u64,
    index: Index,
    /// The chunk in which the file ends: the offset of the damage, its stream and number.
    cut: Option<(usize, u32, u32)>,
}

impl Scan<'_> {
    fn read(&self, out: &mut [u8], offset: u64) -> Result<(), TraceError> {
        self.file
            .read_exact_at(out, offset)
            .map_err(|source| TraceError::Read {
                path: self.path.to_owned(),
                offset,
                length: out.len(),
                source,
            })
    }

    fn damaged(&mut self, offset: u64, length: u64, events: Option<u64>, cause: DamageCause) {
        self.index.damage.push(Damage {
            offset,
            length,
            events,
            cause,
        });
    }

    /// Reads at `offset`; returns where to continue, or `None` at the end.
    fn step(&mut self, offset: u64) -> Result<Option<u64>, TraceError> {
        let rest = self.length.saturating_sub(offset);
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        let have = usize::try_from(rest)
            .unwrap_or(usize::MAX)
            .min(CHUNK_HEADER_BYTES);
        self.read(&mut bytes[..have], offset)?;
        if bytes[..8].iter().all(|&byte| byte == 0) || have < CHUNK_HEADER_BYTES {
            if bytes[..have].iter().any(|&byte| byte != 0) && have < CHUNK_HEADER_BYTES {
                self.damaged(offset, rest, None, DamageCause::CutChunk);
                return Ok(None);
            }
            return self.next_mark(offset, |word| word != 0);
        }
        match ChunkHeader::decode(&bytes) {
            Ok(header) => self.chunk(offset, rest, &header).map(Some),
            Err(ChunkFault::UnknownKind { stored_bytes }) if chunk_span(stored_bytes) <= rest => {
                let span = chunk_span(stored_bytes);
                self.damaged(offset, span, None, DamageCause::UnknownKind);
                Ok(Some(offset + span))
            }
            Err(_) => {
                let magic = u64::from(CHUNK_MAGIC);
                let next =
                    self.next_mark(offset + CHUNK_ALIGN, |word| word as u32 == magic as u32)?;
                let end = next.unwrap_or(self.length);
                self.damaged(offset, end - offset, None, DamageCause::NoChunk);
                Ok(next)
            }
        }
    }

    /// The next aligned place from `offset` on whose eight bytes satisfy `wanted`.
    fn next_mark(
        &self,
        offset: u64,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>, TraceError> {
        let mut window = vec![0; 64 << 10];
        let mut at = offset.next_multiple_of(CHUNK_ALIGN);
        while at < self.length {
            let have = usize::try_from(self.length - at)
                .unwrap_or(usize::MAX)
                .min(window.len());
            self.read(&mut window[..have], at)?;
            for (number, word) in window[..have].chunks(CHUNK_ALIGN as usize).enumerate() {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                if wanted(u64::from_le_bytes(bytes)) {
                    return Ok(Some(at + number as u64 * CHUNK_ALIGN));
                }
            }
            at += have as u64;
        }
        Ok(None)
    }

    /// Adds a chunk with a valid header to the index; returns where the next one begins.
    fn chunk(&mut self, offset: u64, rest: u64, header: &ChunkHeader) -> Result<u64, TraceError> {
        let span = chunk_span(header.stored_bytes);
        let events = match header.kind {
            ChunkKind::Events | ChunkKind::Ordered => Some(u64::from(header.contents.events)),
            _ => None,
        };
        let whole = CHUNK_HEADER_BYTES as u64 + u64::from(header.stored_bytes);
        if whole > rest && !matches!(header.kind, ChunkKind::Live | ChunkKind::Counters) {
            if events.is_some() {
                let contents = &header.contents;
                self.cut = Some((self.index.damage.len(), contents.stream, contents.seq));
            }
            self.damaged(offset, rest, events, DamageCause::CutChunk);
            return Ok(self.length);
        }
        if header.stored_bytes as usize > MAX_STORED_BYTES
            || header.raw_bytes as usize > MAX_RAW_BYTES
        {
            self.damaged(offset, span, events, DamageCause::Record);
            return Ok(offset + span);
        }
        match header.kind {
            ChunkKind::Events | ChunkKind::Ordered => self.insert(Entry {
                offset,
                payload_offset: offset + CHUNK_HEADER_BYTES as u64,
                stored_bytes: header.stored_bytes,
                raw_bytes: header.raw_bytes,
                compressed: header.compressed,
                columns: header.columns,
                ordered: header.kind == ChunkKind::Ordered,
                live: false,
                contents: header.contents,
            }),
            ChunkKind::Live => self.live(offset, rest, header)?,
            ChunkKind::Counters => self.counters(offset, rest, header)?,
            ChunkKind::Process | ChunkKind::Modules | ChunkKind::Symbols | ChunkKind::Lost => {
                self.small(offset, header)?;
            }
        }
        Ok((offset + span).min(self.length))
    }

    /// If a recorder could not write a chunk, the records are still in the live region.
    fn look_for_the_cut_one(&mut self) {
        let Some((place, stream, seq)) = self.cut else {
            return;
        };
        let mut entries = self.index.streams.get(&stream).into_iter().flatten();
        if entries.any(|entry| entry.contents.seq == seq)
            && let Some(damage) = self.index.damage.get_mut(place)
        {
            damage.events = None;
        }
    }

    fn insert(&mut self, entry: Entry) {
        self.index
            .streams
            .entry(entry.contents.stream)
            .or_default()
            .push(entry);
    }

    fn live(&mut self, offset: u64, rest: u64, header: &ChunkHeader) -> Result<(), TraceError> {
        let capacity = (header.stored_bytes as usize).saturating_sub(LIVE_STATE_BYTES);
        let have = rest.saturating_sub(LIVE_DATA_OFFSET as u64);
        if rest < LIVE_DATA_OFFSET as u64 {
            self.damaged(offset, rest, None, DamageCause::CutChunk);
            return Ok(());
        }
        let mut state = [0; CONTENTS_BYTES];
        self.read(&mut state, offset + CHUNK_HEADER_BYTES as u64)?;
        let contents = Contents::decode(&state);
        let committed = contents.check_or_committed;
        if committed == 0 {
            return Ok(());
        }
        if committed as usize > capacity || u64::from(committed) > have {
            self.damaged(
                offset,
                rest.min(capacity as u64),
                None,
                DamageCause::CutChunk,
            );
            return Ok(());
        }
        self.insert(Entry {
            offset,
            payload_offset: offset + LIVE_DATA_OFFSET as u64,
            stored_bytes: committed,
            raw_bytes: committed,
            compressed: false,
            columns: false,
            ordered: false,
            live: true,
            contents,
        });
        Ok(())
    }

    fn counters(&mut self, offset: u64, rest: u64, header: &ChunkHeader) -> Result<(), TraceError> {
        let there = rest.saturating_sub(CHUNK_HEADER_BYTES as u64);
        let stored = u64::from(header.stored_bytes);
        let mut payload = vec![0; stored.min(there) as usize];
        self.read(&mut payload, offset + CHUNK_HEADER_BYTES as u64)?;
        let counters = self.index.counters.get_or_insert_default();
        if header.compressed {
            let intact = crc32fast::hash(&payload) == header.contents.check_or_committed;
            match decompress(&payload, header).filter(|_| intact) {
                Some(raw) => payload = raw,
                None => {
                    self.damaged(offset, rest.min(stored), None, DamageCause::Checksum);
                    return Ok(());
                }
            }
        }
        let damaged = counters.add_region(header.contents.seq, &payload);
        if let Some((at, length)) = damaged {
            let at = offset + CHUNK_HEADER_BYTES as u64 + at;
            self.damaged(at, length, None, DamageCause::Counter);
        }
        if there < stored {
            self.damaged(offset, rest, None, DamageCause::CutChunk);
        }
        Ok(())
    }

    /// The process, module, symbol and lost chunks.
    fn small(&mut self, offset: u64, header: &ChunkHeader) -> Result<(), TraceError> {
        let span = chunk_span(header.stored_bytes);
        let mut payload = vec![0; header.stored_bytes as usize];
        self.read(&mut payload, offset + CHUNK_HEADER_BYTES as u64)?;
        if header.compressed || crc32fast::hash(&payload) != header.contents.check_or_committed {
            self.damaged(offset, span, None, DamageCause::Checksum);
            return Ok(());
        }
        let whole = match header.kind {
            ChunkKind::Process => {
                self.index.process = process::decode(&payload);
                self.index.process.is_some()
            }
            ChunkKind::Symbols => self.index.symbols.apply(&payload).is_some(),
            ChunkKind::Lost => lost::apply(&payload, &mut self.index.lost).is_some(),
            _ => modules::apply(&payload, &mut self.index.modules).is_some(),
        };
        if !whole {
            self.damaged(offset, span, None, DamageCause::Record);
        }
        Ok(())
    }
}

/// The counters of a chunk; `None` if they are malformed, or far larger than the chunk.
fn decompress(stored: &[u8], header: &ChunkHeader) -> Option<Vec<u8>> {
    let bytes = header.raw_bytes as usize;
    let mut raw = vec![0; bytes.min(stored.len().saturating_mul(MAX_RATIO))];
    let length = zstd_safe::decompress(raw.as_mut_slice(), stored).ok()?;
    (length == bytes).then_some(raw)
}
