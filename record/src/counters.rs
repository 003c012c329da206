//! Counts calls instead of writing them: each stack and call has a counter in a mapped part of the trace
//! file, so that the last state is in the file however the process ends.
//!
//! Thread safety: only the thread whose stream defined a counter adds to it, except for deallocations,
//! which any thread may count. Words with several writers are added to atomically, unless libc reports a
//! single thread. In a child of fork call `after_fork` first.
//!
//! Invariants: a counter's number leads to its place as long as the process runs; every block in `BLOCKS`
//! has such a number as its owner; live in the process = Σ live in the counters. The peak is exact with one
//! thread or below 1 MiB live, else within a thousandth for each thread: an exact sum, written by all
//! threads at each call, would cost more than everything else.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use larder_trace::layout::{
    CHUNK_HEADER_BYTES, COUNTER_BYTES, COUNTER_PLACE_BITS, COUNTERS_OFFSET, ChunkHeader, ChunkKind,
    Contents, Slot,
};
use larder_trace::{FreeCall, StopReason};

use crate::blocks::{Block, Blocks};
use crate::memory::Pages;
use crate::{file, state, sys};

/// The sizes of a stream's successive regions. A number has bits for this many places.
const REGION_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const _: () = assert!(places(REGION_BYTES[4]) <= 1 << COUNTER_PLACE_BITS);
const MAX_REGIONS: usize = 1 << (32 - COUNTER_PLACE_BITS);
/// A thread adds to the process's live bytes when its pending sum exceeds this share of them, from this
/// many on.
const LIVE_PART: u64 = 1024;
const MANY_LIVE_BYTES: u64 = 1 << 20;
const MAX_LOT_BYTES: u64 = 16 << 10;
/// Blocks smaller than this count as tiny; the same as in the tool.
const TINY_BLOCK_BYTES: u64 = 32;

const fn places(bytes: usize) -> usize {
    (bytes - COUNTERS_OFFSET) / COUNTER_BYTES
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static BLOCKS: Blocks = Blocks::new();
static REGIONS: [AtomicPtr<u8>; MAX_REGIONS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_REGIONS];
/// The streams of the regions.
static OWNERS: [AtomicU32; MAX_REGIONS] = [const { AtomicU32::new(0) }; MAX_REGIONS];
static REGION_COUNT: AtomicU32 = AtomicU32::new(0);
static SEVERAL_THREADS: u8 = 0;
/// libc's flag for a single thread.
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new((&raw const SEVERAL_THREADS).cast_mut());

/// The layout in the file.
#[repr(C)]
struct Counter {
    calls: AtomicU64,
    bytes: AtomicU64,
    tiny: AtomicU64,
    ended: AtomicU64,
    ended_bytes: AtomicU64,
    highest_bytes: AtomicU64,
    ended_elsewhere: AtomicU64,
    ended_elsewhere_bytes: AtomicU64,
}

const _: () = assert!(size_of::<Counter>() == COUNTER_BYTES);

/// The sums of a stream, in the layout of the file.
#[repr(C)]
struct Totals {
    frees: AtomicU64,
    deletes: AtomicU64,
    failed: AtomicU64,
    unknown_frees: AtomicU64,
    empty: AtomicU64,
    /// Change of the live bytes that is not yet in the process's sum.
    pending: AtomicU64,
}

const _: () = assert!(CHUNK_HEADER_BYTES + size_of::<Totals>() == COUNTERS_OFFSET);

/// Whether calls are counted instead of written.
#[inline(always)]
pub fn are_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

pub fn start() {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    if !found.is_null() {
        SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
    }
    IS_ON.store(true, Ordering::Relaxed);
}

#[inline]
fn is_single_threaded() -> bool {
    // SAFETY: libc's variable, or the one above; both exist as long as the process.
    unsafe { SINGLE_THREADED.load(Ordering::Relaxed).read_volatile() != 0 }
}

/// Adds to a word that only the calling thread writes.
#[inline]
fn add_own(word: &AtomicU64, amount: u64) -> u64 {
    let sum = word.load(Ordering::Relaxed).wrapping_add(amount);
    word.store(sum, Ordering::Relaxed);
    sum
}

/// Adds to a word that any thread writes; returns the sum.
#[inline]
fn add_shared(word: &AtomicU64, amount: u64) -> u64 {
    if is_single_threaded() {
        add_own(word, amount)
    } else {
        word.fetch_add(amount, Ordering::Relaxed)
            .wrapping_add(amount)
    }
}

fn counter(number: u32) -> Option<&'static Counter> {
    let region = REGIONS
        .get((number >> COUNTER_PLACE_BITS) as usize)?
        .load(Ordering::Acquire);
    let place = (number & ((1 << COUNTER_PLACE_BITS) - 1)) as usize;
    if region.is_null() {
        return None;
    }
    // SAFETY: numbers are assigned to places within their region, which stays mapped and is aligned.
    Some(unsafe {
        &*region
            .add(COUNTERS_OFFSET + place * COUNTER_BYTES)
            .cast::<Counter>()
    })
}

