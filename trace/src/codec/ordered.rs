//! The calls of a trace without times: of all threads in one order, with the blocks named by their age among
//! those that are live.
//!
//! Each thread has a list of the live blocks that it made. Threads end blocks mostly in the order in which these were
//! made, or in the reverse one, so the next to end is often the newest, or a neighbour of the one that ended last.
//!
//! Invariants: encoder and decoder know the same live blocks; so no chunk can be read without those before. A
//! block's address is made up: distinct from that of every other block of the trace.

use super::live::Live;
use super::shape::{Field, Fields};
use super::{
    ADDRESS_MASK, CLASS_SHIFT, CallRecord, Class, EXTRA, NO_SITE, Predictor, SITE_PREDICTED,
    SIZE_SAME, Tables,
};
use crate::varint::Out;

// How the control byte names the block that ends, or, of an allocation, the one that is made.
/// The thread's newest live one; of an allocation a new one.
const NEWEST: u8 = 0;
/// The live blocks next to the one that the thread ended last.
const YOUNGER: u8 = 1;
const OLDER: u8 = 2;
/// By a number: one of these, or the age in the thread's list and `NAMED_BLOCK`.
pub(super) const NAMED: u8 = 3;
const NAMED_NONE: u64 = 0;
const NAMED_UNKNOWN: u64 = 1;
/// The number of another list, and the age there, follow.
pub(super) const NAMED_OTHER: u64 = 2;
const NAMED_BLOCK: u64 = 3;

// What a realloc made.
const MADE_NEW: u64 = 0;
const MADE_SAME: u64 = 1;
const MADE_NONE: u64 = 2;
/// The place of a block that follows, by a number like that of `NAMED`.
pub(super) const MADE_BLOCK: u64 = 3;

/// Blocks have addresses from here on.
const FIRST_ADDRESS: u64 = 1 << 4;
const ADDRESS_STEP: u64 = 1 << 4;
/// Of blocks whose allocation is not in the trace.
const UNKNOWN_ADDRESS: u64 = 1 << 3;

/// Lists of blocks. Threads whose numbers are the same modulo this share one, and predictions.
const LISTS: usize = 64;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedCall {
    pub class: Class,
    pub site: u32,
    pub size: u64,
    pub extra: u64,
    pub old: Block,
    pub made: Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    None,
    /// Its allocation is not in the trace.
    Unknown,
    New,
    /// Its number in its list × `LISTS` + the list's number. If an allocation returns its address, its free is not in
    /// the trace.
    Known(u64),
}

#[derive(Default)]
struct Thread {
    live: Live,
    site: u32,
    /// The block that it ended last.
    ended: u64,
}

/// What encoder and decoder share beside a `Predictor`.
pub struct Ordered {
    threads: [Thread; LISTS],
    thread: usize,
}

fn list_of(block: u64) -> usize {
    block as usize % LISTS
}

fn number_of(block: u64) -> u64 {
    block / LISTS as u64
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered {
            threads: std::array::from_fn(|_| Thread::default()),
            thread: 0,
        }
    }
}

impl Ordered {
    /// The following calls are this thread's.
    pub fn switch(&mut self, predictor: &mut Predictor, tid: u32) {
        self.threads[self.thread].site = predictor.previous_site;
        self.thread = tid as usize % LISTS;
        predictor.previous_site = self.threads[self.thread].site;
    }

    /// The live block that so many of a list are older than.
    fn block(&self, list: usize, older: u64) -> Option<u64> {
        let number = self.threads.get(list)?.live.at(older)?;
        Some(number * LISTS as u64 + list as u64)
    }

    fn neighbour(&self, name: u8) -> Option<u64> {
        let thread = &self.threads[self.thread];
        if name == NEWEST {
            return self.block(self.thread, thread.live.count().checked_sub(1)?);
        }
        let list = list_of(thread.ended);
        let older = self.threads[list].live.older(number_of(thread.ended));
        let older = older.checked_sub(u64::from(name == OLDER))?;
        self.block(list, older)
    }

    /// The control bits for a block that a call ends.
    fn name(&self, block: Block) -> u8 {
        let mut names = [NEWEST, YOUNGER, OLDER].into_iter();
        let name = names.find(|name| self.neighbour(*name).map(Block::Known) == Some(block));
        name.unwrap_or(NAMED)
    }

    fn put_number(&self, out: &mut Out<'_>, block: Block) {
        match block {
            Block::None | Block::New => out.varint(NAMED_NONE),
            Block::Unknown => out.varint(NAMED_UNKNOWN),
            Block::Known(block) => {
                let list = list_of(block);
                let live = &self.threads[list].live;
                let age = (live.count() - live.older(number_of(block))).saturating_sub(1);
                if list == self.thread {
                    out.varint(age.saturating_add(NAMED_BLOCK));
                } else {
                    out.varint(NAMED_OTHER);
                    out.varint(list as u64);
                    out.varint(age);
                }
            }
        }
    }

    fn take_number(&self, fields: &mut impl Fields, field: Field) -> Option<Block> {
        let (list, age) = match fields.varint(field)? {
            NAMED_NONE => return Some(Block::None),
            NAMED_UNKNOWN => return Some(Block::Unknown),
            NAMED_OTHER => (
                usize::try_from(fields.varint(field)?).ok()?,
                fields.varint(field)?,
            ),
            number => (self.thread, number - NAMED_BLOCK),
        };
        let younger = self.threads.get(list)?.live.count().checked_sub(age)?;
        self.block(list, younger.checked_sub(1)?).map(Block::Known)
    }

