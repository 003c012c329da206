//! Writes a trace file from events, for imports and tests. The recorder has its own writer, which does not
//! allocate.
//!
//! One thread. Memory: the distinct stacks, sites and names, and a chunk for each recorded thread; it does
//! not grow with the number of calls.
//!
//! Invariants: a stream's nodes, frames and sites are numbered in order of definition, and defined before
//! they are used; payload of a sealed chunk ≤ `MAX_RAW_BYTES`.

mod ordered;

use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom, Write};

use crate::call::Call;
use crate::chunk;
use crate::codec::{
    CallRecord, Callees, FIRST_FRAME, FIRST_NODE, FIRST_SITE, Link, MAX_DEFINITION_BYTES,
    Predictor, ROOT_COMPLETE, ROOT_TRUNCATED, SiteMemory, Tables, max_nodes_bytes,
};
use crate::fingerprint::Fingerprint;
use crate::layout::{
    ChunkKind, ClockKind, Contents, EndState, FIXED_BYTES, FileHeader, HEADER_BYTES, MAX_RAW_BYTES,
    Origin, SLOTS_OFFSET, Slot,
};
use crate::lost;
use crate::modules::{self, Load, ModuleId};
use crate::process;
use crate::symbols::{Function, SymbolChunk};

pub use crate::codec::Class;
pub use ordered::drop_times;

/// Records in a chunk before it is sealed.
const CHUNK_BYTES: usize = 256 << 10;
/// Frames in one record; a longer chain takes several.
const LINKS_AT_ONCE: usize = 1024;
const MAX_PROCESS_BYTES: usize = 64 << 10;

/// The data of the header and the process chunk.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub pid: u32,
    pub executable: &'a [u8],
    pub argv: &'a [&'a [u8]],
    /// Nanoseconds since 1970, UTC.
    pub start_wall_ns: u64,
}

/// A stack, by the number from `Writer::stack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stack(u32);

impl Stack {
    /// The stack without frames.
    pub const EMPTY: Stack = Stack(0);
    /// The same, where the outer frames are missing.
    const CUT: Stack = Stack(1);
}

/// A call to write, with the fields of `CallRecord`. Times are in nanoseconds, and do not decrease within
/// a thread.
#[derive(Clone, Copy, Debug)]
pub struct WrittenCall {
    pub call: Call,
    pub class: Class,
    pub stack: Stack,
    pub time: u64,
    pub address: u64,
    pub size: u64,
    /// Elements or alignment; 0 if the call has neither.
    pub extra: u64,
    /// Realloc only.
    pub old: u64,
}

pub struct Writer<W: Write + Seek> {
    out: W,
    page: Box<[u8; HEADER_BYTES]>,
    kind: ChunkKind,
    chunk_bytes: usize,
    offset: u64,
    /// Parent and packed address of each stack, by number; the first two are the empty ones.
    stacks: Vec<(u32, u64)>,
    stack_numbers: HashMap<(u32, u64), u32>,
    streams: Vec<Stream>,
    /// By thread id.
    stream_numbers: HashMap<u32, usize>,
    current: usize,
    modules: u32,
    symbols: SymbolChunk,
    last_time: u64,
    /// Of the module map, for the next stacks.
    generation: u32,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a file: the header, and the process chunk.
    pub fn new(out: W, about: &About<'_>) -> io::Result<Self> {
        let header = FileHeader {
            pid: about.pid,
            ppid: 0,
            image: 0,
            origin: Origin::Start,
            clock: ClockKind::Monotonic,
            shift: 0,
            start_ticks: 0,
            start_monotonic_ns: 0,
            start_wall_ns: about.start_wall_ns,
            machine: 62,
            page_bytes: HEADER_BYTES as u32,
            asked: 0,
        };
        let mut page = [0; HEADER_BYTES];
        page[..FIXED_BYTES].copy_from_slice(&header.encode());
        let mut writer = Self::of(out, page, ChunkKind::Events, CHUNK_BYTES)?;
        let mut payload = vec![0; MAX_PROCESS_BYTES];
        let cut = about.executable.get(..MAX_PROCESS_BYTES / 2);
        let executable = cut.unwrap_or(about.executable);
        let length = process::encode(&mut payload, executable, about.argv.iter().copied());
        payload.truncate(length.unwrap_or(0));
        writer.chunk(ChunkKind::Process, &payload, Contents::default())?;
        Ok(writer)
    }

