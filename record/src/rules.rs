//! How to get from a frame to its caller, by its return address: the unwinder's step as one entry of a
//! table.
//!
//! A rule is learnt by having the unwinder take the step with artificial registers and an artificial
//! stack: what it reads, and how the new registers are computed. Only a step that is the same sum for two
//! sets of registers becomes a rule; all others are left to the unwinder.
//!
//! Thread safety: a table belongs to a walker. Memory: 16 bytes an address, up to 128 KiB; unused entries
//! are not accessed.

use framehop::x86_64::UnwindRegsX86_64;
use framehop::{FrameAddress, Unwinder as _};

use crate::hash;
use crate::map::Unwinder;
use crate::memory::Pages;

pub type Cache = framehop::x86_64::CacheX86_64<framehop::MustNotAllocateDuringUnwind>;

/// How to compute the caller's stack pointer, and where its return address and frame pointer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Caller's stack pointer - the frame's own, or its frame pointer. The return address is just below.
    pub up: i32,
    /// Offset of the caller's frame pointer from its stack pointer, not above the return address. The return
    /// address's offset if it is still in its register.
    pub bp_at: i16,
    pub from_bp: bool,
    pub restores_bp: bool,
}

const RETURN_ADDRESS_AT: i16 = -8;

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
    pub fn learn(&mut self, unwinder: &Unwinder, cache: &mut Cache, ip: u64) {
        if !self.places.grow(PLACES) {
            return;
        }
        let Some(place) = self.places.slice().get_mut(place(ip)) else {
            return;
        };
        if place.ip != ip {
            let rule = watch(unwinder, cache, ip);
            *place = Place { ip, rule };
        }
    }
}

fn watch(unwinder: &Unwinder, cache: &mut Cache, ip: u64) -> Option<Rule> {
    // Far apart, so that results can be distinguished; the second pair has another alignment.
    const FIRST: (u64, u64) = (0x1000_0000_0000, 0x2000_0000_0000);
    const SECOND: (u64, u64) = (0x1000_0000_1238, 0x2000_0000_5428);
    let first = take_step(unwinder, cache, ip, FIRST)?;
    (take_step(unwinder, cache, ip, SECOND)? == first).then_some(first)
}

/// The unwinder's step for these registers, as a rule.
fn take_step(
    unwinder: &Unwinder,
    cache: &mut Cache,
    ip: u64,
    (sp, bp): (u64, u64),
) -> Option<Rule> {
    const FIRST_WORD: u64 = 0x4000_0000_0000;
    let address = FrameAddress::from_return_address(ip)?;
    let mut reads = [0; 2];
    let mut count = 0;
    let mut read = |address: u64| {
        *reads.get_mut(count).ok_or(())? = address;
        count += 1;
        Ok(FIRST_WORD + count as u64)
    };
    let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
    let caller = unwinder
        .unwind_frame(address, &mut registers, cache, &mut read)
        .ok()??;
    // Which read a word came from.
    let origin = |word: u64| {
        let number = word.checked_sub(FIRST_WORD + 1)?;
        reads.get(..count)?.get(number as usize).copied()
    };
    let top = registers.sp();
    if origin(caller)? != top.wrapping_sub(8) {
        return None;
    }
    let restores_bp = registers.bp() != bp;
    let bp_at = if restores_bp {
        i16::try_from(origin(registers.bp())?.wrapping_sub(top) as i64).ok()?
    } else {
        RETURN_ADDRESS_AT
    };
    if count != 1 + usize::from(restores_bp) || bp_at > RETURN_ADDRESS_AT {
        return None;
    }
    let from_bp = top > bp;
    let base = if from_bp { bp } else { sp };
    Some(Rule {
        up: i32::try_from(top.wrapping_sub(base) as i64).ok()?,
        bp_at,
        from_bp,
        restores_bp,
    })
}
