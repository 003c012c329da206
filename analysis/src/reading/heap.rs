//! The program's heap, replayed from its calls: live blocks, the peak, and each origin's share.
//!
//! One thread. Memory grows with live blocks and with origins, not with calls.
//!
//! A realloc's old block leaves its address when the call begins, because another thread may get that
//! address before the call ends. It is live until the call succeeds: meanwhile the caller of `detach`
//! holds its slot.
//!
//! A block lies in the slot that became free last: most blocks are young, so the slots that change stay in the
//! processor's cache.
//!
//! Invariants: `counters.live_bytes` = sum of `origins[*].live_bytes` = sum of the sizes of all blocks,
//! detached ones included; `peak_bytes >= live_bytes` at every step. An origin's bytes at the peak are
//! settled at its next change (`Origin::settle`), so a new peak costs nothing: an origin that has not
//! changed since the peak has now the bytes that it had then. The other counters of what was allocated are summed up
//! from the origins at the end (`Heap::settle`).

use larder_trace::{AllocCall, Counter};

use super::addresses::Addresses;
use super::family::{Counters, Kind};

/// Blocks smaller than this are tiny: the allocator's overhead is a large part of them.
pub const TINY_BLOCK_BYTES: u64 = 32;

/// Those of advice take 8 MiB then.
const MANY_BLOCKS: usize = 1 << 17;

/// A distinct stack and call, as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginId(u32);

impl OriginId {
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A live block, with an observer's note.
#[derive(Clone, Copy, Debug)]
pub struct Block<T = ()> {
    pub size: u64,
    pub origin: OriginId,
    pub note: T,
}

/// Live blocks by number, their slot: a new one gets the slot that became free last.
pub struct Slab<T> {
    /// A free slot has its last block.
    blocks: Vec<Block<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Copy> Slab<T> {
    #[inline]
    pub fn add(&mut self, block: Block<T>) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.blocks[slot as usize] = block;
                slot
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
        }
    }

    /// Frees a slot; returns its block.
    #[inline]
    pub fn end(&mut self, slot: u32) -> Option<Block<T>> {
        let block = self.get(slot).copied();
        if block.is_some() {
            self.free.push(slot);
        }
        block
    }

    #[inline]
    pub fn get(&self, slot: u32) -> Option<&Block<T>> {
        self.blocks.get(slot as usize)
    }

    /// Looks at the blocks that the next calls end, if there are so many that they may not be in the processor's cache:
    /// the loads of many calls overlap, where those of one call wait for each other.
    pub fn look_ahead(&self, slots: impl Iterator<Item = u32>) {
        if self.blocks.len() >= MANY_BLOCKS {
            let blocks = slots.filter_map(|slot| self.get(slot));
            std::hint::black_box(blocks.fold(0, |sum, block| sum ^ block.size));
        }
    }
}

/// The requests of one origin.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub calls: u64,
    pub bytes: u64,
    pub tiny: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
    /// Valid after `Heap::settle`, as `peak_blocks` is.
    pub peak_bytes: u64,
    pub peak_blocks: u64,
    changed_at: u64,
}

impl Origin {
    /// To be called before live bytes change: if the last peak came after the last change, the bytes
    /// live now were live at that peak.
    fn settle(&mut self, peak_at: u64, now: u64) {
        if peak_at >= self.changed_at {
            self.peak_bytes = self.live_bytes;
            self.peak_blocks = self.live_blocks;
        }
        self.changed_at = now;
    }
}

pub struct Heap<T = ()> {
    counters: Counters,
    /// The slot of the block at an address.
    places: Addresses,
    blocks: Slab<T>,
    origins: Vec<Origin>,
    /// The number of changes of the heap so far.
    now: u64,
    peak_at: u64,
}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            places: Addresses::default(),
            blocks: Slab::default(),
            origins: Vec::new(),
            now: 0,
            peak_at: 0,
        }
    }
}