    fn of(out: W, page: [u8; HEADER_BYTES], kind: ChunkKind, most: usize) -> io::Result<Self> {
        let mut writer = Writer {
            out,
            page: Box::new(page),
            kind,
            chunk_bytes: most,
            offset: HEADER_BYTES as u64,
            stacks: vec![(0, 0); 2],
            stack_numbers: HashMap::new(),
            streams: Vec::new(),
            stream_numbers: HashMap::new(),
            current: 0,
            modules: 0,
            symbols: SymbolChunk::default(),
            last_time: 0,
            generation: 0,
        };
        writer.write_header()?;
        Ok(writer)
    }

    /// Adds a module that is loaded all the time, without a bias.
    pub fn module(
        &mut self,
        path: &[u8],
        build_id: &[u8],
        start: u64,
        end: u64,
    ) -> io::Result<ModuleId> {
        let id = self.modules;
        let load = Load {
            id,
            generation: 0,
            time: 0,
            bias: 0,
            start,
            end,
            build_id,
            path,
        };
        let mut payload = vec![0; 128 + build_id.len() + path.len()];
        let length = modules::encode_load(&mut payload, &load);
        payload.truncate(length.unwrap_or(0));
        self.chunk(ChunkKind::Modules, &payload, Contents::default())?;
        self.modules += 1;
        Ok(ModuleId(id))
    }

