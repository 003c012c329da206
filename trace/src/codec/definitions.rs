//! The records other than calls of the malloc family: definitions of frames, nodes and sites, threads,
//! changes of the module map, the program's marks, system calls, contents of blocks, and samples of processor time.
//!
//! A chain of frames under a node is written link by link. A frame's last callee is likely to be called from
//! it again, so most links take a byte.

use super::shape::{Field, Fields};
use super::{
    ADDRESS_BITS, CLASS_SHIFT, CLASS_SPECIAL, Callees, FIRST_NODE, Link, NO_SITE, Predictor,
    Tables, pack_difference, unpack_difference,
};
use crate::fingerprint::Fingerprint;
use crate::varint::{MAX_BYTES, Out, unzigzag, zigzag};

// The control byte has class 3 in bits 5 and 6, and one of these in bits 0 to 4.
pub(super) const NODES: u8 = 0;
pub(super) const SITE: u8 = 1;
pub(super) const THREAD: u8 = 2;
pub(super) const THREAD_END: u8 = 3;
pub(super) const GENERATION: u8 = 4;
pub(super) const MARK_NAME: u8 = 5;
pub(super) const MARK: u8 = 6;
/// A system call as versions before 2.3 have it.
pub(super) const SYSTEM_CALL_2_2: u8 = 7;
pub(super) const COUNTER: u8 = 8;
pub(super) const CONTENTS: u8 = 9;
pub(super) const SYSTEM_CALL: u8 = 10;
pub(super) const SAMPLE: u8 = 11;
pub(super) const SWITCH: u8 = 12;

/// Varints of a system call.
pub(super) const SYSTEM_CALL_FIELDS: usize = 7;

/// Flags and hash.
pub(super) const FINGERPRINT_BYTES: usize = 1 + 8;

// A link: one of these, or a frame's number and `LINK_FRAME`.
const LINK_LAST: u64 = 0;
const LINK_BEFORE: u64 = 1;
pub(super) const LINK_NEW: u64 = 2;
const LINK_FRAME: u64 = 2;

/// A record that is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A chain of frames under `parent`, outermost first; each becomes a node. `decode` stores the links in its
    /// argument.
    Nodes { parent: u32 },
    /// The next site: this call from this stack.
    Site { node: u32, call: u8 },
    /// The following records are this thread's.
    Thread { tid: u32, time: u64 },
    /// The thread is about to end; late destructors may still call.
    ThreadEnd { time: u64 },
    /// The following addresses belong to this generation of the module map. With `reset`, frames, nodes and
    /// sites are numbered anew.
    Generation { generation: u32, reset: bool },
    /// The name of a number, up to the chunk's end. `decode` stores the name in its argument.
    MarkName { number: u32 },
    /// The program's mark.
    Mark { number: u32, time: u64 },
    /// The site's call has returned; its result, or the negated error number.
    SystemCall(SystemCallRecord),
    /// The site defined last is counted under this number.
    Counter { number: u32 },
    /// The contents of the block at an address.
    Contents {
        time: u64,
        address: u64,
        fingerprint: Fingerprint,
    },
    /// The thread was at this stack, which stands for so many nanoseconds of its processor time.
    Sample { time: u64, node: u32, cpu_ns: u64 },
    /// The following records are this thread's, which has begun before.
    Switch { tid: u32 },
}

/// What a record has that is of no fixed length.
#[derive(Debug, Default)]
pub struct Details {
    pub links: Vec<Link>,
    pub name: Vec<u8>,
}

impl Details {
    fn clear(&mut self) {
        self.links.clear();
        self.name.clear();
    }
}

/// A system call that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCallRecord {
    pub site: u32,
    /// The call's result, or the negated error number.
    pub result: i64,
    /// When it returned.
    pub time: u64,
    /// How many ticks it took; not rounded. 0 before version 2.3.
    pub ticks: u64,
    /// The bytes, or descriptors, that it may give or take; of a call that names a file a hash of the name. 0: it
    /// has no such limit, or it is not known.
    pub limit: u64,
    /// The argument that is a descriptor, or the one that was opened; else -1.
    pub descriptor: i32,
    /// Where bytes go or come from, of several places the first; 0: it moves none, or it is not known.
    pub buffer: u64,
}