impl<T: Copy + Default> Heap<T> {
    pub fn add_origin(&mut self) -> OriginId {
        self.origins.push(Origin {
            changed_at: self.now + 1,
            ..Origin::default()
        });
        OriginId((self.origins.len() - 1) as u32)
    }

    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Adds a block, and returns its slot; its note is the default. If one is live at the same address, its free was
    /// not recorded: it ends now, and `replaced` gets its slot before.
    #[inline]
    pub fn allocate(
        &mut self,
        address: u64,
        (size, origin): (u64, OriginId),
        replaced: impl FnOnce(u32, &Block<T>),
    ) -> u32 {
        let block = Block {
            size,
            origin,
            note: T::default(),
        };
        let slot = match self.places.insert(address, || self.blocks.add(block)) {
            Ok(slot) => slot,
            Err(slot) => {
                let place = &mut self.blocks.blocks[slot as usize];
                let old = std::mem::replace(place, block);
                replaced(slot, &old);
                self.uncount(&old);
                slot
            }
        };
        self.now += 1;
        self.counters.live_bytes = self.counters.live_bytes.saturating_add(size);
        let entry = &mut self.origins[origin.index()];
        entry.settle(self.peak_at, self.now);
        entry.calls += 1;
        entry.bytes = entry.bytes.saturating_add(size);
        entry.live_blocks += 1;
        entry.live_bytes = entry.live_bytes.saturating_add(size);
        entry.tiny += u64::from(size < TINY_BLOCK_BYTES);
        if self.counters.live_bytes > self.counters.peak_bytes {
            self.counters.peak_bytes = self.counters.live_bytes;
            self.peak_at = self.now;
        }
        slot
    }

    /// Ends the block at an address, if one is known there; returns its slot.
    #[inline]
    pub fn end_block(&mut self, address: u64) -> Option<u32> {
        let slot = self.detach(address)?;
        self.release(slot);
        Some(slot)
    }

    /// Removes a block from its address; it stays live.
    #[inline]
    pub fn detach(&mut self, address: u64) -> Option<u32> {
        self.places.remove(address)
    }

    /// Puts a detached block back; false if its address was taken.
    pub fn attach(&mut self, address: u64, slot: u32) -> bool {
        self.places.insert(address, || slot).is_ok()
    }

    /// Ends a detached block.
    #[inline]
    pub fn release(&mut self, slot: u32) {
        if let Some(block) = self.blocks.end(slot) {
            self.uncount(&block);
        }
    }

    /// A block that is live, or whose slot no other block has got since.
    #[inline]
    pub fn block(&self, slot: u32) -> &Block<T> {
        &self.blocks.blocks[slot as usize]
    }

    /// See `Slab::look_ahead`.
    pub fn look_ahead(&self, addresses: impl Iterator<Item = u64>) {
        let slots = addresses.filter_map(|address| self.places.peek(address));
        self.blocks.look_ahead(slots);
    }

    #[inline]
    pub fn set_note(&mut self, slot: u32, note: T) {
        self.blocks.blocks[slot as usize].note = note;
    }

    #[inline]
    fn uncount(&mut self, block: &Block<T>) {
        self.now += 1;
        self.counters.live_bytes = self.counters.live_bytes.saturating_sub(block.size);
        let entry = &mut self.origins[block.origin.index()];
        entry.settle(self.peak_at, self.now);
        entry.live_blocks -= 1;
        entry.live_bytes = entry.live_bytes.saturating_sub(block.size);
    }