    /// Names the functions at an address of a module, innermost first. For a frame, the address is its own - 1.
    pub fn symbols(
        &mut self,
        module: ModuleId,
        address: u64,
        functions: &[Function<'_>],
    ) -> io::Result<()> {
        self.symbols.add(module, address, functions);
        if self.symbols.is_full() {
            self.flush_symbols()?;
        }
        Ok(())
    }

    /// The stack of a frame, with this return address, called by `parent`.
    pub fn stack(&mut self, parent: Stack, return_address: u64) -> Stack {
        let next = self.stacks.len() as u32;
        let number = *self
            .stack_numbers
            .entry((parent.0, return_address))
            .or_insert(next);
        if number == next {
            self.stacks.push((parent.0, return_address << 1));
        }
        Stack(number)
    }

    /// The following calls are this thread's. Without this, they are thread 0's, which the trace then does not
    /// count as one.
    pub fn thread(&mut self, tid: u32, time: u64) -> io::Result<()> {
        let known = self.stream_numbers.contains_key(&tid);
        self.current = self.stream_of(tid);
        if !known {
            self.make_room(MAX_DEFINITION_BYTES)?;
            let stream = &mut self.streams[self.current];
            let mut buffer = [0; MAX_DEFINITION_BYTES];
            let length = stream.predictor.encode_thread(&mut buffer, tid, time);
            stream
                .bytes
                .extend_from_slice(&buffer[..length.unwrap_or(0)]);
        }
        Ok(())
    }

    pub fn call(&mut self, call: &WrittenCall) -> io::Result<()> {
        if self.streams.is_empty() {
            self.current = self.stream_of(0);
        }
        let site = self.site(call.stack, call.call)?;
        self.make_room(crate::codec::MAX_CALL_BYTES)?;
        self.last_time = self.last_time.max(call.time);
        let stream = &mut self.streams[self.current];
        let record = CallRecord {
            class: call.class,
            site,
            time: call.time,
            address: call.address,
            size: call.size,
            extra: call.extra,
            begin: call.time,
            old: call.old,
        };
        let mut buffer = [0; 128];
        let length = stream
            .predictor
            .encode(&mut buffer, &mut stream.tables, record);
        stream.bytes.extend_from_slice(&buffer[..length]);
        stream.events += 1;
        Ok(())
    }

    /// Records the contents of the block at an address, which the thread's next call may free.
    pub fn contents(&mut self, time: u64, address: u64, held: Fingerprint) -> io::Result<()> {
        self.make_room(MAX_DEFINITION_BYTES)?;
        self.last_time = self.last_time.max(time);
        let stream = &mut self.streams[self.current];
        let mut buffer = [0; MAX_DEFINITION_BYTES];
        let length = stream
            .predictor
            .encode_contents(&mut buffer, address, held, time);
        stream
            .bytes
            .extend_from_slice(&buffer[..length.unwrap_or(0)]);
        Ok(())
    }

    /// Records that so much of the thread's processor time was in this stack.
    pub fn sample(&mut self, stack: Stack, time: u64, cpu_ns: u64) -> io::Result<()> {
        let node = self.node(stack)?;
        self.make_room(MAX_DEFINITION_BYTES)?;
        self.last_time = self.last_time.max(time);
        let stream = &mut self.streams[self.current];
        let mut buffer = [0; MAX_DEFINITION_BYTES];
        let next_node = stream.tables.next_node();
        let length = stream
            .predictor
            .encode_sample(&mut buffer, next_node, node, cpu_ns, time);
        stream
            .bytes
            .extend_from_slice(&buffer[..length.unwrap_or(0)]);
        stream.events += 1;
        Ok(())
    }

    /// Writes the rest, and the header again. Then the file is a complete trace.
    pub fn finish(mut self) -> io::Result<W> {
        for number in 0..self.streams.len() {
            self.seal(number)?;
        }
        self.flush_symbols()?;
        for (slot, value) in [
            (Slot::LastTicks, self.last_time),
            (Slot::LastMonotonicNs, self.last_time),
            (Slot::EndState, EndState::Exited as u64),
        ] {
            self.set(slot, value);
        }
        self.finish_file()
    }

    fn finish_file(mut self) -> io::Result<W> {
        self.set(Slot::FileEnd, self.offset);
        self.write_header()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn stream_of(&mut self, tid: u32) -> usize {
        let next = self.streams.len();
        let number = *self.stream_numbers.entry(tid).or_insert(next);
        if number == next {
            self.streams.push(Stream::new(next as u32, tid));
        }
        number
    }

    /// The current stream's number for a stack and a call; defines what is missing.
    fn site(&mut self, stack: Stack, call: Call) -> io::Result<u32> {
        let stream = &self.streams[self.current];
        if let Some(&site) = stream.sites.get(&(stack, call)) {
            return Ok(site);
        }
        let node = self.node(stack)?;
        self.make_room(MAX_DEFINITION_BYTES)?;
        let stream = &mut self.streams[self.current];
        let mut buffer = [0; MAX_DEFINITION_BYTES];
        let next_node = stream.tables.next_node();
        let length = stream
            .predictor
            .encode_site(&mut buffer, next_node, node, call.code());
        stream
            .bytes
            .extend_from_slice(&buffer[..length.unwrap_or(0)]);
        let site = stream.tables.next_site();
        stream.tables.sites.push(SiteMemory::default());
        stream.sites.insert((stack, call), site);
        Ok(site)
    }

    /// The current stream's node for a stack.
    fn node(&mut self, stack: Stack) -> io::Result<u32> {
        let stream = &self.streams[self.current];
        let (mut missing, mut at) = (Vec::new(), stack);
        let mut parent = loop {
            if at == Stack::EMPTY {
                break ROOT_COMPLETE;
            }
            if at == Stack::CUT {
                break ROOT_TRUNCATED;
            }
            if let Some(&node) = stream.nodes.get(&at) {
                break node;
            }
            missing.push(at);
            at = Stack(self.stacks.get(at.0 as usize).map_or(0, |stack| stack.0));
        };
        missing.reverse();
        if !missing.is_empty() {
            self.announce_generation()?;
        }
        for chain in missing.chunks(LINKS_AT_ONCE) {
            self.make_room(max_nodes_bytes(chain.len()))?;
            let addresses = chain
                .iter()
                .map(|stack| self.stacks.get(stack.0 as usize).map_or(0, |stack| stack.1));
            let addresses: Vec<u64> = addresses.collect();
            parent = self.streams[self.current].define_nodes(parent, chain, &addresses);
        }
        Ok(parent)
    }

    /// Seals the current stream's chunk if this many more bytes do not fit.
    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.streams[self.current].bytes.len() + bytes > self.chunk_bytes {
            self.seal(self.current)?;
        }
        Ok(())
    }

    fn seal(&mut self, number: usize) -> io::Result<()> {
        let stream = &mut self.streams[number];
        if stream.bytes.is_empty() {
            return Ok(());
        }
        let (payload, contents) = stream.take_chunk();
        if self.kind == ChunkKind::Events {
            let next = &stream.contents;
            stream
                .predictor
                .begin_chunk(next.first_time, next.first_node);
        }
        self.chunk(self.kind, &payload, contents)
    }

    fn flush_symbols(&mut self) -> io::Result<()> {
        let payload = self.symbols.take();
        if payload.is_empty() {
            return Ok(());
        }
        self.chunk(ChunkKind::Symbols, &payload, Contents::default())
    }

    /// Records which blocks were lost, see `lost::encode`.
    pub fn lost(&mut self, time: u64, addresses: &[u64]) -> io::Result<()> {
        for payload in lost::encode(time, addresses) {
            self.chunk(ChunkKind::Lost, &payload, Contents::default())?;
        }
        Ok(())
    }

    fn chunk(&mut self, kind: ChunkKind, payload: &[u8], contents: Contents) -> io::Result<()> {
        debug_assert!(payload.len() <= MAX_RAW_BYTES);
        self.offset += chunk::write(&mut self.out, kind, payload, contents)?;
        Ok(())
    }

    fn set(&mut self, slot: Slot, value: u64) {
        let at = SLOTS_OFFSET + 8 * slot as usize;
        self.page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn write_header(&mut self) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&*self.page)
    }
}

