//! One stream of a trace: its chunks one after the other, decoded record by record.
//!
//! Invariants: times never go back; a stream holds at most one decompressed chunk; the tables grow
//! by what the chunks define, so the file's size bounds them.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;

use super::Trace;
use super::events::{Action, Event};
use super::index::Entry;
use super::numbered::Numbered;
use super::stacks::{Frame, StackId, StackTable};
use crate::call::{AllocCall, Call};
use crate::codec::{
    Addresses, CallRecord, Class, FIRST_NODE, FIRST_SITE, Predictor, ROOT_COMPLETE, ROOT_TRUNCATED,
    Record, SiteMemories, SiteMemory,
};
use crate::error::{Damage, DamageCause};

/// What a stream shares with the others while it decodes.
pub struct Shared<'s> {
    pub stacks: &'s mut StackTable,
    pub damage: &'s mut Vec<Damage>,
}

pub struct Stream<'t> {
    trace: &'t Trace,
    /// What is left of the stream, in order.
    entries: &'t [Entry],
    current: Option<Entry>,
    next_seq: u32,
    bytes: Vec<u8>,
    pos: usize,
    /// Calls decoded of the current chunk.
    decoded: u32,
    lost_definitions: u64,
    predictor: Predictor,
    sites: Sites,
    /// The number that each of the stream's nodes has in the common table.
    nodes: Numbered<u32>,
    generation: u32,
    tid: u32,

    time: u64,
    ready: VecDeque<Event>,
}

/// A defined site: who called what, and what the chunk remembers of it.
struct Site {
    stack: StackId,
    call: Option<Call>,
    memory: SiteMemory,
}

struct Sites(Numbered<Site>);

impl Sites {
    fn new() -> Self {
        Sites(Numbered::starting_at(FIRST_SITE))
    }
}

impl SiteMemories for Sites {
    fn memory(&mut self, site: u32) -> Option<&mut SiteMemory> {
        self.0.get_mut(site).map(|site| &mut site.memory)
    }
}

impl<'t> Stream<'t> {
    pub fn new(trace: &'t Trace, entries: &'t [Entry]) -> Self {
        Stream {
            trace,
            entries,
            current: None,
            next_seq: 0,
            bytes: Vec::new(),
            pos: 0,
            decoded: 0,
            lost_definitions: 0,
            predictor: Predictor::new(),
            sites: Sites::new(),
            nodes: Numbered::starting_at(FIRST_NODE),
            generation: 0,
            tid: 0,

            time: 0,
            ready: VecDeque::new(),
        }
    }

    /// The earliest time at which this stream can have something, while it has decoded nothing.
    pub fn first_time(&self) -> Option<u64> {
        Some(self.entries.first()?.contents.first_time)
    }

    pub fn next_time(&self) -> Option<(u64, u8)> {
        self.ready.front().map(|event| (event.time, event.rank()))
    }

