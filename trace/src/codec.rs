//! The records of an event chunk, both ways: what the recorder writes per call, what a reader gets.
//!
//! A record begins with a control byte. A call's record is kept short by prediction from what the
//! same chunk held before: the site that followed this one last time, the size and the address that
//! a site had last time, and a small table of recent addresses. Encoder and decoder run the same
//! `Predictor`, so that they agree on every prediction.
//!
//! Thread safety: a `Predictor` belongs to one stream, and a stream to one thread at a time.
//!
//! Invariants: a prediction never reaches over a chunk's beginning (`SiteMemory::epoch` equals the
//! predictor's, or the memory counts as empty); node n's parent is < n; numbers of nodes and sites
//! are given in order of definition, per stream.

use crate::varint::{Input, MAX_BYTES, unzigzag, zigzag};

/// No call record is longer.
pub const MAX_CALL_BYTES: usize = 80;

/// Roots of the stack tree. A stack is a path from a node up to one of these.
pub const ROOT_COMPLETE: u32 = 0;
/// The walk ended before the thread's first function.
pub const ROOT_TRUNCATED: u32 = 1;
/// The first number for a node that stands for a frame.
pub const FIRST_NODE: u32 = 2;

/// Site 0 is never defined: a call whose site could not be interned.
pub const NO_SITE: u32 = 0;
pub const FIRST_SITE: u32 = 1;

const RECENT: usize = 256;

/// What of an address is kept: more than any processor translates, and a difference of two still
/// leaves room for its sign and a tag.
const ADDRESS_BITS: u64 = (1 << 61) - 1;

// The control byte of a call.
const ADDRESS_MASK: u8 = 0b0000_0011;
const ADDRESS_DELTA: u8 = 0;
const ADDRESS_RECENT: u8 = 1;
const ADDRESS_SITE: u8 = 2;
const ADDRESS_SITE_DELTA: u8 = 3;
const SITE_PREDICTED: u8 = 1 << 2;
const SIZE_SAME: u8 = 1 << 3;
const EXTRA: u8 = 1 << 4;
const CLASS_SHIFT: u32 = 5;
const CLASS_SPECIAL: u8 = 3;

// The control byte of the others: class 3 in bits 5 and 6, this in bits 0 to 4.
const SPECIAL_NODES: u8 = 0;
const SPECIAL_SITE: u8 = 1;
const SPECIAL_THREAD: u8 = 2;
const SPECIAL_THREAD_END: u8 = 3;
const SPECIAL_GENERATION: u8 = 4;
const SPECIAL_LOST: u8 = 5;

/// What a call does to the set of live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Alloc = 0,
    Free = 1,
    Realloc = 2,
}

/// A call, as it stands in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    pub class: Class,
    pub site: u32,
    /// Of an allocation: after it. Of a free: before it. Of a realloc: after it.
    pub time: u64,
    /// The block made or ended; 0 if none was.
    pub address: u64,
    /// Bytes asked for; of a free, the size that the caller stated, or 0.
    pub size: u64,
    /// Number of elements (calloc, reallocarray) or alignment; 0 if the call has neither.
    pub extra: u64,
    /// Realloc only: when it began, and the block it was given.
    pub begin: u64,
    pub old: u64,
}

/// What the chunk remembers of a site.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteMemory {
    epoch: u32,
    next: u32,
    size: u64,
    address: u64,
}

/// The state that encoder and decoder share.
pub struct Predictor {
    epoch: u32,
    previous_site: u32,
    time: u64,
    address: u64,
    recent: [u64; RECENT],
}

/// Where the site memories are: the recorder's array, the reader's vector.
pub trait SiteMemories {
    /// `None` if the site was never defined.
    fn memory(&mut self, site: u32) -> Option<&mut SiteMemory>;
}

impl SiteMemories for [SiteMemory] {
    #[inline]
    fn memory(&mut self, site: u32) -> Option<&mut SiteMemory> {
        self.get_mut(site as usize)
    }
}