/// A thread's stream: its open chunk, and its definitions.
struct Stream {
    number: u32,
    tid: u32,
    predictor: Predictor,
    tables: Defined,
    frames: HashMap<u64, u32>,
    nodes: HashMap<Stack, u32>,
    sites: HashMap<(Stack, Call), u32>,
    bytes: Vec<u8>,
    /// Describes the open chunk; checksum, events and last time are set when it is sealed.
    contents: Contents,
    events: u32,
    generation: u32,
}

impl Stream {
    fn new(number: u32, tid: u32) -> Self {
        let mut stream = Stream {
            number,
            tid,
            predictor: Predictor::new(),
            tables: Defined::default(),
            frames: HashMap::new(),
            nodes: HashMap::new(),
            sites: HashMap::new(),
            bytes: Vec::new(),
            contents: Contents::default(),
            events: 0,
            generation: 0,
        };
        stream.begin_chunk(0, 0);
        stream.predictor.begin_chunk(0, FIRST_NODE);
        stream
    }

    fn begin_chunk(&mut self, seq: u32, time: u64) {
        self.contents = Contents {
            stream: self.number,
            seq,
            tid: self.tid,
            first_node: self.tables.next_node(),
            first_site: self.tables.next_site(),
            first_frame: self.tables.next_frame(),
            first_time: time,
            generation: self.generation,
            ..Contents::default()
        };
        self.events = 0;
    }

    fn take_chunk(&mut self) -> (Vec<u8>, Contents) {
        let payload = std::mem::take(&mut self.bytes);
        let time = self.predictor.time();
        let contents = Contents {
            events: self.events,
            last_time: time,
            ..self.contents
        };
        self.begin_chunk(contents.seq + 1, time);
        (payload, contents)
    }

    /// Defines the nodes of a chain under a node; returns the last one's number.
    fn define_nodes(&mut self, parent: u32, chain: &[Stack], addresses: &[u64]) -> u32 {
        let first_new = self.tables.next_frame();
        let mut links = Vec::with_capacity(chain.len());
        let mut frames = Vec::with_capacity(chain.len());
        for &packed in addresses {
            let next = self.tables.next_frame();
            let frame = *self.frames.entry(packed).or_insert(next);
            links.push(if frame == next {
                Link::New(packed)
            } else {
                Link::Frame(frame)
            });
            if frame == next {
                self.tables.frames.push(Callees::default());
            }
            frames.push(frame);
        }
        let mut buffer = vec![0; max_nodes_bytes(links.len())];
        let length =
            self.predictor
                .encode_nodes(&mut buffer, &mut self.tables, parent, &links, first_new);
        self.bytes.extend_from_slice(&buffer[..length.unwrap_or(0)]);
        let mut last = parent;
        for (&stack, frame) in chain.iter().zip(frames) {
            last = self.tables.next_node();
            self.tables.node_frames.push(frame);
            self.nodes.insert(stack, last);
        }
        last
    }
}

/// A stream's definitions, by number.
#[derive(Default)]
struct Defined {
    root: Callees,
    frames: Vec<Callees>,
    node_frames: Vec<u32>,
    sites: Vec<SiteMemory>,
}

impl Defined {
    fn next_site(&self) -> u32 {
        FIRST_SITE + self.sites.len() as u32
    }
}

impl Tables for Defined {
    fn site(&mut self, site: u32) -> Option<&mut SiteMemory> {
        self.sites.get_mut(site.checked_sub(FIRST_SITE)? as usize)
    }