    /// Adds an origin's counters from a recorder. Its share of the peak is not known, and stays 0.
    pub fn add_counted(&mut self, origin: OriginId, counted: &Counter) {
        let live_blocks = counted.calls.saturating_sub(counted.ended);
        let live_bytes = counted.bytes.saturating_sub(counted.ended_bytes);
        let origin = &mut self.origins[origin.index()];
        for (sum, more) in [
            (&mut self.counters.live_bytes, live_bytes),
            (&mut origin.calls, counted.calls),
            (&mut origin.bytes, counted.bytes),
            (&mut origin.tiny, counted.tiny),
            (&mut origin.live_blocks, live_blocks),
            (&mut origin.live_bytes, live_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The live blocks, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &Block<T>)> {
        let places = self.places.iter();
        places.map(|(address, slot)| (address, self.block(slot)))
    }

    /// The slots of the live blocks, in the same order.
    pub fn live_slots(&self) -> impl Iterator<Item = u32> {
        self.places.iter().map(|(_, slot)| slot)
    }

    /// To be called once after the last change, with what each origin called: from then on the origins' peaks and the
    /// counters are valid.
    pub fn settle(&mut self, called: impl Iterator<Item = (Kind, AllocCall)>) {
        let counters = &mut self.counters;
        for (origin, (kind, call)) in self.origins.iter_mut().zip(called) {
            origin.settle(self.peak_at, u64::MAX);
            counters.count_allocations(kind, call, origin.calls);
            for (sum, more) in [
                (&mut counters.total_bytes, origin.bytes),
                (&mut counters.tiny, origin.tiny),
                (&mut counters.live_blocks, origin.live_blocks),
            ] {
                *sum = sum.saturating_add(more);
            }
        }
    }

    /// In the order in which they were added.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn malloc(heap: &mut Heap, origin: OriginId, address: u64, size: u64) {
        heap.allocate(address, (size, origin), |_, _| {});
    }

    fn settle(heap: &mut Heap) {
        heap.settle(std::iter::repeat((Kind::Malloc, AllocCall::Malloc)));
    }

    #[test]
    fn the_peak_is_charged_to_what_was_live_at_it() {
        let mut heap = Heap::<()>::default();
        let [early, late, idle] = [heap.add_origin(), heap.add_origin(), heap.add_origin()];
        malloc(&mut heap, idle, 1, 7);
        malloc(&mut heap, early, 2, 100);
        heap.end_block(2);
        malloc(&mut heap, early, 3, 40);
        malloc(&mut heap, late, 4, 90); // The peak: 7 + 40 + 90.
        heap.end_block(3);
        heap.end_block(4);
        malloc(&mut heap, late, 5, 50);
        settle(&mut heap);
        let (counters, origins) = (heap.counters(), heap.origins());
        assert_eq!(counters.peak_bytes, 137);
        assert_eq!(counters.live_bytes, 57);
        let peaks: Vec<u64> = origins.iter().map(|origin| origin.peak_bytes).collect();
        assert_eq!(peaks, [40, 90, 7]);
    }

    #[test]
    fn an_origin_first_seen_after_the_peak_has_no_share_in_it() {
        let mut heap = Heap::<()>::default();
        let first = heap.add_origin();
        malloc(&mut heap, first, 1, 100);
        heap.end_block(1);
        let second = heap.add_origin();
        malloc(&mut heap, second, 2, 10);
        settle(&mut heap);
        let (counters, origins) = (heap.counters(), heap.origins());
        assert_eq!(counters.peak_bytes, 100);
        assert_eq!(origins[0].peak_bytes, 100);
        assert_eq!(origins[1].peak_bytes, 0);
    }

    #[test]
    fn peaks_of_the_origins_add_up_to_the_peak() {
        let mut heap = Heap::<()>::default();
        let origins: Vec<OriginId> = (0..5).map(|_| heap.add_origin()).collect();
        let mut state = 12345u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let address = (state >> 33) % 500;
            if state >> 63 == 0 || heap.end_block(address).is_none() {
                let origin = origins[(state >> 20) as usize % 5];
                malloc(&mut heap, origin, address, (state >> 40) % 1000);
            }
        }
        settle(&mut heap);
        let (counters, origins) = (heap.counters(), heap.origins());
        assert_eq!(
            origins.iter().map(|o| o.peak_bytes).sum::<u64>(),
            counters.peak_bytes
        );
        assert_eq!(
            origins.iter().map(|o| o.live_bytes).sum::<u64>(),
            counters.live_bytes
        );
        assert_eq!(
            origins.iter().map(|o| o.bytes).sum::<u64>(),
            counters.total_bytes
        );
    }

    #[test]
    fn a_block_at_an_address_that_was_live_replaces_it() {
        let mut heap = Heap::<()>::default();
        let origin = heap.add_origin();
        malloc(&mut heap, origin, 1, 10);
        malloc(&mut heap, origin, 1, 20);
        settle(&mut heap);
        let counters = heap.counters();
        assert_eq!(
            (
                counters.live_bytes,
                counters.live_blocks,
                counters.peak_bytes
            ),
            (20, 1, 20)
        );
    }

    #[test]
    fn tiny_blocks_are_those_under_32_bytes() {
        let mut heap = Heap::<()>::default();
        let origin = heap.add_origin();
        for (address, size) in [(1, 0), (2, 31), (3, 32)] {
            malloc(&mut heap, origin, address, size);
        }
        settle(&mut heap);
        assert_eq!(heap.counters().tiny, 2);
    }
}