/// In a child of fork: the file is the parent's, and so are the blocks.
pub fn after_fork() {
    if !are_on() {
        return;
    }
    BLOCKS.after_fork();
    let count = REGION_COUNT.swap(0, Ordering::Relaxed) as usize;
    for region in REGIONS.iter().take(count) {
        let start = region.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !start.is_null() {
            // SAFETY: the child's own mapping, of the size that its header says.
            unsafe {
                let stored = start.add(8).cast::<u32>().read() as usize;
                sys::unmap(start, CHUNK_HEADER_BYTES + stored);
            }
        }
    }
}

/// A stream's counters.
pub struct Tally {
    stream: u32,
    totals: *const Totals,
    /// The number of the next site, and how many more its region has.
    next: u32,
    left: usize,
    /// Regions so far.
    regions: usize,
    /// Limit on the pending change of the live bytes.
    lot: u64,
    of_site: Pages<u32>,
    /// The old block of the current realloc.
    held: Option<Block>,
}

impl Tally {
    pub const fn new(stream: u32) -> Self {
        Tally {
            stream,
            totals: std::ptr::null(),
            next: 0,
            left: 0,
            regions: 0,
            lot: 0,
            of_site: Pages::empty(),
            held: None,
        }
    }

    pub fn release(&mut self) {
        self.of_site.release();
    }

    /// Adds a region. If there is none, stops the recording and returns false.
    #[cold]
    pub fn open(&mut self) -> bool {
        let bytes = REGION_BYTES[self.regions.min(REGION_BYTES.len() - 1)];
        let number = REGION_COUNT.fetch_add(1, Ordering::Relaxed);
        let Some(place) = REGIONS.get(number as usize) else {
            state::stop(StopReason::NoMemory, libc::ENOMEM);
            return false;
        };
        let Some(file::Region { start: region, .. }) = file::map_region(bytes) else {
            return false;
        };
        let header = ChunkHeader {
            kind: ChunkKind::Counters,
            compressed: false,
            columns: false,
            stored_bytes: (bytes - CHUNK_HEADER_BYTES) as u32,
            raw_bytes: 0,
            contents: Contents {
                stream: self.stream,
                seq: number,
                ..Contents::default()
            },
        };
        let encoded = header.encode();
        // SAFETY: a region is longer than a header.
        unsafe { region.copy_from_nonoverlapping(encoded.as_ptr(), encoded.len()) };
        if let Some(owner) = OWNERS.get(number as usize) {
            owner.store(self.stream, Ordering::Relaxed);
        }
        place.store(region, Ordering::Release);
        if self.totals.is_null() {
            self.totals = region.wrapping_add(CHUNK_HEADER_BYTES).cast();
        }
        self.next = number << COUNTER_PLACE_BITS;
        self.left = places(bytes);
        self.regions += 1;
        true
    }

    /// Gives a new site its counter; returns the number.
    #[cold]
    pub fn give(&mut self, site: u32) -> Option<u32> {
        if self.left == 0 && !self.open() {
            return None;
        }
        let wanted = site as usize + 1;
        if wanted > self.of_site.capacity() && !self.of_site.grow(wanted.next_power_of_two()) {
            state::stop(StopReason::NoMemory, libc::ENOMEM);
            return None;
        }
        let number = self.next;
        *self.of_site.slice().get_mut(site as usize)? = number;
        self.next += 1;
        self.left -= 1;
        Some(number)
    }

    /// The counter of a site that has one.
    #[inline]
    pub fn number(&mut self, site: u32) -> Option<u32> {
        self.of_site.slice().get(site as usize).copied()
    }