#[inline]
fn recent_slot(address: u64) -> u8 {
    ((address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A difference of addresses: mostly a multiple of eight, so that case has the shorter form.
#[inline]
fn pack_difference(to: u64, from: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    if difference & 7 == 0 {
        zigzag(difference >> 3) << 1
    } else {
        // No bit is lost: both are within ADDRESS_BITS.
        (zigzag(difference) << 1) | 1
    }
}

#[inline]
fn unpack_difference(packed: u64, from: u64) -> u64 {
    let difference = if packed & 1 == 0 {
        unzigzag(packed >> 1).wrapping_shl(3)
    } else {
        unzigzag(packed >> 1)
    };
    from.wrapping_add(difference as u64)
}

/// A write position in a fixed array; an index out of range is impossible by the mask.
struct Pen<'a> {
    out: &'a mut [u8; 128],
    len: usize,
}

impl Pen<'_> {
    #[inline]
    fn byte(&mut self, value: u8) {
        self.out[self.len & 127] = value;
        self.len += 1;
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }
}

impl Predictor {
    /// `epoch` must be new for every chunk of the stream, and not 0.
    pub const fn new() -> Self {
        Predictor {
            epoch: 0,
            previous_site: NO_SITE,
            time: 0,
            address: 0,
            recent: [0; RECENT],
        }
    }

    /// Forgets everything but the numbers of definitions. `time` is the chunk's first time.
    pub fn begin_chunk(&mut self, time: u64) {
        self.epoch = self.epoch.wrapping_add(1);
        self.previous_site = NO_SITE;
        self.time = time;
        self.address = 0;
        self.recent = [0; RECENT];
    }

    pub fn time(&self) -> u64 {
        self.time
    }

    #[inline]
    fn recall(&self, memory: &SiteMemory) -> SiteMemory {
        if memory.epoch == self.epoch {
            *memory
        } else {
            SiteMemory::default()
        }
    }

    fn predicted_site<M: SiteMemories + ?Sized>(&self, memories: &mut M) -> u32 {
        match memories.memory(self.previous_site) {
            Some(memory) if memory.epoch == self.epoch => memory.next,
            _ => NO_SITE,
        }
    }

    /// What both sides do after a call.
    #[inline]
    fn learn<M: SiteMemories + ?Sized>(&mut self, memories: &mut M, call: &CallRecord) {
        let epoch = self.epoch;
        if let Some(previous) = memories.memory(self.previous_site) {
            if previous.epoch != epoch {
                *previous = SiteMemory {
                    epoch,
                    ..SiteMemory::default()
                };
            }
            previous.next = call.site;
        }
        if let Some(memory) = memories.memory(call.site) {
            if memory.epoch != epoch {
                *memory = SiteMemory {
                    epoch,
                    ..SiteMemory::default()
                };
            }
            memory.size = call.size;
            memory.address = call.address;
        }
        self.previous_site = call.site;
        self.time = call.time;
        if call.address != 0 {
            self.address = call.address;
            self.recent[recent_slot(call.address) as usize] = call.address;
        }
    }

    /// Writes a call and says how many bytes it took, at most `MAX_CALL_BYTES`. A time before the
    /// last record's counts as that one's.
    #[inline]
    pub fn encode<M: SiteMemories + ?Sized>(
        &mut self,
        out: &mut [u8; 128],
        memories: &mut M,
        call: &CallRecord,
    ) -> usize {
        let mut call = *call;
        call.time = call.time.max(self.time);
        call.address &= ADDRESS_BITS;
        call.old &= ADDRESS_BITS;
        let predicted = self.predicted_site(memories);
        let site = memories
            .memory(call.site)
            .map_or(SiteMemory::default(), |m| self.recall(m));
        let slot = recent_slot(call.address);
        let packed = pack_difference(call.address, self.address);
        let site_packed = pack_difference(call.address, site.address);

        let mut control = (call.class as u8) << CLASS_SHIFT;
        if call.site == predicted {
            control |= SITE_PREDICTED;
        }
        if call.size == site.size {
            control |= SIZE_SAME;
        }
        if call.extra != 0 {
            control |= EXTRA;
        }
        control |= if call.address == site.address {
            ADDRESS_SITE
        } else if self.recent[slot as usize] == call.address {
            ADDRESS_RECENT
        } else if site_packed < packed {
            ADDRESS_SITE_DELTA
        } else {
            ADDRESS_DELTA
        };

        let mut pen = Pen { out, len: 0 };
        pen.byte(control);
        pen.varint(call.time - self.time);
        if control & SITE_PREDICTED == 0 {
            pen.varint(u64::from(call.site));
        }
        if control & SIZE_SAME == 0 {
            pen.varint(call.size);
        }
        match control & ADDRESS_MASK {
            ADDRESS_DELTA => pen.varint(packed),
            ADDRESS_RECENT => pen.byte(slot),
            ADDRESS_SITE_DELTA => pen.varint(site_packed),
            _ => {}
        }
        if control & EXTRA != 0 {
            pen.varint(call.extra);
        }
        if call.class == Class::Realloc {
            pen.varint(call.time.saturating_sub(call.begin));
            self.encode_old(&mut pen, &call);
        }
        let len = pen.len;
        self.learn(memories, &call);
        len
    }

    fn encode_old(&self, pen: &mut Pen<'_>, call: &CallRecord) {
        if call.old == 0 {
            pen.varint(0);
        } else if call.old == call.address {
            pen.varint(1);
        } else if self.recent[recent_slot(call.old) as usize] == call.old {
            pen.varint(2);
            pen.byte(recent_slot(call.old));
        } else {
            // Splitting off a byte keeps the tag out of the number, which may need all its bits.
            pen.varint(3);
            pen.varint(pack_difference(call.old, call.address));
        }
    }

    fn decode_call<M: SiteMemories + ?Sized>(
        &mut self,
        control: u8,
        input: &mut Input<'_>,
        memories: &mut M,
    ) -> Option<CallRecord> {
        let class = match control >> CLASS_SHIFT {
            0 => Class::Alloc,
            1 => Class::Free,
            2 => Class::Realloc,
            _ => return None,
        };
        let time = self.time.checked_add(input.varint()?)?;
        let site = if control & SITE_PREDICTED != 0 {
            self.predicted_site(memories)
        } else {
            input.varint_u32()?
        };
        let memory = memories
            .memory(site)
            .map_or(SiteMemory::default(), |m| self.recall(m));
        let size = if control & SIZE_SAME != 0 {
            memory.size
        } else {
            input.varint()?
        };
        let address = match control & ADDRESS_MASK {
            ADDRESS_DELTA => unpack_difference(input.varint()?, self.address),
            ADDRESS_RECENT => self.recent[usize::from(input.byte()?)],
            ADDRESS_SITE => memory.address,
            _ => unpack_difference(input.varint()?, memory.address),
        } & ADDRESS_BITS;
        let extra = if control & EXTRA != 0 {
            input.varint()?
        } else {
            0
        };
        let mut call = CallRecord {
            class,
            site,
            time,
            address,
            size,
            extra,
            begin: 0,
            old: 0,
        };
        if class == Class::Realloc {
            call.begin = time.checked_sub(input.varint()?)?;
            call.old = match input.varint()? {
                0 => 0,
                1 => address,
                2 => self.recent[usize::from(input.byte()?)],
                3 => unpack_difference(input.varint()?, address) & ADDRESS_BITS,
                _ => return None,
            };
        }
        self.learn(memories, &call);
        Some(call)
    }
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new()
    }
}

