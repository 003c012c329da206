//! One stream of a trace: its chunks in order, decoded in batches of calls.
//!
//! Invariants: times do not decrease; a stream holds up to one decompressed chunk; the tables grow with the
//! chunks' definitions, so the file's size bounds them.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;

use super::Trace;
use super::counters::Counted;
use super::events::{Action, Event};
use super::index::Entry;
use super::marks::{MarkId, MarkNames};
use super::numbered::Numbered;
use super::stacks::{Frame, FrameId, StackId, StackTable};
use crate::call::{AllocCall, Call};
use crate::codec::{
    self, CallRecord, Callees, Class, Details, FIRST_FRAME, FIRST_NODE, FIRST_SITE, Link, NO_SITE,
    Ordered, Predictor, ROOT_COMPLETE, ROOT_TRUNCATED, Record, SiteMemory, SystemCallRecord,
    Tables,
};
use crate::columns::{self, Columns, Records, Rows};
use crate::error::{Damage, DamageCause};
use crate::layout::Contents;

/// What all streams share during decoding.
pub struct Shared<'s> {
    pub stacks: &'s mut StackTable,
    pub marks: &'s mut MarkNames,
    pub damage: &'s mut Vec<Damage>,
    pub counted: &'s mut Vec<Counted>,
    /// Nodes that may still be defined; see `NODES_A_BYTE`.
    pub room: &'s mut u64,
}

/// A decompressed chunk of definitions can be far larger than the file. A real trace defines less than a
/// node a byte; one that defines more than this and `NODES_ANYWAY` is refused, so that the file's size
/// bounds memory.
pub const NODES_A_BYTE: u64 = 16;
pub const NODES_ANYWAY: u64 = 1 << 20;

pub struct Stream<'t> {
    trace: &'t Trace,
    /// The rest of the stream, in order.
    entries: &'t [Entry],
    current: Option<Entry>,
    next_seq: u32,
    /// What is left of the current chunk.
    records: Option<Chunk>,
    /// Number of decoded calls of the current chunk.
    decoded: u32,
    lost_definitions: u64,
    predictor: Predictor,
    /// Of a trace without times.
    ordered: Option<Box<Ordered>>,
    definitions: Definitions,
    details: Details,
    /// Indexed by the chunk's own numbers.
    mark_names: HashMap<u32, MarkId>,
    generation: u32,
    tid: u32,

    time: u64,
    /// The last batch, and how many of it were taken.
    ready: Vec<Event>,
    taken: usize,
}

/// The records of a chunk, as the file has them.
enum Chunk {
    Rows(Rows),
    Columns(Box<Columns<{ columns::COLUMNS }>>),
    Apart(Box<Columns<{ columns::apart::COLUMNS }>>),
}

/// Events of a batch that stay in the processor's cache until they are taken.
const BATCH: usize = 256;

/// A defined site: its stack and call, and the chunk's memory of it.
struct Site {
    stack: StackId,
    call: Option<Call>,
    memory: SiteMemory,
}

/// A defined frame: its packed address, the chunk's memory of it, and its number in the common table for a
/// generation of the module map.
struct FrameEntry {
    address: u64,
    callees: Callees,
    common: Option<(u32, FrameId)>,
}

/// A defined node: its number in the common table, and the stream's number of its frame.
#[derive(Clone, Copy)]
struct Node {
    common: u32,
    frame: u32,
}

struct Definitions {
    frames: Numbered<FrameEntry>,
    nodes: Numbered<Node>,
    sites: Numbered<Site>,
    /// The chunk's memory of numbers that a lost chunk defined, and of frame 0: the recorder's predictions used
    /// it.
    lost_sites: HashMap<u32, SiteMemory>,
    lost_frames: HashMap<u32, Callees>,
}

impl Definitions {
    fn new() -> Self {
        Definitions {
            frames: Numbered::starting_at(FIRST_FRAME),
            nodes: Numbered::starting_at(FIRST_NODE),
            sites: Numbered::starting_at(FIRST_SITE),
            lost_sites: HashMap::new(),
            lost_frames: HashMap::new(),
        }
    }

