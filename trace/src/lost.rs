//! The blocks that no pointer led to at the program's end, see `larder record --leaks`.
//!
//! Invariant: `addresses` ascend. An incomplete result is ignored.

use crate::varint::{Input, Out};

/// Addresses in one chunk; each takes up to ten bytes.
const ADDRESSES_A_CHUNK: usize = 100_000;
const MOST_BYTES: usize = 10 * (ADDRESSES_A_CHUNK + 2);

/// The result of one check of all live blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// In ticks: blocks that are allocated at these addresses later are not meant.
    pub time: u64,
    addresses: Vec<u64>,
    /// Missing chunks of the result.
    left: u64,
}

impl Lost {
    /// Whether the block that was at the address at that time was lost.
    pub fn has(&self, address: u64) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }

    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.left == 0
    }
}

/// The payloads of the result's chunks. REQUIRES: the addresses ascend, and none is 0.
pub fn encode(time: u64, addresses: &[u64]) -> Vec<Vec<u8>> {
    let chunks = addresses.len().div_ceil(ADDRESSES_A_CHUNK).max(1);
    let of = |chunk: usize| {
        let begin = chunk * ADDRESSES_A_CHUNK;
        let end = addresses.len().min(begin + ADDRESSES_A_CHUNK);
        let mut payload = vec![0; MOST_BYTES];
        let mut out = Out::new(&mut payload);
        out.varint(time);
        out.varint((chunks - 1 - chunk) as u64);
        let mut before = 0;
        for address in addresses.get(begin..end).unwrap_or_default() {
            out.varint(address.wrapping_sub(before));
            before = *address;
        }
        let length = out.finish().unwrap_or(0);
        payload.truncate(length);
        payload
    };
    (0..chunks).map(of).collect()
}

/// Adds a chunk; a later result replaces an earlier one. `None`: it is malformed, or not the next one.
pub(crate) fn apply(payload: &[u8], found: &mut Option<Lost>) -> Option<()> {
    let mut input = Input::new(payload);
    let (time, left) = (input.varint()?, input.varint()?);
    let mut next = match found.take() {
        Some(before) if before.time == time => match before.left.checked_sub(1) == Some(left) {
            true => before,
            false => return None,
        },
        Some(before) if before.time > time => {
            *found = Some(before);
            return None;
        }
        _ => Lost::default(),
    };
    (next.time, next.left) = (time, left);
    let mut address = 0u64;
    let least = next.addresses.last().copied().unwrap_or(0);
    while !input.is_empty() {
        let more = input.varint()?;
        address = address.checked_add(more)?;
        if more == 0 || address <= least {
            return None;
        }
        next.addresses.push(address);
    }
    *found = Some(next);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payloads: &[Vec<u8>]) -> Option<Lost> {
        let mut found = None;
        for payload in payloads {
            apply(payload, &mut found)?;
        }
        found.filter(Lost::is_whole)
    }

    #[test]
    fn what_was_written_is_read() {
        let many: Vec<u64> = (1..250_001).map(|n| n * 48).collect();
        for addresses in [&[][..], &[1], &[16, 32, u64::MAX], &many] {
            let payloads = encode(7, addresses);
            let lost = read(&payloads).expect("whole");
            assert_eq!((lost.time, lost.addresses()), (7, addresses));
            assert!(addresses.iter().all(|address| lost.has(*address)) && !lost.has(17));
        }
        assert_eq!(encode(7, &many).len(), 3);
    }

    #[test]
    fn a_result_that_lacks_a_chunk_is_ignored() {
        let many: Vec<u64> = (1..250_001).collect();
        let [first, second, third] = &encode(7, &many)[..] else {
            panic!("three chunks");
        };
        let of = |parts: &[&Vec<u8>]| read(&parts.iter().map(|p| (*p).clone()).collect::<Vec<_>>());
        assert!(of(&[first, second, third]).is_some());
        for parts in [
            &[first, second][..],
            &[first, third],
            &[first, first, second, third],
            &[second, first, third],
        ] {
            assert_eq!(of(parts), None);
        }
    }

    #[test]
    fn a_later_result_counts_and_a_malformed_chunk_leaves_none() {
        let (early, late) = (encode(7, &[16, 32]), encode(9, &[48]));
        let lost = read(&[early[0].clone(), late[0].clone()]).expect("whole");
        assert_eq!((lost.time, lost.addresses()), (9, &[48][..]));
        for cut in 0..2 {
            assert_eq!(read(&[early[0][..cut].to_vec()]), None);
        }
        for bad in [&[7, 0, 0][..], &[7, 0, 0x80], &[7, 0, 16, 0]] {
            assert_eq!(read(&[bad.to_vec()]), None);
        }
        let far = [&[7, 0][..], &[0xff; 9], &[1, 1]].concat();
        assert_eq!(read(&[far]), None);
    }
}
