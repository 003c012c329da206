//! The addresses of a chunk's last calls, so that a record can name one of them again by its age. Ages repeat
//! where addresses do not, so they compress well.
//!
//! Invariant: encoder and decoder note the same addresses in the same order.

use crate::layout::Form;

/// How many are remembered.
const ADDRESSES: usize = 1024;
/// Twice as many, so that few addresses share a place.
const PLACES: usize = 2 * ADDRESSES;
/// The places before version 3, each with an address.
const OLD_PLACES_BITS: u32 = 8;

pub struct Recent {
    form: Form,
    /// Number n of those noted is at n modulo `ADDRESSES`.
    addresses: [u64; ADDRESSES],
    /// Where to look for an address, by its hash. Only the encoder reads it.
    places: [u16; PLACES],
    noted: u32,
}

#[inline]
fn hash(address: u64, bits: u32) -> usize {
    ((address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}

#[inline]
fn place(address: u64) -> usize {
    hash(address, PLACES.ilog2())
}

impl Recent {
    pub const fn new(form: Form) -> Self {
        Recent {
            form,
            addresses: [0; ADDRESSES],
            places: [0; PLACES],
            noted: 0,
        }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    pub fn clear(&mut self) {
        self.addresses.fill(0);
        self.places.fill(0);
        self.noted = 0;
    }

    /// How many were noted after it.
    #[inline]
    pub fn age(&self, address: u64) -> Option<u64> {
        let at = self.places[place(address)];
        let age = self.noted.wrapping_sub(1).wrapping_sub(u32::from(at)) as usize % ADDRESSES;
        (self.addresses[usize::from(at) % ADDRESSES] == address).then_some(age as u64)
    }

    /// The address that a record names.
    pub fn get(&self, name: u64) -> u64 {
        let at = match self.form {
            Form::V3 | Form::Ordered => u64::from(self.noted).wrapping_sub(1).wrapping_sub(name),
            Form::V2 => name,
        };
        self.addresses[at as usize % ADDRESSES]
    }

    /// Notes an address for `get`; returns where.
    #[inline]
    pub fn note_to_get(&mut self, address: u64) -> usize {
        let at = match self.form {
            Form::V3 | Form::Ordered => self.noted as usize % ADDRESSES,
            Form::V2 => hash(address, OLD_PLACES_BITS),
        };
        self.addresses[at] = address;
        self.noted = self.noted.wrapping_add(1);
        at
    }

    /// The same, also for `age`.
    #[inline]
    pub fn note(&mut self, address: u64) {
        self.places[place(address)] = self.note_to_get(address) as u16;
    }
}