    fn begin_chunk(&mut self, contents: &Contents) {
        self.frames
            .continue_at(contents.first_frame.max(FIRST_FRAME));
        self.nodes.continue_at(contents.first_node.max(FIRST_NODE));
        self.sites.continue_at(contents.first_site.max(FIRST_SITE));
        self.lost_sites.clear();
        self.lost_frames.clear();
    }

    fn common_node(&self, node: u32) -> u32 {
        match node {
            ROOT_COMPLETE | ROOT_TRUNCATED => node,
            _ => self
                .nodes
                .get(node)
                .map_or(StackId::UNKNOWN.0, |node| node.common),
        }
    }
}

impl Tables for Definitions {
    #[inline]
    fn site(&mut self, site: u32) -> Option<&mut SiteMemory> {
        if site == NO_SITE {
            return None;
        }
        match self.sites.get_mut(site) {
            Some(site) => Some(&mut site.memory),
            None => Some(lost(&mut self.lost_sites, site)),
        }
    }

    fn callees(&mut self, frame: u32) -> Option<&mut Callees> {
        match self.frames.get_mut(frame) {
            Some(frame) => Some(&mut frame.callees),
            None => Some(self.lost_frames.entry(frame).or_default()),
        }
    }

    fn frame_of(&mut self, node: u32) -> u32 {
        self.nodes.get(node).map_or(0, |node| node.frame)
    }

    fn next_node(&self) -> u32 {
        self.nodes.next()
    }

    fn next_frame(&self) -> u32 {
        self.frames.next()
    }
}

#[cold]
fn lost(sites: &mut HashMap<u32, SiteMemory>, site: u32) -> &mut SiteMemory {
    sites.entry(site).or_default()
}

impl<'t> Stream<'t> {
    pub fn new(trace: &'t Trace, entries: &'t [Entry]) -> Self {
        Stream {
            trace,
            entries,
            current: None,
            next_seq: 0,
            records: None,
            decoded: 0,
            lost_definitions: 0,
            predictor: Predictor::of(trace.form),
            ordered: None,
            definitions: Definitions::new(),
            details: Details::default(),
            mark_names: HashMap::new(),
            generation: 0,
            tid: 0,
            time: 0,
            ready: Vec::new(),
            taken: 0,
        }
    }

    /// The earliest possible time of this stream's next event, before anything is decoded.
    pub fn first_time(&self) -> Option<u64> {
        Some(self.entries.first()?.contents.first_time)
    }

