//! The step to a caller from a frame that is addressed by another register than the two that the unwinder
//! keeps. The loader's functions for lazy binding are such: they realign the stack, and their caller is
//! found by `rbx`. Its value is known at a signal frame, where the kernel has saved all registers; from
//! there they are followed by `.eh_frame` tables.
//!
//! Thread safety: no shared state. Does not allocate; the tables take 6 KiB of the stack.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
};

use crate::arch::{self, BP, COUNT, INTERRUPTED, IP, PRESERVED, RETURN_ADDRESS, SP};
use crate::map::Snapshot;

/// A frame's registers, by their numbers in the tables; `None`: lost.
#[derive(Clone, Copy)]
pub struct Registers([Option<u64>; COUNT]);

/// A module's tables, if it has them.
#[derive(Clone, Copy)]
pub struct Tables {
    pub header: &'static [u8],
    pub frames: &'static [u8],
}

pub struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

pub type Row = UnwindTableRow<usize, OnStack>;

impl Registers {
    pub fn unknown() -> Registers {
        Registers([None; COUNT])
    }

    /// From the words that the kernel has stored, by their offset.
    pub fn interrupted(mut read: impl FnMut(u64) -> Option<u64>) -> Option<Registers> {
        let mut registers = Registers::unknown();
        for (register, offset) in INTERRUPTED.into_iter().zip((0..).step_by(8)) {
            registers.set(register, Some(read(offset)?));
        }
        Some(registers)
    }

    pub fn get(&self, register: Register) -> Option<u64> {
        *self.0.get(usize::from(register.0))?
    }

    pub fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(place) = self.0.get_mut(usize::from(register.0)) {
            *place = value;
        }
    }

    pub fn ip(&self) -> Option<u64> {
        self.get(IP)
    }

    /// The same at a place before it in the code.
    pub fn moved_back(mut self, bytes: u64) -> Option<Registers> {
        let ip = self.ip()?.checked_sub(bytes)?;
        self.set(IP, Some(ip));
        Some(self)
    }

    pub fn sp(&self) -> Option<u64> {
        self.get(SP)
    }

    pub fn bp(&self) -> Option<u64> {
        self.get(BP)
    }

    /// From interrupted registers to those of the caller of an outer frame, which is identified by its stack
    /// pointer.
    pub fn caller_of(
        mut self,
        map: &Snapshot,
        (ip, sp): (u64, u64),
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let mut after_call = 0;
        loop {
            let at = self.sp()?;
            if at > sp {
                return None;
            }
            let found = at == sp && self.ip()? == ip;
            let here = self.ip()?.checked_sub(after_call)?;
            let next = with_row(map, here, |row| self.step(row, &PRESERVED, read))??;
            if found {
                return Some(next);
            }
            if next.sp()? <= at {
                return None;
            }
            (self, after_call) = (next, 1);
        }
    }

    /// The caller's, of which only those that are named are known, and where it continues.
    pub fn step(
        &self,
        row: &Row,
        wanted: &[Register],
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            return None;
        };
        let top = self.get(register)?.wrapping_add_signed(offset);
        let mut caller = Registers::unknown();
        for register in wanted.iter().copied().chain([RETURN_ADDRESS]) {
            let value = match row.register(register) {
                None | Some(RegisterRule::SameValue) if register != IP => self.get(register),
                Some(RegisterRule::Offset(offset)) => read(top.wrapping_add_signed(offset)),
                Some(RegisterRule::ValOffset(offset)) => Some(top.wrapping_add_signed(offset)),
                Some(RegisterRule::Register(other)) => self.get(other),
                _ => None,
            };
            caller.set(register, value);
        }
        let ip = caller.get(RETURN_ADDRESS)?;
        caller.set(IP, Some(arch::without_signature(ip)));
        caller.set(SP, Some(top));
        Some(caller)
    }
}

/// Whether the frame of the code at an address is addressed by a register that the unwinder does not
/// keep. The unwinder does not report that: it uses the frame pointer, which may be any outer frame's. `None`: the code
/// has no table.
pub fn needed(map: &Snapshot, address: u64) -> Option<bool> {
    let by_other = |row: &Row| match row.cfa() {
        CfaRule::RegisterAndOffset { register, .. } => ![SP, BP].contains(register),
        CfaRule::Expression(_) => false,
    };
    with_row(map, address, by_other)
}

/// Looks at what the tables say about an address.
#[inline(never)]
pub fn with_row<T>(map: &Snapshot, address: u64, look: impl FnOnce(&Row) -> T) -> Option<T> {
    let tables = map.tables(address)?;
    let place = |bytes: &[u8]| bytes.as_ptr() as u64;
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(place(tables.header))
        .set_eh_frame(place(tables.frames));
    let header = EhFrameHdr::new(tables.header, NativeEndian);
    let header = header.parse(&bases, 8).ok()?;
    let mut frames = EhFrame::new(tables.frames, NativeEndian);
    frames.set_vendor(arch::VENDOR);
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let found = header.table()?.unwind_info_for_address(
        &frames,
        &bases,
        &mut context,
        address,
        EhFrame::cie_from_offset,
    );
    found.ok().map(look)
}
