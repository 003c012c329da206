//! Rewrites a packed file without times and addresses: the events of all threads become one stream, in order of
//! time, whose calls name blocks by age (`codec::ordered`).
//!
//! Invariant: the file has the same events in the same order, with threads and stacks; of times only those of its
//! header. One that is damaged, or has more than calls of the malloc family and marks, stays as it is.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use foldhash::fast::RandomState;

use super::{Stack, Writer};
use crate::call::Call;
use crate::codec::{
    Block, Class, MAX_CALL_BYTES, MAX_DEFINITION_BYTES, MAX_MARK_NAME_BYTES, Ordered, OrderedCall,
    Predictor,
};
use crate::columns;
use crate::layout::{
    CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, FIXED_BYTES, FileHeader, HEADER_BYTES,
    MAX_RAW_BYTES, Slot, chunk_span,
};
use crate::reader::{Action, Event, Events, MarkId, StackId, StackTable, Trace};

/// Whether the file was rewritten. REQUIRES: it was packed.
pub fn drop_times(path: &Path) -> io::Result<bool> {
    let beside = path.with_extension("packing");
    match rewrite(path, &beside).and_then(|()| fs::rename(&beside, path)) {
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

fn unfit() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn rewrite(path: &Path, beside: &Path) -> io::Result<()> {
    let trace = Trace::open(path).map_err(|_| unfit())?;
    let file = File::open(path)?;
    let mut page = [0; HEADER_BYTES];
    file.read_exact_at(&mut page, 0)?;
    let header = FileHeader::decode(&page).map_err(|_| unfit())?;
    page[..FIXED_BYTES].copy_from_slice(&header.encode());
    let mut options = OpenOptions::new();
    let out = options.write(true).create_new(true).mode(0o600);
    let out = BufWriter::new(out.open(beside)?);
    let most = MAX_RAW_BYTES - columns::apart::HEADER_BYTES;
    let mut writer = Writer::of(out, page, ChunkKind::Ordered, most)?;
    copy_others(&file, trace.length(), &mut writer)?;
    let mut merge = Merge::into(writer);
    let mut events = trace.events();
    let mut last = trace.clock().start_ticks;
    while let Some(event) = events.next() {
        last = event.time;
        merge.event(&event, &events)?;
    }
    // All that is left of times.
    merge.writer.set(Slot::LastTicks, last);
    let last_ns = trace.clock().monotonic_ns(last);
    merge.writer.set(Slot::LastMonotonicNs, last_ns);
    match events.damage().is_empty() {
        true => merge.finish(),
        false => Err(unfit()),
    }
}

/// All chunks but those of events.
fn copy_others(file: &File, length: u64, writer: &mut Writer<impl Write + Seek>) -> io::Result<()> {
    let mut at = HEADER_BYTES as u64;
    while at < length {
        let mut head = [0; CHUNK_HEADER_BYTES];
        file.read_exact_at(&mut head, at)?;
        let header = ChunkHeader::decode(&head).map_err(|_| unfit())?;
        let span = chunk_span(header.stored_bytes);
        match header.kind {
            ChunkKind::Events => {}
            ChunkKind::Process | ChunkKind::Modules | ChunkKind::Symbols => {
                let mut chunk = vec![0; span as usize];
                file.read_exact_at(&mut chunk, at)?;
                writer.out.write_all(&chunk)?;
                writer.offset += span;
            }
            ChunkKind::Live | ChunkKind::Counters | ChunkKind::Lost | ChunkKind::Ordered => {
                return Err(unfit());
            }
        }
        at += span;
    }
    Ok(())
}

/// The events of all threads on their way into one stream.
struct Merge<W: Write + Seek> {
    writer: Writer<W>,
    ordered: Ordered,
    /// The live blocks by address.
    blocks: HashMap<u64, u64, RandomState>,
    /// By thread: the old block of a realloc that has begun.
    moving: HashMap<u32, Block>,
    thread: u32,
    /// By `StackId`.
    stacks: Vec<Option<Stack>>,
    /// The marks that have a name in the chunk of this number.
    named: (u32, HashSet<MarkId>),
}

impl<W: Write + Seek> Merge<W> {
    fn into(mut writer: Writer<W>) -> Self {
        writer.current = writer.stream_of(0);
        Merge {
            writer,
            ordered: Ordered::default(),
            blocks: HashMap::default(),
            moving: HashMap::new(),
            thread: 0,
            stacks: Vec::new(),
            named: (0, HashSet::new()),
        }
    }

    fn finish(mut self) -> io::Result<()> {
        self.writer.seal(self.writer.current)?;
        self.writer.finish_file()?.flush()
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) -> io::Result<()> {
        self.writer.generation = events.generation();
        let begins = event.action == Action::ThreadStart;
        if begins || event.thread != self.thread {
            self.thread = event.thread;
            self.definition(|predictor, out| match begins {
                true => predictor.encode_thread(out, event.thread, 0),
                false => predictor.encode_switch(out, event.thread),
            })?;
            let stream = &mut self.writer.streams[self.writer.current];
            stream.tid = event.thread;
            self.ordered.switch(&mut stream.predictor, event.thread);
        }
        match event.action {
            Action::ThreadStart => Ok(()),
            Action::ThreadEnd => {
                self.definition(|predictor, out| predictor.encode_thread_end(out, 0))
            }
            Action::Mark { name } => self.mark(name, events.mark_name(name)),
            _ => self.call(event, events),
        }
    }

    fn call(&mut self, event: &Event, events: &Events<'_>) -> io::Result<()> {
        let Some((kind, address, mut call)) = self.ordered_call(event)? else {
            return Ok(());
        };
        let stack = event.action.stack();
        let stack = stack.and_then(|stack| self.stack(events.stacks(), stack));
        call.site = self.writer.site(stack.ok_or_else(unfit)?, kind)?;
        self.writer.make_room(MAX_CALL_BYTES)?;
        let stream = &mut self.writer.streams[self.writer.current];
        let mut buffer = [0; MAX_CALL_BYTES];
        let (predictor, tables) = (&mut stream.predictor, &mut stream.tables);
        let encoded = self.ordered.encode(predictor, &mut buffer, tables, &call);
        let (length, new) = encoded.ok_or_else(unfit)?;
        stream.bytes.extend_from_slice(&buffer[..length]);
        stream.events += 1;
        if let (Some(block), _) | (None, Block::Known(block)) = (new, call.made) {
            self.blocks.insert(address, block);
        }
        Ok(())
    }

    /// The call without its site, and the address of what it made; `None` at the beginning of a realloc.
    fn ordered_call(&mut self, event: &Event) -> io::Result<Option<(Call, u64, OrderedCall)>> {
        let none = Block::None;
        let (kind, address, (class, size, extra, old, made)) = match event.action {
            Action::ReallocStart { old, .. } => {
                let old = self.ended(old);
                self.moving.insert(event.thread, old);
                return Ok(None);
            }
            Action::Alloc {
                call,
                address,
                size,
                count,
                alignment,
                ..
            } => {
                let extra = count.max(alignment);
                let made = (Class::Alloc, size, extra, none, self.made(address));
                (Call::Alloc(call), address, made)
            }
            Action::Free {
                call,
                address,
                size,
                alignment,
                ..
            } => {
                let ended = (Class::Free, size, alignment, self.ended(address), none);
                (Call::Free(call), 0, ended)
            }
            Action::ReallocEnd {
                call,
                old: from,
                address,
                size,
                count,
                ..
            } => {
                let old = self.moving.remove(&event.thread).ok_or_else(unfit)?;
                let made = match (self.made(address), old) {
                    (Block::New, Block::Known(_)) if address == from => old,
                    (made, _) => made,
                };
                if let (Block::None, Block::Known(block), 1..) = (made, old, size) {
                    self.blocks.insert(from, block);
                }
                let moved = (Class::Realloc, size, count, old, made);
                (Call::Alloc(call), address, moved)
            }
            _ => return Err(unfit()),
        };
        let call = OrderedCall {
            class,
            site: 0,
            size,
            extra,
            old,
            made,
        };
        Ok(Some((kind, address, call)))
    }

    /// The block that a call returns.
    fn made(&self, address: u64) -> Block {
        match self.blocks.get(&address) {
            _ if address == 0 => Block::None,
            Some(block) => Block::Known(*block),
            None => Block::New,
        }
    }

    /// The block that a call is given.
    fn ended(&mut self, address: u64) -> Block {
        match self.blocks.remove(&address) {
            _ if address == 0 => Block::None,
            Some(block) => Block::Known(block),
            None => Block::Unknown,
        }
    }

    fn definition(
        &mut self,
        encode: impl FnOnce(&mut Predictor, &mut [u8]) -> Option<usize>,
    ) -> io::Result<()> {
        let mut buffer = [0; MAX_MARK_NAME_BYTES];
        self.writer.make_room(buffer.len())?;
        let stream = &mut self.writer.streams[self.writer.current];
        let length = encode(&mut stream.predictor, &mut buffer).ok_or_else(unfit)?;
        stream.bytes.extend_from_slice(&buffer[..length]);
        Ok(())
    }

    fn mark(&mut self, name: MarkId, text: &[u8]) -> io::Result<()> {
        self.writer.make_room(2 * MAX_MARK_NAME_BYTES)?;
        let stream = &mut self.writer.streams[self.writer.current];
        stream.events += 1;
        if self.named.0 != stream.contents.seq {
            self.named = (stream.contents.seq, HashSet::new());
        }
        if self.named.1.insert(name) {
            self.definition(|predictor, out| predictor.encode_mark_name(out, name.0, text))?;
        }
        self.definition(|predictor, out| predictor.encode_mark(out, name.0, 0))
    }

    /// The stack of the same frames; `None` if its definition was lost.
    fn stack(&mut self, table: &StackTable, stack: StackId) -> Option<Stack> {
        let (mut missing, mut at) = (Vec::new(), stack);
        let mut parent = loop {
            if let Some(Some(known)) = self.stacks.get(at.0 as usize) {
                break *known;
            }
            match at {
                StackId::COMPLETE_ROOT => break Stack::EMPTY,
                StackId::TRUNCATED_ROOT => break Stack::CUT,
                StackId::UNKNOWN => return None,
                _ => missing.push(at),
            }
            at = table.parent(at);
        };
        for stack in missing.into_iter().rev() {
            let frame = table.frame(table.frame_ids(stack).next()?)?;
            let packed = frame.address << 1 | u64::from(frame.interrupted);
            parent = self.writer.add_stack(parent, packed);
            let place = stack.0 as usize;
            if self.stacks.len() <= place {
                self.stacks.resize(place + 1, None);
            }
            self.stacks[place] = Some(parent);
        }
        Some(parent)
    }
}

impl<W: Write + Seek> Writer<W> {
    /// A stack that was not there before.
    fn add_stack(&mut self, parent: Stack, packed: u64) -> Stack {
        self.stacks.push((parent.0, packed));
        Stack(self.stacks.len() as u32 - 1)
    }

    /// Before stacks are defined: which modules are at their addresses.
    pub(super) fn announce_generation(&mut self) -> io::Result<()> {
        let generation = self.generation;
        if self.streams[self.current].generation == generation {
            return Ok(());
        }
        self.make_room(MAX_DEFINITION_BYTES)?;
        let stream = &mut self.streams[self.current];
        let mut buffer = [0; MAX_DEFINITION_BYTES];
        let predictor = &mut stream.predictor;
        let length = predictor.encode_generation(&mut buffer, generation, false);
        stream
            .bytes
            .extend_from_slice(&buffer[..length.unwrap_or(0)]);
        stream.generation = generation;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::{CallRecord, MAX_MARK_NAME_BYTES};
    use crate::modules::{self, Load};
    use crate::writer::About;
    use crate::{AllocCall, FreeCall};

    type Bytes = Cursor<Vec<u8>>;

    fn writer() -> Writer<Bytes> {
        let about = About {
            pid: 7,
            executable: b"/bin/x",
            argv: &[b"x"],
            start_wall_ns: 5,
        };
        Writer::new(Cursor::new(Vec::new()), &about).unwrap()
    }

    fn call(writer: &mut Writer<Bytes>, tid: u32, stack: Stack, call: Call, record: CallRecord) {
        writer.thread(tid, record.begin).unwrap();
        let site = writer.site(stack, call).unwrap();
        writer.make_room(MAX_CALL_BYTES).unwrap();
        let stream = &mut writer.streams[writer.current];
        let mut buffer = [0; 128];
        let record = CallRecord { site, ..record };
        let (predictor, tables) = (&mut stream.predictor, &mut stream.tables);
        let length = predictor.encode(&mut buffer, tables, record);
        stream.bytes.extend_from_slice(&buffer[..length]);
        stream.events += 1;
    }

    fn stored(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7-0.ltrace");
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    /// All that a trace says but times; blocks are numbered in place of their addresses.
    fn content(path: &Path) -> Vec<String> {
        let trace = Trace::open(path).unwrap();
        let mut events = trace.events();
        let (mut live, mut moving, mut made) = (HashMap::new(), HashMap::new(), 1);
        let mut out = vec![format!("{:?} {:?}", trace.process(), trace.modules())];
        while let Some(event) = events.next() {
            let mut action = event.action;
            let mut make = |live: &mut HashMap<u64, u64>, address: &mut u64| {
                made += 1;
                *address = match address {
                    0 => 0,
                    _ => *live.entry(*address).or_insert(made),
                };
            };
            let end = |live: &mut HashMap<u64, u64>, address: u64| match address {
                0 => 0,
                _ => live.remove(&address).unwrap_or(1),
            };
            match &mut action {
                Action::Alloc { address, .. } => make(&mut live, address),
                Action::Free { address, .. } => *address = end(&mut live, *address),
                Action::ReallocStart { old, .. } => {
                    moving.insert(event.thread, end(&mut live, *old));
                    continue;
                }
                Action::ReallocEnd {
                    old, address, size, ..
                } => {
                    let block = moving.remove(&event.thread).unwrap();
                    if block > 1 && (address == old || *address == 0 && *size > 0) {
                        live.entry(*old).or_insert(block);
                    }
                    *old = block;
                    make(&mut live, address);
                }
                _ => {}
            }
            let mut name = &[][..];
            if let Action::Mark { name: id } = &mut action {
                name = events.mark_name(*id);
                *id = MarkId(0);
            }
            let stack = action.stack().unwrap_or(StackId::COMPLETE_ROOT);
            let frames: Vec<_> = events.stacks().frames(stack).collect();
            let root = events.stacks().root(stack);
            let action = format!("{action:?}").replace(&format!("{stack:?}"), "");
            let thread = event.thread;
            out.push(format!("{thread} {action} {name:?} {root:?} {frames:?}"));
        }
        assert_eq!(events.damage(), []);
        out.push(format!("{} calls, {}", trace.event_count(), live.len()));
        out
    }

    fn same_without_times(path: &Path) {
        let before = content(path);
        let duration = |trace: Trace| {
            let mut events = trace.events();
            let last = std::iter::from_fn(|| events.next()).last();
            trace.duration_ns(last.map_or(0, |event| event.time))
        };
        let took = duration(Trace::open(path).unwrap());
        assert!(drop_times(path).unwrap());
        assert!(!Trace::open(path).unwrap().has_times());
        let after = content(path);
        let differ = after
            .iter()
            .zip(&before)
            .find(|(after, before)| after != before);
        assert_eq!((differ, after.len()), (None, before.len()));
        assert!(duration(Trace::open(path).unwrap()).abs_diff(took) <= 1);
        assert!(!drop_times(path).unwrap(), "it has none to lose");
    }

    /// Thread, what it does, at which of a few addresses, size, frame.
    type Step = (u32, u8, u64, u64, u64);

    fn write(writer: &mut Writer<Bytes>, time: u64, step: Step) {
        let (tid, kind, place, size, frame) = step;
        let address = 0x1000 + 16 * place;
        let (alloc, free) = (Call::Alloc(AllocCall::Calloc), Call::Free(FreeCall::Free));
        let (what, class, address, old) = match kind {
            0..4 => (alloc, Class::Alloc, address, 0),
            4..8 => (free, Class::Free, address, 0),
            8 => (alloc, Class::Realloc, address, address),
            9 => (alloc, Class::Realloc, address, address ^ 16),
            10 => (alloc, Class::Realloc, 0, address),
            11 => (alloc, Class::Realloc, address, 0),
            12 => (alloc, Class::Alloc, 0, 0),
            13 => (free, Class::Free, 0, 0),
            _ => return mark(writer, tid, 10 * time, format!("mark {frame}").as_bytes()),
        };
        let root = [Stack::EMPTY, Stack::CUT][usize::from(frame == 0)];
        let stack = writer.stack(root, 0x2000 + frame);
        let record = CallRecord {
            class,
            site: 0,
            time: 10 * time + if kind == 9 { 15 } else { 0 },
            address,
            size,
            extra: size / 3,
            begin: 10 * time,
            old,
        };
        call(writer, tid, stack, what, record);
    }

    fn mark(writer: &mut Writer<Bytes>, tid: u32, time: u64, name: &[u8]) {
        writer.thread(tid, time).unwrap();
        writer.make_room(2 * MAX_MARK_NAME_BYTES).unwrap();
        let stream = &mut writer.streams[writer.current];
        let mut buffer = [0; MAX_MARK_NAME_BYTES];
        let named = stream.predictor.encode_mark_name(&mut buffer, 3, name);
        stream.bytes.extend_from_slice(&buffer[..named.unwrap()]);
        let marked = stream.predictor.encode_mark(&mut buffer, 3, time);
        stream.bytes.extend_from_slice(&buffer[..marked.unwrap()]);
        stream.events += 1;
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Frees may be missing, and a realloc that moves its block overlaps other threads' calls.
        #[test]
        fn only_times_and_addresses_are_lost(
            steps in proptest::collection::vec((1..6u32, 0..15u8, 0..24u64, 0..9u64, 0..9u64), 1..300),
        ) {
            let mut writer = writer();
            for (number, step) in steps.into_iter().enumerate() {
                // Two threads share a list of blocks.
                let tid = if step.0 == 5 { 1 + 64 } else { step.0 };
                write(&mut writer, number as u64 + 1, (tid, step.1, step.2, step.3, step.4));
            }
            let (_folder, path) = stored(&writer.finish().unwrap().into_inner());
            same_without_times(&path);
        }
    }

    #[test]
    fn blocks_are_named_across_chunks_and_not_behind_a_lost_one() {
        const CALLS: u64 = 1_500_000;
        let mut writer = writer();
        for number in 0..CALLS {
            // A block lives until its address comes again.
            let place = number / 2 * 7919 % 5003;
            let kind = match number % 100_000 {
                0 => 14,
                odd if odd % 2 == 1 => 0,
                _ => 4,
            };
            let tid = 1 + number as u32 / 2 % 3;
            write(
                &mut writer,
                number + 1,
                (tid, kind, place, place * 31 % 40, place % 300),
            );
        }
        let (_folder, path) = stored(&writer.finish().unwrap().into_inner());
        let before = fs::metadata(&path).unwrap().len();
        same_without_times(&path);
        let mut bytes = fs::read(&path).unwrap();
        assert!(
            bytes.len() as u64 * 2 < before,
            "{} of {before}",
            bytes.len()
        );
        let chunks = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"LCHK\x08"));
        let chunks: Vec<usize> = chunks.collect();
        assert!(chunks.len() >= 3, "{chunks:?}");
        bytes[chunks[1] + CHUNK_HEADER_BYTES] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut events = trace.events();
        let events_there = std::iter::from_fn(|| events.next());
        let calls = events_there
            .filter(|event| event.action != Action::ThreadStart)
            .count() as u64;
        let [damage] = events.damage() else {
            panic!("{:?}", events.damage());
        };
        assert_eq!(calls + damage.events.unwrap(), CALLS);
    }

    #[test]
    fn each_frame_keeps_its_module() {
        let mut writer = writer();
        let mut payload = [0; 256];
        for id in 0..2 {
            let load = Load {
                id,
                generation: id,
                time: 0,
                bias: 0,
                start: 0x2000,
                end: 0x3000,
                build_id: &[],
                path: &[b'a' + id as u8],
            };
            if id > 0 {
                let length = modules::encode_unload(&mut payload, 0, 1, 3).unwrap();
                let gone = payload[..length].to_vec();
                writer
                    .chunk(ChunkKind::Modules, &gone, Default::default())
                    .unwrap();
            }
            let length = modules::encode_load(&mut payload, &load).unwrap();
            let loaded = payload[..length].to_vec();
            writer
                .chunk(ChunkKind::Modules, &loaded, Default::default())
                .unwrap();
        }
        for time in 1..5 {
            writer.generation = u32::from(time > 2);
            let stack = match time {
                1 | 3 => writer.add_stack(Stack::EMPTY, 0x2345 << 1 | 1),
                _ => Stack(writer.stacks.len() as u32 - 1),
            };
            let record = CallRecord {
                class: Class::Alloc,
                site: 0,
                time,
                address: time * 16,
                size: 3,
                extra: 0,
                begin: time,
                old: 0,
            };
            call(
                &mut writer,
                7,
                stack,
                Call::Alloc(AllocCall::Malloc),
                record,
            );
        }
        let (_folder, path) = stored(&writer.finish().unwrap().into_inner());
        let modules = content(&path);
        let of = |id| {
            modules
                .iter()
                .filter(|line| line.contains(&format!("Some(ModuleId({id}))")))
                .count()
        };
        assert_eq!((of(0), of(1)), (2, 2), "{modules:#?}");
        same_without_times(&path);
    }

    #[test]
    fn what_has_more_than_calls_stays() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
        for name in [
            "marked", "copied", "contents", "counted", "sampled", "lost", "cut-off", "cut",
        ] {
            let bytes = fs::read(corpus.join(name).with_extension("ltrace")).unwrap();
            let (folder, path) = stored(&bytes);
            assert!(!drop_times(&path).unwrap(), "{name}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}