    fn totals(&self) -> Option<&'static Totals> {
        // SAFETY: null, or in the stream's first region, which stays mapped and is aligned.
        unsafe { self.totals.as_ref() }
    }

    /// Counts a deallocation for the block's owner.
    #[inline]
    fn end(&mut self, block: Block) {
        if let Some(counter) = counter(block.owner) {
            if self.owns(block.owner) {
                add_own(&counter.ended, 1);
                add_own(&counter.ended_bytes, block.size);
            } else {
                add_shared(&counter.ended_elsewhere, 1);
                add_shared(&counter.ended_elsewhere_bytes, block.size);
            }
        }
        self.add_live(block.size.wrapping_neg());
    }

    /// Whether this stream made the counter.
    #[inline]
    fn owns(&self, number: u32) -> bool {
        OWNERS
            .get((number >> COUNTER_PLACE_BITS) as usize)
            .is_some_and(|owner| owner.load(Ordering::Relaxed) == self.stream)
    }

    /// Adds to the live bytes. With several threads the process's sum is updated in batches.
    #[inline]
    fn add_live(&mut self, bytes: u64) {
        let Some(totals) = self.totals() else { return };
        let pending = add_own(&totals.pending, bytes);
        if is_single_threaded() || pending.cast_signed().unsigned_abs() > self.lot {
            self.tell_live();
        }
    }

    /// Adds the pending change to the process's live bytes.
    pub fn tell_live(&mut self) {
        let (Some(totals), Some(live), Some(peak)) = (
            self.totals(),
            file::slot(Slot::LiveBytes),
            file::slot(Slot::PeakBytes),
        ) else {
            return;
        };
        let pending = totals.pending.load(Ordering::Relaxed);
        let sum = add_shared(live, pending);
        totals.pending.store(0, Ordering::Relaxed);
        // The sum may be negative while other threads have pending additions.
        let sum = u64::try_from(sum.cast_signed()).unwrap_or(0);
        if sum > peak.load(Ordering::Relaxed) {
            peak.fetch_max(sum, Ordering::Relaxed);
        }
        self.lot = match sum {
            MANY_LIVE_BYTES.. => (sum / LIVE_PART).min(MAX_LOT_BYTES),
            _ => 0,
        };
    }

    /// Counts an allocation.
    #[inline]
    pub fn made(&mut self, number: u32, address: usize, size: usize) {
        let size = size as u64;
        let owned = Block {
            size,
            owner: number,
        };
        match BLOCKS.insert(address, owned) {
            Ok(None) => {}
            // Its free was not recorded.
            Ok(Some(replaced)) => self.end(replaced),
            Err(_) => state::stop(StopReason::NoMemory, libc::ENOMEM),
        }
        let Some(counter) = counter(number) else {
            return;
        };
        add_own(&counter.calls, 1);
        let bytes = add_own(&counter.bytes, size);
        if size < TINY_BLOCK_BYTES {
            add_own(&counter.tiny, 1);
        }
        let live = bytes
            .wrapping_sub(counter.ended_bytes.load(Ordering::Relaxed))
            .wrapping_sub(counter.ended_elsewhere_bytes.load(Ordering::Relaxed));
        if live > counter.highest_bytes.load(Ordering::Relaxed) {
            counter.highest_bytes.store(live, Ordering::Relaxed);
        }
        self.add_live(size);
    }

    #[cold]
    pub fn failed(&mut self) {
        if let Some(totals) = self.totals() {
            add_own(&totals.failed, 1);
        }
    }

    /// Counts a call that frees a block; called before the free.
    #[inline]
    pub fn freed(&mut self, call: u8, address: usize) {
        let Some(totals) = self.totals() else { return };
        if address == 0 {
            add_own(&totals.empty, 1);
            return;
        }
        add_own(&totals.frees, 1);
        if matches!(
            FreeCall::from_code(call),
            Some(FreeCall::Delete | FreeCall::DeleteArray)
        ) {
            add_own(&totals.deletes, 1);
        }
        match BLOCKS.take(address) {
            Some(block) => self.end(block),
            None => _ = add_own(&totals.unknown_frees, 1),
        }
    }

    /// A realloc begins: the block's address may be reused from now on.
    #[inline]
    pub fn hold(&mut self, old: usize) {
        self.held = BLOCKS.take(old);
    }

    /// A realloc failed: the block lives on, unless its address was handed out.
    #[cold]
    pub fn put_back(&mut self, old: usize) {
        self.failed();
        if let Some(block) = self.held.take()
            && let Ok(Some(newer)) = BLOCKS.insert(old, block)
        {
            let _ = BLOCKS.insert(old, newer);
            self.end(block);
        }
    }

    /// A realloc ended its old block; `freed` if it returned no other.
    #[inline]
    pub fn let_go(&mut self, old: usize, freed: bool) {
        let held = self.held.take();
        if let Some(totals) = self.totals() {
            add_own(&totals.frees, u64::from(freed));
            add_own(&totals.unknown_frees, u64::from(held.is_none() && old != 0));
        }
        if let Some(block) = held {
            self.end(block);
        }
    }
}