/// A record that is not a call, or a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Call(CallRecord),
    /// A chain of frames under `parent`, outermost first; each becomes a node.
    Nodes {
        parent: u32,
        addresses: Addresses<'a>,
    },
    /// The next site: this call, made from this stack.
    Site {
        node: u32,
        call: u8,
    },
    /// From here on the stream belongs to this thread.
    Thread {
        tid: u32,
        time: u64,
    },
    /// The thread is about to end; late destructors may still call.
    ThreadEnd {
        time: u64,
    },
    /// From here on addresses are to be looked up in this generation of the module map. With
    /// `reset`, all numbers of nodes and sites are given anew.
    Generation {
        generation: u32,
        reset: bool,
    },
    /// Calls that were not recorded, see `layout::Slot` for the reasons.
    Lost {
        reason: u8,
        calls: u64,
    },
}

/// The addresses of a chain of frames, decoded as they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'a> {
    bytes: &'a [u8],
    count: u32,
}

impl Addresses<'_> {
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Each is a return address, or the address of the instruction that a signal interrupted, times
    /// two, plus one if it is the latter.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let mut input = Input::new(self.bytes);
        let mut address = 0u64;
        (0..self.count).map_while(move |_| {
            address = address.wrapping_add(unzigzag(input.varint()?) as u64);
            Some(address)
        })
    }
}

fn special(kind: u8) -> u8 {
    (CLASS_SPECIAL << CLASS_SHIFT) | kind
}

/// The most bytes that a chain of `frames` frames takes.
pub const fn max_nodes_bytes(frames: usize) -> usize {
    1 + (frames + 2) * MAX_BYTES
}

/// Writes a chain of frames; the caller gives room for `max_nodes_bytes`.
pub fn encode_nodes(out: &mut [u8], parent: u32, addresses: &[u64]) -> Option<usize> {
    let mut sink = crate::varint::Out::new(out);
    sink.byte(special(SPECIAL_NODES));
    sink.varint(u64::from(parent));
    sink.varint(addresses.len() as u64);
    let mut previous = 0u64;
    for &address in addresses {
        sink.varint(zigzag(address.wrapping_sub(previous) as i64));
        previous = address;
    }
    sink.finish()
}

