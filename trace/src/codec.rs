//! Encodes and decodes the records of an event chunk.
//!
//! A record begins with a control byte. A call's record is short because of predictions from earlier
//! records of the chunk: the site that followed this one last time, a site's last size and address, and
//! the addresses of recent calls (`recent`). Encoder and decoder run the same `Predictor`.
//!
//! Thread safety: a `Predictor` belongs to one stream, and a stream to one thread at a time.
//!
//! Invariants: a prediction uses only the same chunk (`SiteMemory::epoch` = the predictor's, or the memory
//! counts as empty); parent of node n < n; nodes and sites are numbered in order of definition, per
//! stream.

mod definitions;
mod live;
mod ordered;
mod recent;
pub(crate) mod shape;
#[cfg(test)]
mod tests;

pub use definitions::{
    Details, MAX_DEFINITION_BYTES, MAX_MARK_NAME, MAX_MARK_NAME_BYTES, Record, SystemCallRecord,
    max_nodes_bytes,
};
pub use ordered::{Block, Ordered, OrderedCall};

use crate::layout::Form;
use crate::varint::{unzigzag, zigzag};
use recent::Recent;
use shape::{Field, Fields};

/// No call record is longer.
pub const MAX_CALL_BYTES: usize = 80;

/// Roots of the stack tree. A stack is a path from a node up to one of these.
pub const ROOT_COMPLETE: u32 = 0;
/// The walk ended before the thread's first function.
pub const ROOT_TRUNCATED: u32 = 1;
/// The first number for a node that stands for a frame.
pub const FIRST_NODE: u32 = 2;

/// Frame 0 is never defined: it stands for the roots.
pub const FIRST_FRAME: u32 = 1;

/// Site 0 is never defined: a call whose site could not be interned.
pub const NO_SITE: u32 = 0;
pub const FIRST_SITE: u32 = 1;

/// The stored bits of an address: more than any processor translates, and a difference of two leaves room
/// for a sign and a tag.
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

// How the old block of a realloc, or the source of a copy, is encoded.
const OLD_NONE: u64 = 0;
const OLD_SAME: u64 = 1;
const OLD_RECENT: u64 = 2;
const OLD_DELTA: u64 = 3;

/// Whether a record with this control byte is a call of the malloc family, or copies.
pub(crate) fn is_call(control: u8) -> bool {
    control >> CLASS_SHIFT != CLASS_SPECIAL
}

/// What a call does to the set of live blocks. 3 stands for records that are no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Alloc = 0,
    Free = 1,
    Realloc = 2,
    /// Bytes are copied, filled or formatted: no block is made or freed.
    Copy = 4,
}

/// A call in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    pub class: Class,
    pub site: u32,
    /// Time after an allocation or a realloc, before a free.
    pub time: u64,
    /// The block that was allocated or freed, or where a copy goes; 0 if none.
    pub address: u64,
    /// Requested bytes; of a free, the size that the caller stated, or 0; of a copy, its bytes.
    pub size: u64,
    /// Number of elements (calloc, reallocarray) or alignment; 0 if the call has neither. Of a copy that was
    /// sampled, the mean number of bytes between two samples.
    pub extra: u64,
    /// Realloc only: when it began.
    pub begin: u64,
    /// The old block of a realloc, or where a copy comes from.
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
    /// For the decoder: the site that followed the previous one last time, if no other record came since.
    next_site: Option<u32>,
    time: u64,
    address: u64,
    recent: Recent,
    /// Nodes from here on were defined by this chunk.
    first_node: u32,
    /// The packed address of the frame defined last.
    frame_address: u64,
}

/// Storage of encoder and decoder for a stream's definitions.
pub trait Tables {
    /// `None` for a number that no site can have.
    fn site(&mut self, site: u32) -> Option<&mut SiteMemory>;
    /// The last callees of a frame; frame 0 stands for the roots.
    fn callees(&mut self, frame: u32) -> Option<&mut Callees>;
    /// The frame of a node that this chunk defined.
    fn frame_of(&mut self, node: u32) -> u32;
    /// The next numbers.
    fn next_node(&self) -> u32;
    fn next_frame(&self) -> u32;
}