    fn callees(&mut self, frame: u32) -> Option<&mut Callees> {
        match frame.checked_sub(FIRST_FRAME) {
            None => Some(&mut self.root),
            Some(index) => self.frames.get_mut(index as usize),
        }
    }

    fn frame_of(&mut self, node: u32) -> u32 {
        let index = node.checked_sub(FIRST_NODE).map(|index| index as usize);
        index
            .and_then(|index| self.node_frames.get(index).copied())
            .unwrap_or(0)
    }

    fn next_node(&self) -> u32 {
        FIRST_NODE + self.node_frames.len() as u32
    }

    fn next_frame(&self) -> u32 {
        FIRST_FRAME + self.frames.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::{Action, AllocCall, DamageCause, FreeCall, Trace};

    const ABOUT: About<'static> = About {
        pid: 7,
        executable: b"/bin/x",
        argv: &[b"x", b"y"],
        start_wall_ns: 5,
    };

    fn writer() -> Writer<Cursor<Vec<u8>>> {
        Writer::new(Cursor::new(Vec::new()), &ABOUT).expect("memory")
    }

    fn reopen(writer: Writer<Cursor<Vec<u8>>>) -> (tempfile::NamedTempFile, Trace) {
        let bytes = writer.finish().expect("memory").into_inner();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        let trace = Trace::open(file.path()).expect("a trace");
        assert_eq!(trace.damage(), []);
        (file, trace)
    }

    #[test]
    fn a_small_file_cannot_define_stacks_without_bound() {
        let mut writer = writer();
        let mut stack = Stack::EMPTY;
        for frame in 0..3_000_000 {
            stack = writer.stack(stack, 0x1000 + frame * 16);
        }
        writer.call(&malloc(1, 64, stack)).expect("memory");
        let (_file, trace) = reopen(writer);
        let most = (1 << 20) + trace.length() * 16;
        assert!(most < 3_000_000, "the file is {} bytes", trace.length());
        let mut events = trace.events();
        while events.next().is_some() {}
        let causes: Vec<DamageCause> = events.damage().iter().map(|d| d.cause).collect();
        assert!(causes.contains(&DamageCause::Record), "{causes:?}");
        assert!(events.stacks().frame_count() as u64 <= most);
    }

    fn malloc(time: u64, address: u64, stack: Stack) -> WrittenCall {
        WrittenCall {
            call: Call::Alloc(AllocCall::Malloc),
            class: Class::Alloc,
            stack,
            time,
            address,
            size: 10,
            extra: 0,
            old: 0,
        }
    }

    #[test]
    fn a_trace_without_calls_is_whole() {
        let (_file, trace) = reopen(writer());
        assert_eq!(trace.process().executable, b"/bin/x");
        assert_eq!(trace.process().argv, [b"x", b"y"]);
        assert_eq!(trace.process().end, EndState::Exited);
        assert_eq!(trace.events().next(), None);
    }

    #[test]
    fn samples_return_as_written() {
        let mut writer = writer();
        writer.thread(7, 1).expect("memory");
        let stack = writer.stack(Stack::EMPTY, 0x1234);
        writer.sample(stack, 3, 1000).expect("memory");
        writer.sample(stack, 5, u64::MAX).expect("memory");
        let (_file, trace) = reopen(writer);
        let mut events = trace.events();
        let mut found = Vec::new();
        while let Some(event) = events.next() {
            if let Action::Sample { cpu_ns, stack } = event.action {
                let frames = events.stacks().frames(stack).map(|f| f.address);
                found.push((event.time, event.thread, cpu_ns, frames.collect::<Vec<_>>()));
            }
        }
        let expected = [(3, 1000), (5, u64::MAX)];
        assert_eq!(found, expected.map(|(t, ns)| (t, 7, ns, vec![0x1234])));
        assert_eq!(events.damage(), []);
        assert_eq!(trace.event_count(), 2);
    }

    #[test]
    fn names_are_found_by_the_address_of_a_frame() {
        let mut writer = writer();
        let module = writer
            .module(b"/lib/m", b"id", 0x1000, 0x2000)
            .expect("memory");
        let named = Function {
            name: b"f",
            file: b"f.c",
            line: 3,
        };
        writer.symbols(module, 0x1233, &[named]).expect("memory");
        let stack = writer.stack(Stack::EMPTY, 0x1234);
        writer.call(&malloc(1, 0x10, stack)).expect("memory");
        let (_file, trace) = reopen(writer);
        let mut events = trace.events();
        let event = events.next().expect("a call");
        let Action::Alloc { stack, .. } = event.action else {
            panic!("{event:?}")
        };
        let frame = *events.stacks().frames(stack).next().expect("a frame");
        assert_eq!(frame.module, Some(module));
        let mut functions = trace.symbols().functions(module, frame.lookup_address());
        assert_eq!(functions.next(), Some(named));
    }