/// The most bytes of any record that is neither a call nor a chain of frames.
pub const MAX_SPECIAL_BYTES: usize = 1 + 2 * MAX_BYTES;

impl Predictor {
    /// Writes any record but a call or a chain of frames.
    pub fn encode_special(&mut self, out: &mut [u8], record: &Record<'_>) -> Option<usize> {
        let mut sink = crate::varint::Out::new(out);
        match *record {
            Record::Site { node, call } => {
                sink.byte(special(SPECIAL_SITE));
                sink.varint(u64::from(node));
                sink.byte(call);
            }
            Record::Thread { tid, time } => {
                sink.byte(special(SPECIAL_THREAD));
                sink.varint(u64::from(tid));
                sink.varint(self.advance(time));
            }
            Record::ThreadEnd { time } => {
                sink.byte(special(SPECIAL_THREAD_END));
                sink.varint(self.advance(time));
            }
            Record::Generation { generation, reset } => {
                sink.byte(special(SPECIAL_GENERATION));
                sink.varint(u64::from(generation));
                sink.byte(u8::from(reset));
                if reset {
                    self.forget_sites();
                }
            }
            Record::Lost { reason, calls } => {
                sink.byte(special(SPECIAL_LOST));
                sink.byte(reason);
                sink.varint(calls);
            }
            Record::Call(_) | Record::Nodes { .. } => return None,
        }
        sink.finish()
    }

    fn advance(&mut self, time: u64) -> u64 {
        let later = time.max(self.time);
        let difference = later - self.time;
        self.time = later;
        difference
    }

    /// The numbers of sites begin anew, so what was learnt about them is void.
    fn forget_sites(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.previous_site = NO_SITE;
    }