/// The longest name of a mark. The recorder truncates longer ones; in a trace they are malformed.
pub const MAX_MARK_NAME: usize = 255;

/// The most bytes of a mark's name as a record.
pub const MAX_MARK_NAME_BYTES: usize = 1 + 2 * MAX_BYTES + MAX_MARK_NAME;

/// The most bytes of a record that is neither a call nor a chain of frames nor a name.
pub const MAX_DEFINITION_BYTES: usize = 1 + SYSTEM_CALL_FIELDS * MAX_BYTES;

/// The most bytes that a chain of `frames` frames takes.
pub const fn max_nodes_bytes(frames: usize) -> usize {
    1 + (frames + 1) * 2 * MAX_BYTES
}

fn control(kind: u8) -> u8 {
    (CLASS_SPECIAL << CLASS_SHIFT) | kind
}

impl Predictor {
    fn callees<T: Tables + ?Sized>(&self, tables: &mut T, frame: u32) -> Callees {
        match tables.callees(frame) {
            Some(callees) if callees.epoch == self.epoch => *callees,
            _ => Callees::default(),
        }
    }

    fn learn_link<T: Tables + ?Sized>(&self, tables: &mut T, from: u32, to: u32) {
        let mut callees = self.callees(tables, from);
        if callees.last != to {
            callees = Callees {
                epoch: self.epoch,
                last: to,
                before: callees.last,
            };
        }
        if let Some(place) = tables.callees(from) {
            *place = Callees {
                epoch: self.epoch,
                ..callees
            };
        }
    }

    /// The frame that the first link starts from. A node of an earlier chunk counts as a root, so that the
    /// prediction is the same if a reader has lost that chunk.
    fn frame_above<T: Tables + ?Sized>(&self, tables: &mut T, parent: u32) -> u32 {
        if parent < FIRST_NODE || parent < self.first_node {
            0
        } else {
            tables.frame_of(parent)
        }
    }