    #[test]
    fn a_stack_deeper_than_a_record_returns_whole() {
        let mut writer = writer();
        let mut stack = Stack::EMPTY;
        for depth in 0..100_000 {
            stack = writer.stack(stack, 0x1000 + depth % 3000);
        }
        writer.call(&malloc(1, 0x10, stack)).expect("memory");
        let (_file, trace) = reopen(writer);
        let mut events = trace.events();
        let Some(Action::Alloc { stack, .. }) = events.next().map(|event| event.action) else {
            panic!("no call")
        };
        assert_eq!(events.stacks().frames(stack).count(), 100_000);
        assert_eq!(events.damage(), []);
    }

    /// Thread, kind, stack (two frames of five), address, size.
    type Step = (u32, u8, [u64; 2], u64, u64);

    fn step() -> impl Strategy<Value = Step> {
        (
            0..3u32,
            0..4u8,
            [0..5u64, 0..5u64],
            1..1u64 << 50,
            any::<u64>(),
        )
    }

    fn written(time: u64, step: &Step, stack: Stack) -> WrittenCall {
        let &(_, kind, _, address, size) = step;
        let (call, class) = match kind {
            0 => (Call::Alloc(AllocCall::Malloc), Class::Alloc),
            1 => (Call::Alloc(AllocCall::Calloc), Class::Alloc),
            2 => (Call::Alloc(AllocCall::Realloc), Class::Realloc),
            _ => (Call::Free(FreeCall::Free), Class::Free),
        };
        let extra = u64::from(kind == 1) * (size >> 3);
        let old = u64::from(kind == 2) * (address ^ 0x70);
        WrittenCall {
            call,
            class,
            stack,
            time,
            address,
            size,
            extra,
            old,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn calls_return_as_written(steps in proptest::collection::vec(step(), 0..400), repeat in 1..60u64) {
            let mut writer = writer();
            let mut expected = Vec::new();
            // Repeated, so that streams have several chunks.
            for (number, step) in (0..repeat).flat_map(|_| &steps).enumerate() {
                let time = number as u64 + 1;
                writer.thread(step.0, time).expect("memory");
                let mut stack = Stack::EMPTY;
                for frame in step.2 {
                    stack = writer.stack(stack, 0x1000 + frame);
                }
                let call = written(time, step, stack);
                writer.call(&call).expect("memory");
                expected.push((step, call));
            }
            let (_file, trace) = reopen(writer);
            prop_assert_eq!(trace.event_count(), expected.len() as u64);
            let mut events = trace.events();
            let mut expected = expected.into_iter();
            while let Some(event) = events.next() {
                if matches!(event.action, Action::ThreadStart | Action::ReallocStart { .. }) {
                    continue;
                }
                let (step, call) = expected.next().expect("as many as were written");
                prop_assert_eq!((event.time, event.thread), (call.time, step.0));
                let stack = check(&event.action, &call)?;
                let frames: Vec<u64> = events.stacks().frames(stack).map(|f| f.address).collect();
                prop_assert_eq!(frames, [0x1000 + step.2[1], 0x1000 + step.2[0]]);
            }
            prop_assert!(expected.next().is_none());
            prop_assert_eq!(events.damage(), []);
        }
    }

    fn check(action: &Action, call: &WrittenCall) -> Result<crate::StackId, TestCaseError> {
        let same = |found: (Call, u64, u64, u64, u64), stack| {
            let written = (call.call, call.address, call.size, call.extra, call.old);
            prop_assert_eq!(found, written);
            Ok(stack)
        };
        match *action {
            Action::Alloc {
                call,
                address,
                size,
                count,
                stack,
                ..
            } => same((Call::Alloc(call), address, size, count, 0), stack),
            Action::Free {
                call,
                address,
                size,
                stack,
                ..
            } => same((Call::Free(call), address, size, 0, 0), stack),
            Action::ReallocEnd {
                call,
                old,
                address,
                size,
                count,
                stack,
            } => same((Call::Alloc(call), address, size, count, old), stack),
            ref other => Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
}