    /// The next record, or `None` if it is malformed or cut.
    pub fn decode<'a, M: SiteMemories + ?Sized>(
        &mut self,
        bytes: &'a [u8],
        pos: &mut usize,
        memories: &mut M,
    ) -> Option<Record<'a>> {
        let mut input = Input::at(bytes, *pos);
        let control = input.byte()?;
        if control & 0x80 != 0 {
            return None;
        }
        let record = if control >> CLASS_SHIFT == CLASS_SPECIAL {
            self.decode_special(control & 0x1f, bytes, &mut input)?
        } else {
            Record::Call(self.decode_call(control, &mut input, memories)?)
        };
        *pos = input.pos();
        Some(record)
    }

    fn decode_special<'a>(
        &mut self,
        kind: u8,
        bytes: &'a [u8],
        input: &mut Input<'a>,
    ) -> Option<Record<'a>> {
        Some(match kind {
            SPECIAL_NODES => {
                let parent = input.varint_u32()?;
                let count = input.varint_u32()?;
                let start = input.pos();
                for _ in 0..count {
                    input.varint()?;
                }
                let addresses = Addresses {
                    bytes: bytes.get(start..input.pos())?,
                    count,
                };
                Record::Nodes { parent, addresses }
            }
            SPECIAL_SITE => Record::Site {
                node: input.varint_u32()?,
                call: input.byte()?,
            },
            SPECIAL_THREAD => {
                let tid = input.varint_u32()?;
                Record::Thread {
                    tid,
                    time: self.later(input.varint()?)?,
                }
            }
            SPECIAL_THREAD_END => Record::ThreadEnd {
                time: self.later(input.varint()?)?,
            },
            SPECIAL_GENERATION => {
                let generation = input.varint_u32()?;
                let reset = input.byte()? != 0;
                if reset {
                    self.forget_sites();
                }
                Record::Generation { generation, reset }
            }
            SPECIAL_LOST => Record::Lost {
                reason: input.byte()?,
                calls: input.varint()?,
            },
            _ => return None,
        })
    }

    fn later(&mut self, difference: u64) -> Option<u64> {
        self.time = self.time.checked_add(difference)?;
        Some(self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calls() -> impl Strategy<Value = Vec<CallRecord>> {
        let class = prop_oneof![Just(Class::Alloc), Just(Class::Free), Just(Class::Realloc)];
        let address = prop_oneof![
            4 => (0u64..64).prop_map(|n| 0x5555_0000_0000 + n * 16),
            1 => any::<u64>().prop_map(|n| n & ADDRESS_BITS),
            1 => Just(0),
        ];
        let size = prop_oneof![4 => 0u64..200, 1 => any::<u64>()];
        let extra = prop_oneof![3 => Just(0u64), 1 => any::<u64>()];
        let call = (
            class,
            0u32..20,
            0u64..5_000,
            address.clone(),
            size,
            extra,
            address,
        );
        proptest::collection::vec(call, 0..300).prop_map(|raw| {
            let mut time = 1_000;
            raw.into_iter()
                .map(|(class, site, step, address, size, extra, old)| {
                    time += step;
                    let realloc = class == Class::Realloc;
                    CallRecord {
                        class,
                        site,
                        time,
                        address,
                        size,
                        extra,
                        begin: if realloc { time - step } else { 0 },
                        old: if realloc { old } else { 0 },
                    }
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn calls_return_as_written(calls in calls()) {
            let mut encoder = Predictor::new();
            let mut memories = vec![SiteMemory::default(); 15];
            encoder.begin_chunk(1_000);
            let mut bytes = Vec::new();
            for call in &calls {
                let mut out = [0; 128];
                let len = encoder.encode(&mut out, memories.as_mut_slice(), call);
                prop_assert!(len <= MAX_CALL_BYTES);
                bytes.extend_from_slice(&out[..len]);
            }
            let mut decoder = Predictor::new();
            let mut memories = vec![SiteMemory::default(); 15];
            decoder.begin_chunk(1_000);
            let mut pos = 0;
            for call in &calls {
                let record = decoder.decode(&bytes, &mut pos, memories.as_mut_slice());
                prop_assert_eq!(record, Some(Record::Call(*call)));
            }
            prop_assert_eq!(pos, bytes.len());
        }

        #[test]
        fn any_bytes_decode_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Predictor::new();
            decoder.begin_chunk(u64::MAX - 100_000);
            let mut memories = vec![SiteMemory::default(); 4];
            let mut pos = 0;
            while let Some(record) = decoder.decode(&bytes, &mut pos, memories.as_mut_slice()) {
                if let Record::Nodes { addresses, .. } = record {
                    prop_assert_eq!(addresses.iter().count(), addresses.count() as usize);
                }
            }
        }
    }

    #[test]
    fn definitions_return_as_written() {
        let mut coder = Predictor::new();
        coder.begin_chunk(10);
        let mut bytes = [0; 256];
        let addresses = [0x1000, 0x7fff_0000_1234, 3];
        let mut len = encode_nodes(&mut bytes, ROOT_COMPLETE, &addresses).expect("fits");
        let others = [
            Record::Site { node: 4, call: 1 },
            Record::Thread { tid: 77, time: 15 },
            Record::Generation {
                generation: 3,
                reset: true,
            },
            Record::Lost {
                reason: 2,
                calls: 1_000,
            },
            Record::ThreadEnd { time: 20 },
        ];
        for record in &others {
            len += coder
                .encode_special(&mut bytes[len..], record)
                .expect("fits");
        }
        let mut decoder = Predictor::new();
        decoder.begin_chunk(10);
        let mut pos = 0;
        let memories: &mut [SiteMemory] = &mut [];
        match decoder.decode(&bytes[..len], &mut pos, memories) {
            Some(Record::Nodes {
                parent: ROOT_COMPLETE,
                addresses: back,
            }) => {
                assert_eq!(back.iter().collect::<Vec<_>>(), addresses);
            }
            other => panic!("{other:?}"),
        }
        for record in others {
            assert_eq!(
                decoder.decode(&bytes[..len], &mut pos, memories),
                Some(record)
            );
        }
    }

    #[test]
    fn a_steady_loop_takes_two_bytes_a_call() {
        let mut coder = Predictor::new();
        coder.begin_chunk(0);
        let mut memories = vec![SiteMemory::default(); 3];
        let mut out = [0; 128];
        let mut last = 0;
        for turn in 0..10u64 {
            let make = CallRecord {
                class: Class::Alloc,
                site: 1,
                time: turn * 20,
                address: 0x5000,
                size: 50,
                extra: 0,
                begin: 0,
                old: 0,
            };
            let end = CallRecord {
                class: Class::Free,
                site: 2,
                time: turn * 20 + 9,
                size: 0,
                ..make
            };
            last = coder.encode(&mut out, memories.as_mut_slice(), &make);
            last += coder.encode(&mut out, memories.as_mut_slice(), &end);
        }
        assert_eq!(last, 4);
    }
}
