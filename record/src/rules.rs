//! How to get from a frame to its caller, by its return address: the unwinder's step as one entry of a
//! table.
//!
//! A rule is learnt by having the unwinder take the step with artificial registers and an artificial
//! stack: what it reads, and how the new registers are computed. Only a step that is the same sum for two
//! sets of registers becomes a rule; all others are left to the unwinder.
//!
//! Thread safety: a table belongs to a walker. Memory: 16 bytes an address, up to 128 KiB; unused entries
//! are not accessed.

use framehop::FrameAddress;

use crate::arch;
use crate::hash;
use crate::map::Snapshot;
use crate::memory::Pages;
use crate::stack::Frame;

pub type Cache = framehop::CacheNative<framehop::MustNotAllocateDuringUnwind>;

/// How to compute the caller's stack pointer, and where its return address and frame pointer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Caller's stack pointer - the frame's own, or its frame pointer.
    pub up: i32,
    /// Offset of the caller's frame pointer from its stack pointer, not above the return address, to which
    /// `arch::return_address_at` leads. The return address's offset if it is still in its register.
    pub bp_at: i16,
    pub from_bp: bool,
    pub restores_bp: bool,
}

impl Rule {
    #[inline(always)]
    pub fn return_address_at(self) -> i16 {
        arch::return_address_at(self.bp_at, self.restores_bp)
    }
}

/// The last word of a frame.
const LAST: i16 = -8;

#[derive(Clone, Copy)]
struct Place {
    /// 0 if it is empty.
    ip: u64,
    /// `None`: use the unwinder.
    rule: Option<Rule>,
}

const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 13;

pub struct Rules {
    places: Pages<Place>,
}

fn place(ip: u64) -> usize {
    hash::top(ip, PLACE_BITS)
}

impl Rules {
    pub const fn new() -> Self {
        Rules {
            places: Pages::empty(),
        }
    }

    pub fn forget(&mut self) {
        self.places.release();
    }

    /// The learnt rule for a return address, if any.
    #[inline(always)]
    pub fn get(&self, ip: u64) -> Option<Rule> {
        let place = self.places.get(place(ip))?;
        if place.ip == ip { place.rule } else { None }
    }

    /// Learns the rule for a return address, unless it is known.
    #[cold]
    pub fn learn(&mut self, map: &Snapshot, cache: &mut Cache, ip: u64) {
        if !self.places.grow(PLACES) {
            return;
        }
        let Some(place) = self.places.slice().get_mut(place(ip)) else {
            return;
        };
        if place.ip != ip {
            let rule = watch(map, cache, ip);
            *place = Place { ip, rule };
        }
    }
}

fn watch(map: &Snapshot, cache: &mut Cache, ip: u64) -> Option<Rule> {
    // Far apart, so that results can be distinguished; the second pair has another alignment.
    const FIRST: (u64, u64) = (0x1000_0000_0000, 0x2000_0000_0000);
    const SECOND: (u64, u64) = (0x1000_0000_1238, 0x2000_0000_5428);
    let first = take_step(map, cache, ip, FIRST)?;
    (take_step(map, cache, ip, SECOND)? == first).then_some(first)
}

/// The unwinder's step for these registers, as a rule.
fn take_step(map: &Snapshot, cache: &mut Cache, ip: u64, (sp, bp): (u64, u64)) -> Option<Rule> {
    const FIRST_WORD: u64 = 0x4000_0000_0000;
    let address = FrameAddress::from_return_address(ip)?;
    let mut reads = [0; 2];
    let mut count = 0;
    let mut read = |address: u64| {
        *reads.get_mut(count).ok_or(())? = address;
        count += 1;
        Ok(FIRST_WORD + count as u64)
    };
    let mut registers = arch::unwind_registers(&Frame::new(ip << 1, sp, bp), &None);
    let caller = arch::unwind(map, address, &mut registers, cache, &mut read).ok()??;
    let top = registers.sp();
    // Where a word was read.
    let origin = |word: u64| {
        let number = word.checked_sub(FIRST_WORD + 1)?;
        let address = reads.get(..count)?.get(number as usize)?;
        i16::try_from(address.wrapping_sub(top) as i64).ok()
    };
    let caller_at = origin(caller)?;
    let restores_bp = arch::frame_pointer(&registers) != bp;
    let bp_at = match restores_bp {
        true => origin(arch::frame_pointer(&registers))?,
        false => caller_at,
    };
    if count != 1 + usize::from(restores_bp) || bp_at.max(caller_at) > LAST {
        return None;
    }
    let from_bp = top > bp;
    let base = if from_bp { bp } else { sp };
    let rule = Rule {
        up: i32::try_from(top.wrapping_sub(base) as i64).ok()?,
        bp_at,
        from_bp,
        restores_bp,
    };
    (rule.return_address_at() == caller_at).then_some(rule)
}