    pub fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Decodes until an event is ready; false at the end of the stream.
    pub fn advance(&mut self, shared: &mut Shared<'_>) -> bool {
        while self.ready.is_empty() {
            if self.pos >= self.bytes.len() && !self.open_next(shared) {
                return false;
            }
            self.decode_one(shared);
        }
        true
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
                Ok(()) => {
                    if entry.contents.seq > self.next_seq {
                        let damage = Damage {
                            offset: entry.offset,
                            length: 0,
                            events: None,
                            cause: DamageCause::MissingChunk,
                        };
                        shared.damage.push(damage);
                    }
                    self.begin(entry);
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
                    if !again {
                        self.next_seq = entry.contents.seq.saturating_add(1);
                    }
                }
            }
        }
        self.bytes = Vec::new();
        false
    }

    fn load(&mut self, entry: &Entry) -> Result<(), DamageCause> {
        let mut stored = vec![0; entry.stored_bytes as usize];
        self.trace
            .file
            .read_exact_at(&mut stored, entry.payload_offset)
            .map_err(|_| DamageCause::CutChunk)?;
        if !entry.live && crc32fast::hash(&stored) != entry.contents.check_or_committed {
            return Err(DamageCause::Checksum);
        }
        if entry.compressed {
            self.bytes.clear();
            self.bytes.resize(entry.raw_bytes as usize, 0);
            let len = zstd_safe::decompress(self.bytes.as_mut_slice(), &stored)
                .map_err(|_| DamageCause::Decompress)?;
            self.bytes.truncate(len);
        } else {
            self.bytes = stored;
        }
        Ok(())
    }

    fn begin(&mut self, entry: &Entry) {
        let contents = &entry.contents;
        self.pos = 0;
        self.decoded = 0;
        self.next_seq = contents.seq.saturating_add(1);
        self.time = self.time.max(contents.first_time);
        self.predictor.begin_chunk(contents.first_time);
        self.generation = contents.generation;
        self.tid = contents.tid;
        self.current = Some(*entry);
        self.nodes.continue_at(contents.first_node.max(FIRST_NODE));
        self.sites
            .0
            .continue_at(contents.first_site.max(FIRST_SITE));
    }

    /// Says what was wrong with the chunk that ends here.
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

    fn decode_one(&mut self, shared: &mut Shared<'_>) {
        let record = self
            .predictor
            .decode(&self.bytes, &mut self.pos, &mut self.sites);
        let Some(record) = record else {
            if let Some(entry) = &self.current {
                let left = (self.bytes.len() - self.pos) as u64;
                let events = u64::from(entry.contents.events.saturating_sub(self.decoded));
                shared.damage.push(Damage {
                    offset: entry.offset,
                    length: left.min(u64::from(entry.stored_bytes)),
                    events: Some(events),
                    cause: DamageCause::Record,
                });
            }
            self.pos = self.bytes.len();
            return;
        };
        match record {
            Record::Call(call) => self.call(&call),
            Record::Nodes { parent, addresses } => {
                define_nodes(
                    self.trace,
                    self.generation,
                    &mut self.nodes,
                    shared.stacks,
                    parent,
                    &addresses,
                );
            }
            Record::Site { node, call } => self.define_site(node, call),
            Record::Thread { tid, time } => {
                self.tid = tid;

                self.emit(time, Action::ThreadStart);
            }
            Record::ThreadEnd { time } => self.emit(time, Action::ThreadEnd),
            Record::Generation { generation, reset } => {
                self.generation = generation;
                if reset {
                    self.nodes = Numbered::starting_at(FIRST_NODE);
                    self.sites = Sites::new();
                }
            }
            Record::Lost { reason: _, calls } => self.emit(self.time, Action::Lost { calls }),
        }
    }

    fn define_site(&mut self, node: u32, call: u8) {
        self.sites.0.push(Site {
            stack: StackId(common_node(&self.nodes, node)),
            call: Call::from_code(call),
            memory: SiteMemory::default(),
        });
    }

    fn emit(&mut self, time: u64, action: Action) {
        self.time = self.time.max(time);
        self.ready.push_back(Event {
            time: self.time,
            thread: self.tid,
            action,
        });
    }

    fn call(&mut self, call: &CallRecord) {
        self.decoded += 1;
        let site = self.sites.0.get(call.site);
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
            _ => self.lost_definitions += 1,
        }
    }
}

fn count_or_alignment(call: AllocCall, extra: u64) -> (u64, u64) {
    match call {
        AllocCall::Calloc => (extra, 0),
        _ => (0, extra),
    }
}

fn common_node(nodes: &Numbered<u32>, node: u32) -> u32 {
    match node {
        ROOT_COMPLETE | ROOT_TRUNCATED => node,
        _ => nodes.get(node).copied().unwrap_or(StackId::UNKNOWN.0),
    }
}

fn define_nodes(
    trace: &Trace,
    generation: u32,
    nodes: &mut Numbered<u32>,
    stacks: &mut StackTable,
    parent: u32,
    addresses: &Addresses<'_>,
) {
    let mut parent = common_node(nodes, parent);
    for packed in addresses.iter() {
        let address = packed >> 1;
        let interrupted = packed & 1 != 0;
        let mut frame = Frame {
            address,
            interrupted,
            module: None,
        };
        let lookup = frame.lookup_address();
        // The newest first: an address is mostly asked for soon after its module appeared.
        let modules = trace.modules().iter().rev();
        frame.module = modules
            .into_iter()
            .find(|m| m.covers(lookup, generation))
            .map(|m| m.id);
        parent = stacks.add(parent, frame);
        nodes.push(parent);
    }
}