    /// Of the module map, at the last record that was decoded.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn next_time(&self) -> Option<(u64, u8)> {
        let event = self.ready().first()?;
        Some((event.time, event.rank()))
    }

    /// The events that are decoded, and were not taken.
    pub fn ready(&self) -> &[Event] {
        self.ready.get(self.taken..).unwrap_or_default()
    }

    pub fn take(&mut self, count: usize) {
        self.taken += count;
    }

    /// Decodes until events are ready or the stream ends.
    pub fn advance(&mut self, shared: &mut Shared<'_>) {
        while self.ready().is_empty() {
            if self.records.is_none() && !self.open_next(shared) {
                return;
            }
            self.ready.clear();
            self.taken = 0;
            let Some(mut records) = self.records.take() else {
                return;
            };
            let is_over = match &mut records {
                Chunk::Rows(rows) => self.decode_batch(rows, shared),
                Chunk::Columns(columns) => self.decode_batch(&mut **columns, shared),
                Chunk::Apart(columns) => self.decode_batch(&mut **columns, shared),
            };
            self.records = (!is_over).then_some(records);
        }
    }

    /// Opens the next readable chunk; false if there is none.
    fn open_next(&mut self, shared: &mut Shared<'_>) -> bool {
        self.close(shared);
        while let Some((entry, rest)) = self.entries.split_first() {
            self.entries = rest;
            if entry.contents.seq < self.next_seq {
                continue; // The same chunk again: its live region, after it was sealed.
            }
            match self.load(entry) {
                Ok(records) => {
                    if entry.contents.seq > self.next_seq {
                        let damage = Damage {
                            offset: entry.offset,
                            length: 0,
                            events: None,
                            cause: DamageCause::MissingChunk,
                        };
                        shared.damage.push(damage);
                        if entry.ordered {
                            self.leave_rest(entry.contents.events, shared);
                            return false;
                        }
                    }
                    self.begin(entry);
                    self.records = Some(records);
                    return true;
                }
                Err(cause) => {
                    let again = rest
                        .first()
                        .is_some_and(|e| e.contents.seq == entry.contents.seq);
                    let events = (!again).then_some(u64::from(entry.contents.events));
                    let length = u64::from(entry.stored_bytes);
                    shared.damage.push(Damage {
                        offset: entry.offset,
                        length,
                        events,
                        cause,
                    });
                    if entry.ordered {
                        self.leave_rest(0, shared);
                    } else if !again {
                        self.next_seq = entry.contents.seq.saturating_add(1);
                    }
                }
            }
        }
        false
    }

    /// Counts the events behind a lost part of a trace without times: they name blocks by what came before.
    fn leave_rest(&mut self, mut events: u32, shared: &mut Shared<'_>) {
        let rest = std::mem::take(&mut self.entries);
        for entry in rest {
            events = events.saturating_add(entry.contents.events);
        }
        if let (Some(last), 1..) = (shared.damage.last_mut(), events) {
            let before = last.events.unwrap_or(0);
            last.events = Some(before.saturating_add(events.into()));
        }
    }

    fn load(&self, entry: &Entry) -> Result<Chunk, DamageCause> {
        let mut bytes = vec![0; entry.stored_bytes as usize];
        self.trace
            .file
            .read_exact_at(&mut bytes, entry.payload_offset)
            .map_err(|_| DamageCause::CutChunk)?;
        if !entry.live && crc32fast::hash(&bytes) != entry.contents.check_or_committed {
            return Err(DamageCause::Checksum);
        }
        if entry.compressed {
            let room = Vec::with_capacity(entry.raw_bytes as usize);
            let stored = std::mem::replace(&mut bytes, room);
            zstd_safe::decompress(&mut bytes, &stored).map_err(|_| DamageCause::Decompress)?;
        }
        let chunk = match (entry.columns, entry.ordered) {
            (false, _) => Some(Chunk::Rows(Rows::of(bytes))),
            (true, false) => Columns::of(&bytes).map(|columns| Chunk::Columns(Box::new(columns))),
            (true, true) => Columns::of(&bytes).map(|columns| Chunk::Apart(Box::new(columns))),
        };
        chunk.ok_or(DamageCause::Record)
    }

    fn begin(&mut self, entry: &Entry) {
        let contents = &entry.contents;
        self.decoded = 0;
        self.next_seq = contents.seq.saturating_add(1);
        self.time = self.time.max(contents.first_time);
        // Predictions go on with the next chunk of a trace without times.
        if !entry.ordered || self.ordered.is_none() {
            self.predictor
                .begin_chunk(contents.first_time, contents.first_node.max(FIRST_NODE));
        }
        if entry.ordered {
            self.ordered.get_or_insert_default();
        }
        self.generation = contents.generation;
        self.tid = contents.tid;
        self.mark_names.clear();
        self.current = Some(*entry);
        self.definitions.begin_chunk(contents);
    }

    /// Reports the damage of the chunk that ends here.
    fn close(&mut self, shared: &mut Shared<'_>) {
        let Some(entry) = self.current.take() else {
            return;
        };
        if self.lost_definitions > 0 {
            shared.damage.push(Damage {
                offset: entry.offset,
                length: 0,
                events: Some(self.lost_definitions),
                cause: DamageCause::LostDefinition,
            });
            self.lost_definitions = 0;
        }
    }

    /// Reports the rest of the chunk as damage.
    fn malformed(&mut self, bytes_left: usize, is_ordered: bool, shared: &mut Shared<'_>) {
        if let Some(entry) = &self.current {
            let events = u64::from(entry.contents.events.saturating_sub(self.decoded));
            shared.damage.push(Damage {
                offset: entry.offset,
                length: (bytes_left as u64).min(u64::from(entry.stored_bytes)),
                events: Some(events),
                cause: DamageCause::Record,
            });
        }
        if is_ordered {
            self.leave_rest(0, shared);
        }
    }

    /// Decodes calls up to the next other record, which it decodes only if it is the first: it may define what the
    /// calls of other streams up to its time do not know yet. Returns whether the chunk is over.
    fn decode_batch<R: Records>(&mut self, records: &mut R, shared: &mut Shared<'_>) -> bool {
        let is_ordered = self.current.is_some_and(|entry| entry.ordered);
        while let Some(control) = records.control() {
            let is_call = codec::is_call(control);
            let most = if is_call { BATCH } else { 1 };
            if self.ready.len() >= most {
                return false;
            }
            let (predictor, tables) = (&mut self.predictor, &mut self.definitions);
            let decoded = match &mut self.ordered {
                _ if !is_call => self.other(records, shared),
                Some(ordered) if is_ordered => ordered
                    .decode(predictor, records, tables)
                    .map(|call| self.call(&call)),
                _ => predictor
                    .decode_call(records, tables)
                    .map(|call| self.call(&call)),
            };
            if decoded.is_none() {
                self.malformed(records.bytes_left(), is_ordered, shared);
                return true;
            }
        }
        if records.bytes_left() > 0 {
            self.malformed(records.bytes_left(), is_ordered, shared);
        }
        true
    }

    /// The next record, which is no call; `None` if it is malformed.
    #[inline(never)]
    fn other<R: Records>(&mut self, records: &mut R, shared: &mut Shared<'_>) -> Option<()> {
        let record = self
            .predictor
            .decode(records, &mut self.definitions, &mut self.details)?;
        match record {
            Record::Nodes { parent } => {
                take(shared.room, self.details.links.len() as u64).then_some(())?;
                self.define_nodes(parent, shared.stacks);
            }
            Record::Site { node, call } => self.define_site(node, call),
            Record::Switch { tid } => self.switch(tid),
            Record::Thread { tid, time } => {
                self.switch(tid);
                self.emit(time, Action::ThreadStart);
            }
            Record::ThreadEnd { time } => self.emit(time, Action::ThreadEnd),
            Record::MarkName { number } => {
                let name = shared.marks.add(&self.details.name);
                self.mark_names.insert(number, name);
            }
            Record::Mark { number, time } => {
                self.decoded += 1;
                match self.mark_names.get(&number) {
                    Some(name) => self.emit(time, Action::Mark { name: *name }),
                    None => self.lost_definitions += 1,
                }
            }
            Record::SystemCall(call) => self.system_call(&call),
            Record::Generation { generation, reset } => {
                self.generation = generation;
                if reset {
                    self.definitions = Definitions::new();
                }
            }
            Record::Contents {
                time,
                address,
                fingerprint,
            } => {
                let action = Action::Contents {
                    address,
                    fingerprint,
                };
                self.emit(time, action);
            }
            Record::Sample { time, node, cpu_ns } => self.sample(time, node, cpu_ns),
            Record::Counter { number } => self.define_counter(number, shared.counted),
        }
        Some(())
    }

    fn switch(&mut self, tid: u32) {
        self.tid = tid;
        if let Some(ordered) = &mut self.ordered {
            ordered.switch(&mut self.predictor, tid);
        }
    }

    fn define_site(&mut self, node: u32, call: u8) {
        self.definitions.sites.push(Site {
            stack: StackId(self.definitions.common_node(node)),
            call: Call::from_code(call),
            memory: SiteMemory::default(),
        });
    }

    fn define_counter(&mut self, number: u32, counted: &mut Vec<Counted>) {
        let last = self.definitions.sites.next().wrapping_sub(1);
        let site = self.definitions.sites.get(last);
        if let Some((stack, Some(Call::Alloc(call)))) = site.map(|site| (site.stack, site.call)) {
            counted.push(Counted {
                number,
                call,
                stack,
            });
        }
    }

    fn define_nodes(&mut self, parent: u32, stacks: &mut StackTable) {
        let mut common = self.definitions.common_node(parent);
        for link in &self.details.links {
            let frame = match *link {
                Link::New(address) => {
                    let frame = self.definitions.frames.next();
                    let callees = self.definitions.lost_frames.remove(&frame);
                    self.definitions.frames.push(FrameEntry {
                        address,
                        callees: callees.unwrap_or_default(),
                        common: None,
                    });
                    frame
                }
                Link::Frame(frame) => frame,
            };
            common = match self.definitions.frames.get_mut(frame) {
                Some(entry) => {
                    let known = entry.common.filter(|(of, _)| *of == self.generation);
                    let (_, id) = known.unwrap_or_else(|| {
                        let frame = resolve(self.trace, self.generation, entry.address);
                        (self.generation, stacks.add_frame(frame))
                    });
                    entry.common = Some((self.generation, id));
                    stacks.add(common, id)
                }
                None => StackId::UNKNOWN.0,
            };
            self.definitions.nodes.push(Node { common, frame });
        }
    }

    #[inline(always)]
    fn emit(&mut self, time: u64, action: Action) {
        self.time = self.time.max(time);
        self.ready.push(Event {
            time: self.time,
            thread: self.tid,
            action,
        });
    }

    fn sample(&mut self, time: u64, node: u32, cpu_ns: u64) {
        self.decoded += 1;
        let stack = StackId(self.definitions.common_node(node));
        self.emit(time, Action::Sample { cpu_ns, stack });
    }

    fn system_call(&mut self, record: &SystemCallRecord) {
        self.decoded += 1;
        match self.definitions.sites.get(record.site) {
            Some(Site {
                stack,
                call: Some(Call::System(call)),
                ..
            }) => {
                let action = Action::SystemCall {
                    call: *call,
                    result: record.result,
                    ticks: record.ticks,
                    limit: record.limit,
                    descriptor: record.descriptor,
                    buffer: record.buffer,
                    stack: *stack,
                };
                self.emit(record.time, action);
            }
            _ => self.lost_definitions += 1,
        }
    }

    #[inline(always)]
    fn call(&mut self, call: &CallRecord) {
        self.decoded += 1;
        let site = self.definitions.sites.get(call.site);
        let Some((stack, kind)) = site.and_then(|site| Some((site.stack, site.call?))) else {
            self.lost_definitions += 1;
            return;
        };
        match (call.class, kind) {
            (Class::Alloc, Call::Alloc(kind)) => {
                let (count, alignment) = count_or_alignment(kind, call.extra);
                let (address, size) = (call.address, call.size);
                self.emit(
                    call.time,
                    Action::Alloc {
                        call: kind,
                        address,
                        size,
                        count,
                        alignment,
                        stack,
                    },
                );
            }
            (Class::Free, Call::Free(kind)) => {
                let (address, size, alignment) = (call.address, call.size, call.extra);
                self.emit(
                    call.time,
                    Action::Free {
                        call: kind,
                        address,
                        size,
                        alignment,
                        stack,
                    },
                );
            }
            (Class::Realloc, Call::Alloc(kind)) => {
                self.emit(
                    call.begin,
                    Action::ReallocStart {
                        old: call.old,
                        stack,
                    },
                );
                let (old, address, size, count) = (call.old, call.address, call.size, call.extra);
                self.emit(
                    call.time,
                    Action::ReallocEnd {
                        call: kind,
                        old,
                        address,
                        size,
                        count,
                        stack,
                    },
                );
            }
            (Class::Copy, Call::Copy(kind)) => {
                let action = Action::Copy {
                    call: kind,
                    destination: call.address,
                    source: call.old,
                    bytes: call.size,
                    rate: call.extra,
                    stack,
                };
                self.emit(call.time, action);
            }
            _ => self.lost_definitions += 1,
        }
    }
}

/// Subtracts this many from the rest, if there are that many.
fn take(room: &mut u64, count: u64) -> bool {
    let left = room.checked_sub(count);
    *room = left.unwrap_or(0);
    left.is_some()
}

fn count_or_alignment(call: AllocCall, extra: u64) -> (u64, u64) {
    match call {
        AllocCall::Calloc => (extra, 0),
        _ => (0, extra),
    }
}

/// The frame of a packed address, in the module map of that time.
fn resolve(trace: &Trace, generation: u32, packed: u64) -> Frame {
    let mut frame = Frame {
        address: packed >> 1,
        interrupted: packed & 1 != 0,
        module: None,
    };
    frame.module = trace.index.module_at(frame.lookup_address(), generation);
    frame
}