/// The two frames that were last found under a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Callees {
    epoch: u32,
    last: u32,
    before: u32,
}

/// A step from a node to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A frame that was defined before.
    Frame(u32),
    /// A frame that gets the next number. Its packed address: times two, plus one if the frame was
    /// interrupted there by a signal and is not waiting for a call to return.
    New(u64),
}

/// A difference of addresses. It is mostly a multiple of eight, which has the shorter form.
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
    /// Of records in the form that is written.
    pub const fn new() -> Self {
        Self::of(Form::V3)
    }

    pub const fn of(form: Form) -> Self {
        Predictor {
            epoch: 0,
            previous_site: NO_SITE,
            next_site: None,
            time: 0,
            address: 0,
            recent: Recent::new(form),
            first_node: FIRST_NODE,
            frame_address: 0,
        }
    }

    /// Resets everything except the numbers of definitions. The time is the chunk's first, the node the first
    /// that it may define.
    pub fn begin_chunk(&mut self, time: u64, first_node: u32) {
        self.epoch = self.epoch.wrapping_add(1);
        self.previous_site = NO_SITE;
        self.next_site = None;
        self.time = time;
        self.address = 0;
        self.recent.clear();
        self.first_node = first_node;
        self.frame_address = 0;
    }

    pub fn time(&self) -> u64 {
        self.time
    }

    /// What this chunk remembers of a site.
    #[inline]
    fn memory<'t, T: Tables + ?Sized>(
        &self,
        tables: &'t mut T,
        site: u32,
    ) -> Option<&'t mut SiteMemory> {
        let memory = tables.site(site)?;
        if memory.epoch != self.epoch {
            *memory = SiteMemory {
                epoch: self.epoch,
                ..SiteMemory::default()
            };
        }
        Some(memory)
    }

    /// Updates the memory of a call's site and of the previous one. Returns the prediction: the site, and its
    /// last values.
    #[inline]
    fn learn<T: Tables + ?Sized>(&self, tables: &mut T, call: &CallRecord) -> (u32, SiteMemory) {
        let mut predicted = NO_SITE;
        if let Some(previous) = self.memory(tables, self.previous_site) {
            predicted = std::mem::replace(&mut previous.next, call.site);
        }
        let Some(memory) = self.memory(tables, call.site) else {
            return (predicted, SiteMemory::default());
        };
        let before = *memory;
        memory.size = call.size;
        memory.address = call.address;
        (predicted, before)
    }

    /// Updates the rest of the memory for a call; `note` has its addresses.
    #[inline]
    fn note(&mut self, call: &CallRecord, mut note: impl FnMut(&mut Recent, u64)) {
        self.previous_site = call.site;
        self.time = call.time;
        if call.address != 0 {
            self.address = call.address;
            note(&mut self.recent, call.address);
        }
        if call.class == Class::Copy && call.old != 0 {
            note(&mut self.recent, call.old);
        }
    }

    /// Writes a call; returns its bytes, up to `MAX_CALL_BYTES`. A time before the last record's counts as
    /// that one's.
    #[inline]
    pub fn encode<T: Tables + ?Sized>(
        &mut self,
        out: &mut [u8; 128],
        tables: &mut T,
        mut call: CallRecord,
    ) -> usize {
        call.time = call.time.max(self.time);
        call.address &= ADDRESS_BITS;
        call.old &= ADDRESS_BITS;
        let (predicted, site) = self.learn(tables, &call);
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
        let mut packed = 0;
        control |= if call.address == site.address {
            ADDRESS_SITE
        } else if let Some(age) = self.recent.age(call.address) {
            packed = age;
            ADDRESS_RECENT
        } else {
            packed = pack_difference(call.address, self.address);
            let site_packed = pack_difference(call.address, site.address);
            if site_packed < packed {
                packed = site_packed;
                ADDRESS_SITE_DELTA
            } else {
                ADDRESS_DELTA
            }
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
            ADDRESS_SITE => {}
            _ => pen.varint(packed),
        }
        if control & EXTRA != 0 {
            pen.varint(call.extra);
        }
        if call.class == Class::Realloc {
            pen.varint(call.time.saturating_sub(call.begin));
        }
        if matches!(call.class, Class::Realloc | Class::Copy) {
            self.encode_old(&mut pen, &call);
        }
        let len = pen.len;
        self.note(&call, Recent::note);
        len
    }

    fn encode_old(&self, pen: &mut Pen<'_>, call: &CallRecord) {
        if call.old == 0 {
            pen.varint(OLD_NONE);
        } else if call.old == call.address {
            pen.varint(OLD_SAME);
        } else if let Some(age) = self.recent.age(call.old) {
            pen.varint(OLD_RECENT);
            pen.varint(age);
        } else {
            // A separate byte for the tag, because the number may need all its bits.
            pen.varint(OLD_DELTA);
            pen.varint(pack_difference(call.old, call.address));
        }
    }

    fn decode_recent(&self, fields: &mut impl Fields, field: Field) -> Option<u64> {
        Some(self.recent.get(match self.recent.form() {
            Form::V2 => u64::from(fields.byte(field)?),
            Form::V3 | Form::Ordered => fields.varint(field)?,
        }))
    }

    /// The next record, which is a call, or `None` if it is malformed or truncated.
    #[inline(always)]
    pub(crate) fn decode_call<F: Fields, T: Tables + ?Sized>(
        &mut self,
        fields: &mut F,
        tables: &mut T,
    ) -> Option<CallRecord> {
        let control = fields.byte(Field::Control)?;
        let class = match control >> CLASS_SHIFT {
            0 => Class::Alloc,
            1 => Class::Free,
            2 => Class::Realloc,
            4 => Class::Copy,
            _ => return None,
        };
        let time = self.time.checked_add(fields.varint(Field::Time)?)?;
        let is_predicted = control & SITE_PREDICTED != 0;
        let site = match self.next_site {
            Some(next) if is_predicted => next,
            _ => {
                let read = match is_predicted {
                    true => None,
                    false => Some(fields.varint_u32(Field::Site)?),
                };
                let mut previous = self.memory(tables, self.previous_site);
                let next = previous.as_ref().map_or(NO_SITE, |memory| memory.next);
                let site = read.unwrap_or(next);
                if let Some(previous) = &mut previous {
                    previous.next = site;
                }
                site
            }
        };
        let mut none = SiteMemory::default();
        let memory = self.memory(tables, site).unwrap_or(&mut none);
        let size = if control & SIZE_SAME != 0 {
            memory.size
        } else {
            fields.varint(Field::Size)?
        };
        let address = match control & ADDRESS_MASK {
            ADDRESS_DELTA => unpack_difference(fields.varint(Field::Address)?, self.address),
            ADDRESS_RECENT => self.decode_recent(fields, Field::Recent)?,
            ADDRESS_SITE => memory.address,
            _ => unpack_difference(fields.varint(Field::SiteAddress)?, memory.address),
        } & ADDRESS_BITS;
        let extra = if control & EXTRA != 0 {
            fields.varint(Field::Rest)?
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
        if matches!(class, Class::Realloc | Class::Copy) {
            if class == Class::Realloc {
                call.begin = time.checked_sub(fields.varint(Field::Rest)?)?;
            }
            call.old = match fields.varint(Field::Rest)? {
                OLD_NONE => 0,
                OLD_SAME => address,
                OLD_RECENT => self.decode_recent(fields, Field::Rest)?,
                OLD_DELTA => unpack_difference(fields.varint(Field::Rest)?, address) & ADDRESS_BITS,
                _ => return None,
            };
        }
        (memory.size, memory.address) = (call.size, call.address);
        self.next_site = Some(memory.next);
        self.note(&call, |recent, address| _ = recent.note_to_get(address));
        Some(call)
    }
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new()
    }
}