    /// Ends the old block of a call, if it does not fail or keep its place.
    fn end(&mut self, call: &OrderedCall) {
        let stays = call.class == Class::Realloc
            && (call.made == call.old || (call.made == Block::None && call.size > 0));
        if let (Block::Known(block), false) = (call.old, stays) {
            self.threads[list_of(block)].live.end(number_of(block));
            self.threads[self.thread].ended = block;
        }
    }

    fn address(&mut self, block: Block) -> u64 {
        let block = match block {
            Block::None => return 0,
            Block::Unknown => return UNKNOWN_ADDRESS,
            Block::New => self.make(),
            Block::Known(block) => block,
        };
        FIRST_ADDRESS + block * ADDRESS_STEP
    }

    fn make(&mut self) -> u64 {
        self.threads[self.thread].live.make() * LISTS as u64 + self.thread as u64
    }

    /// Writes a call; returns the bytes used of `out`, and the block that was made. REQUIRES: a block that is known is
    /// live; `out` has room for `MAX_CALL_BYTES`.
    pub fn encode<T: Tables + ?Sized>(
        &mut self,
        predictor: &mut Predictor,
        out: &mut [u8],
        tables: &mut T,
        call: &OrderedCall,
    ) -> Option<(usize, Option<u64>)> {
        let (predicted, site) = predictor.learn(tables, &call.record(predictor.time, 0, 0));
        let (block, name) = match (call.class, call.made) {
            (Class::Alloc, Block::New) => (Block::New, NEWEST),
            (Class::Alloc, made) => (made, NAMED),
            _ => (call.old, self.name(call.old)),
        };
        let mut control = (call.class as u8) << CLASS_SHIFT | name;
        for (bit, is_set) in [
            (SITE_PREDICTED, call.site == predicted),
            (SIZE_SAME, call.size == site.size),
            (EXTRA, call.extra != 0),
        ] {
            control |= if is_set { bit } else { 0 };
        }
        let mut out = Out::new(out);
        out.byte(control);
        if control & SITE_PREDICTED == 0 {
            out.varint(u64::from(call.site));
        }
        if control & SIZE_SAME == 0 {
            out.varint(call.size);
        }
        if name == NAMED {
            self.put_number(&mut out, block);
        }
        if control & EXTRA != 0 {
            out.varint(call.extra);
        }
        self.end(call);
        if call.class == Class::Realloc {
            match call.made {
                Block::New | Block::Unknown => out.varint(MADE_NEW),
                Block::None => out.varint(MADE_NONE),
                made if made == call.old => out.varint(MADE_SAME),
                made => {
                    out.varint(MADE_BLOCK);
                    self.put_number(&mut out, made);
                }
            }
        }
        predictor.previous_site = call.site;
        predictor.time += 1;
        let made = (call.made == Block::New).then(|| self.make());
        Some((out.finish()?, made))
    }

    /// The next record, which is a call, or `None` if it is malformed or truncated.
    pub(crate) fn decode<F: Fields, T: Tables + ?Sized>(
        &mut self,
        predictor: &mut Predictor,
        fields: &mut F,
        tables: &mut T,
    ) -> Option<CallRecord> {
        let control = fields.byte(Field::Control)?;
        let class = match control >> CLASS_SHIFT {
            0 => Class::Alloc,
            1 => Class::Free,
            2 => Class::Realloc,
            _ => return None,
        };
        let mut previous = predictor.memory(tables, predictor.previous_site);
        let site = match control & SITE_PREDICTED {
            0 => fields.varint_u32(Field::Site)?,
            _ => previous.as_ref().map_or(NO_SITE, |memory| memory.next),
        };
        if let Some(previous) = &mut previous {
            previous.next = site;
        }
        let mut memory = predictor.memory(tables, site);
        let size = match control & SIZE_SAME {
            0 => fields.varint(Field::Size)?,
            _ => memory.as_ref().map_or(0, |memory| memory.size),
        };
        if let Some(memory) = &mut memory {
            memory.size = size;
        }
        let name = control & ADDRESS_MASK;
        let block = match (name, class) {
            (NAMED, _) => self.take_number(fields, Field::Recent)?,
            (NEWEST, Class::Alloc) => Block::New,
            (_, Class::Alloc) => return None,
            _ => Block::Known(self.neighbour(name)?),
        };
        let mut call = OrderedCall {
            class,
            site,
            size,
            extra: if control & EXTRA == 0 {
                0
            } else {
                fields.varint(Field::Rest)?
            },
            old: block,
            made: Block::None,
        };
        match class {
            Class::Alloc => (call.old, call.made) = (Block::None, block),
            Class::Realloc => {
                let number = fields.varint(Field::Rest)?;
                call.made = match number {
                    MADE_NEW => Block::New,
                    MADE_SAME => call.old,
                    MADE_NONE => Block::None,
                    // Which one is known once the old one has ended.
                    MADE_BLOCK => Block::Unknown,
                    _ => return None,
                };
                self.end(&call);
                if number == MADE_BLOCK {
                    call.made = self.take_number(fields, Field::Rest)?;
                }
            }
            _ => self.end(&call),
        }
        predictor.previous_site = site;
        predictor.time += 1;
        let old = self.address(call.old);
        let made = self.address(call.made);
        Some(call.record(predictor.time, old, made))
    }
}

impl OrderedCall {
    /// The call in the form of other traces, in which a free has its block as address.
    fn record(&self, time: u64, old: u64, made: u64) -> CallRecord {
        CallRecord {
            class: self.class,
            site: self.site,
            time,
            address: if self.class == Class::Free { old } else { made },
            size: self.size,
            extra: self.extra,
            begin: time,
            old: if self.class == Class::Realloc { old } else { 0 },
        }
    }
}