    /// Writes a chain of frames under a node; the caller adds the nodes to the tables afterwards. New frames are
    /// numbered from `first_new` on. REQUIRES: room for `max_nodes_bytes`.
    pub fn encode_nodes<T: Tables + ?Sized>(
        &mut self,
        out: &mut [u8],
        tables: &mut T,
        parent: u32,
        links: &[Link],
        first_new: u32,
    ) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(NODES));
        sink.varint(u64::from(tables.next_node().checked_sub(parent)?));
        sink.varint(links.len() as u64);
        let mut above = self.frame_above(tables, parent);
        let mut next_frame = first_new;
        for link in links {
            let callees = self.callees(tables, above);
            let frame = match *link {
                Link::New(packed) => {
                    sink.varint(LINK_NEW);
                    sink.varint(zigzag(packed.wrapping_sub(self.frame_address) as i64));
                    self.frame_address = packed;
                    next_frame += 1;
                    next_frame - 1
                }
                Link::Frame(frame) => {
                    let code = match frame {
                        _ if frame == callees.last => LINK_LAST,
                        _ if frame == callees.before => LINK_BEFORE,
                        _ => u64::from(frame) + LINK_FRAME,
                    };
                    sink.varint(code);
                    frame
                }
            };
            self.learn_link(tables, above, frame);
            above = frame;
        }
        sink.finish()
    }

    fn decode_nodes<F: Fields, T: Tables + ?Sized>(
        &mut self,
        fields: &mut F,
        tables: &mut T,
        links: &mut Vec<Link>,
    ) -> Option<u32> {
        let parent = tables
            .next_node()
            .checked_sub(fields.varint_u32(Field::Definition)?)?;
        let count = fields.varint(Field::Definition)?;
        let mut above = self.frame_above(tables, parent);
        let mut next_frame = tables.next_frame();
        for _ in 0..count {
            let callees = self.callees(tables, above);
            let frame = match fields.varint(Field::Definition)? {
                LINK_NEW => {
                    let difference = unzigzag(fields.varint(Field::Definition)?) as u64;
                    self.frame_address = self.frame_address.wrapping_add(difference);
                    links.push(Link::New(self.frame_address));
                    let frame = next_frame;
                    next_frame = frame.checked_add(1)?;
                    frame
                }
                code => {
                    let frame = match code {
                        LINK_LAST => callees.last,
                        LINK_BEFORE => callees.before,
                        _ => u32::try_from(code - LINK_FRAME).ok()?,
                    };
                    links.push(Link::Frame(frame));
                    frame
                }
            };
            self.learn_link(tables, above, frame);
            above = frame;
        }
        Some(parent)
    }

    /// Writes a site's definition.
    pub fn encode_site(
        &mut self,
        out: &mut [u8],
        next_node: u32,
        node: u32,
        call: u8,
    ) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(SITE));
        sink.varint(u64::from(next_node.checked_sub(node)?));
        sink.byte(call);
        sink.finish()
    }

    pub fn encode_thread(&mut self, out: &mut [u8], tid: u32, time: u64) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(THREAD));
        sink.varint(u64::from(tid));
        sink.varint(self.advance(time));
        sink.finish()
    }

    pub fn encode_thread_end(&mut self, out: &mut [u8], time: u64) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(THREAD_END));
        sink.varint(self.advance(time));
        sink.finish()
    }

    pub fn encode_generation(
        &mut self,
        out: &mut [u8],
        generation: u32,
        reset: bool,
    ) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(GENERATION));
        sink.varint(u64::from(generation));
        sink.byte(u8::from(reset));
        if reset {
            self.forget_numbers();
        }
        sink.finish()
    }

    /// Writes the name of a number, which is valid until the chunk ends. REQUIRES: room for
    /// `MAX_MARK_NAME_BYTES`.
    pub fn encode_mark_name(&mut self, out: &mut [u8], number: u32, name: &[u8]) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(MARK_NAME));
        sink.varint(u64::from(number));
        sink.blob(name);
        sink.finish()
    }

    pub fn encode_mark(&mut self, out: &mut [u8], number: u32, time: u64) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(MARK));
        sink.varint(self.advance(time));
        sink.varint(u64::from(number));
        sink.finish()
    }

    pub fn encode_counter(&mut self, out: &mut [u8], number: u32) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(COUNTER));
        sink.varint(u64::from(number));
        sink.finish()
    }

    pub fn encode_system_call(&mut self, out: &mut [u8], call: &SystemCallRecord) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(SYSTEM_CALL));
        sink.varint(self.advance(call.time));
        sink.varint(u64::from(call.site));
        sink.varint(zigzag(call.result));
        sink.varint(call.ticks);
        sink.varint(call.limit);
        sink.varint(zigzag(i64::from(call.descriptor)));
        sink.varint(pack_difference(call.buffer & ADDRESS_BITS, self.address));
        sink.finish()
    }

    pub fn encode_contents(
        &mut self,
        out: &mut [u8],
        address: u64,
        fingerprint: Fingerprint,
        time: u64,
    ) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(CONTENTS));
        sink.varint(self.advance(time));
        sink.varint(pack_difference(address & ADDRESS_BITS, self.address));
        sink.byte(fingerprint.flags);
        for byte in fingerprint.hash.to_le_bytes() {
            sink.byte(byte);
        }
        sink.finish()
    }

    pub fn encode_sample(
        &mut self,
        out: &mut [u8],
        next_node: u32,
        node: u32,
        cpu_ns: u64,
        time: u64,
    ) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(SAMPLE));
        sink.varint(self.advance(time));
        sink.varint(u64::from(next_node.checked_sub(node)?));
        sink.varint(cpu_ns);
        sink.finish()
    }

    pub fn encode_switch(&mut self, out: &mut [u8], tid: u32) -> Option<usize> {
        let mut sink = Out::new(out);
        sink.byte(control(SWITCH));
        sink.varint(u64::from(tid));
        sink.finish()
    }

    fn advance(&mut self, time: u64) -> u64 {
        let later = time.max(self.time);
        let difference = later - self.time;
        self.time = later;
        difference
    }

    /// Numbers start again, so predictions by number are reset.
    fn forget_numbers(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.previous_site = NO_SITE;
        self.first_node = FIRST_NODE;
    }

    /// The next record, which is no call, or `None` if it is malformed or truncated. Stores a part of it in
    /// `details`, which it clears first.
    pub(crate) fn decode<F: Fields, T: Tables + ?Sized>(
        &mut self,
        fields: &mut F,
        tables: &mut T,
        details: &mut Details,
    ) -> Option<Record> {
        details.clear();
        self.next_site = None;
        let control = fields.byte(Field::Control)?;
        let kind = (control >> CLASS_SHIFT == CLASS_SPECIAL).then_some(control & 0x1f)?;
        Some(match kind {
            NODES => Record::Nodes {
                parent: self.decode_nodes(fields, tables, &mut details.links)?,
            },
            SITE => {
                let node = tables
                    .next_node()
                    .checked_sub(fields.varint_u32(Field::Definition)?)?;
                Record::Site {
                    node,
                    call: fields.byte(Field::Definition)?,
                }
            }
            THREAD => {
                let tid = fields.varint_u32(Field::Definition)?;
                Record::Thread {
                    tid,
                    time: self.later(fields.varint(Field::Definition)?)?,
                }
            }
            THREAD_END => Record::ThreadEnd {
                time: self.later(fields.varint(Field::Definition)?)?,
            },
            GENERATION => {
                let generation = fields.varint_u32(Field::Definition)?;
                let reset = fields.byte(Field::Definition)? != 0;
                if reset {
                    self.forget_numbers();
                }
                Record::Generation { generation, reset }
            }
            MARK_NAME => decode_mark_name(fields, &mut details.name)?,
            MARK => {
                let time = self.later(fields.varint(Field::Definition)?)?;
                let number = fields.varint_u32(Field::Definition)?;
                Record::Mark { number, time }
            }
            SYSTEM_CALL_2_2 => Record::SystemCall(self.decode_system_call_2_2(fields)?),
            SYSTEM_CALL => {
                let call = self.decode_system_call_2_2(fields)?;
                Record::SystemCall(SystemCallRecord {
                    ticks: fields.varint(Field::Definition)?,
                    limit: fields.varint(Field::Definition)?,
                    descriptor: i32::try_from(unzigzag(fields.varint(Field::Definition)?)).ok()?,
                    buffer: unpack_difference(fields.varint(Field::Definition)?, self.address)
                        & ADDRESS_BITS,
                    ..call
                })
            }
            COUNTER => Record::Counter {
                number: fields.varint_u32(Field::Definition)?,
            },
            CONTENTS => self.decode_contents(fields)?,
            SAMPLE => Record::Sample {
                time: self.later(fields.varint(Field::Definition)?)?,
                node: tables
                    .next_node()
                    .checked_sub(fields.varint_u32(Field::Definition)?)?,
                cpu_ns: fields.varint(Field::Definition)?,
            },
            SWITCH => Record::Switch {
                tid: fields.varint_u32(Field::Definition)?,
            },
            _ => return None,
        })
    }

    /// The fields that the record has in all versions.
    fn decode_system_call_2_2(&mut self, fields: &mut impl Fields) -> Option<SystemCallRecord> {
        let time = self.later(fields.varint(Field::Definition)?)?;
        Some(SystemCallRecord {
            site: fields.varint_u32(Field::Definition)?,
            result: unzigzag(fields.varint(Field::Definition)?),
            time,
            ticks: 0,
            limit: 0,
            descriptor: -1,
            buffer: 0,
        })
    }

    fn decode_contents(&mut self, fields: &mut impl Fields) -> Option<Record> {
        let time = self.later(fields.varint(Field::Definition)?)?;
        let address =
            unpack_difference(fields.varint(Field::Definition)?, self.address) & ADDRESS_BITS;
        let flags = fields.byte(Field::Definition)?;
        let mut hash = [0; FINGERPRINT_BYTES - 1];
        for byte in &mut hash {
            *byte = fields.byte(Field::Definition)?;
        }
        Some(Record::Contents {
            time,
            address,
            fingerprint: Fingerprint {
                hash: u64::from_le_bytes(hash),
                flags,
            },
        })
    }

    fn later(&mut self, difference: u64) -> Option<u64> {
        self.time = self.time.checked_add(difference)?;
        Some(self.time)
    }
}

fn decode_mark_name(fields: &mut impl Fields, name: &mut Vec<u8>) -> Option<Record> {
    let number = fields.varint_u32(Field::Definition)?;
    let bytes = fields.varint(Field::Definition)?;
    if bytes > MAX_MARK_NAME as u64 {
        return None;
    }
    for _ in 0..bytes {
        name.push(fields.byte(Field::Definition)?);
    }
    Some(Record::MarkName { number })
}
