//! Threads' heaps (alloc/core/thread_heap.h), and which thread has each.
//!
//! A heap does not record its thread. But its list heads lie in the thread's static TLS, which glibc's
//! thread descriptor follows. That begins with its own address, twice, and has the thread's number at
//! an offset that has not changed since 2.34. The number counts if the process has such a thread.

use std::collections::{HashMap, HashSet};

use larder_base::printable;

use super::Obstacle;
use super::anchor::Anchor;
use super::memory::{Fields, Memory, Pieces};
use super::pages;
use super::residence::Residence;

/// More than LARDER_MAX_HEAPS allows, plus the shared heaps.
const MOST_HEAPS: usize = 8192;
/// Free objects and sample points in all lists; reading as many takes one to ten seconds.
const MOST_FREE: u32 = 1 << 25;
/// Bytes behind the list heads in which a thread's descriptor may begin.
const MOST_TLS: usize = 16 << 10;
const TID_IN_DESCRIPTOR: u64 = 0x2d0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A running thread; its number, if it is known.
    Thread(Option<u32>),
    /// Its thread has ended; the next new thread takes it over.
    Waiting,
    /// Shared by the threads beyond the limit on heaps.
    Shared,
    /// Its thread did not survive fork.
    Orphaned,
}

/// A heap at the time of the snapshot.
#[derive(Clone, Debug)]
pub struct ThreadHeap {
    pub holder: Holder,
    /// The kernel's name for the thread.
    pub name: String,
    /// Bytes in the slabs that it owns: of objects in use, and free.
    pub in_use: u64,
    pub free: u64,
    /// Bytes of freed spans in its cache.
    pub cached_spans: u64,
    pub slabs: u64,
    /// Since the heap was made, also by earlier threads.
    pub refills: u64,
    pub fresh_slabs: u64,
    pub remote_frees: u64,
}

impl ThreadHeap {
    /// Bytes, in use and free.
    pub fn held(&self) -> u64 {
        let in_slabs = self.in_use.saturating_add(self.free);
        in_slabs.saturating_add(self.cached_spans)
    }
}

/// The heaps, and the number of free objects of each class in each heap's list.
pub struct Heaps {
    pub heaps: Vec<ThreadHeap>,
    pub index: HashMap<u64, usize>,
    pub listed: HashMap<(u64, usize), u32>,
}

pub fn read(
    memory: &Memory,
    anchor: &Anchor,
    residence: &mut Residence,
    capacities: &[u16],
) -> Result<Heaps, Obstacle> {
    let threads = threads(memory);
    let mut found = Heaps {
        heaps: Vec::new(),
        index: HashMap::new(),
        listed: HashMap::new(),
    };
    let mut pieces = Pieces::new(memory);
    let mut left = MOST_FREE;
    for (address, shared) in addresses(memory, anchor)? {
        let layout = &anchor.heaps;
        let bytes = residence.read(memory, address, layout.heap_bytes.into())?;
        let fields = Fields(&bytes);
        let heads = fields.u64(layout.heads.into());
        let holder = match () {
            () if fields.u8(layout.orphaned.into()) != 0 => Holder::Orphaned,
            () if shared => Holder::Shared,
            () if fields.u8(layout.assigned.into()) == 0 => Holder::Waiting,
            () => Holder::Thread(thread_of(memory, heads, &threads)),
        };
        if !matches!(holder, Holder::Orphaned) {
            for (class, capacity) in capacities.iter().enumerate() {
                let most = left.min(u32::from(*capacity) + 256);
                let lists = lists(&mut pieces, anchor, &fields, class, most as usize);
                let mut count = 0;
                // They change while they are followed: an address that cannot be read ends one, and so does `most`.
                for mut at in lists.iter().copied() {
                    while let Ok(next) = pieces.word(at).map(pages::linked)
                        && next != 0
                        && count < most
                    {
                        count += 1;
                        at = next;
                    }
                }
                left = left.saturating_sub(count.max(lists.len() as u32 - 1));
                if left == 0 {
                    return Err(Obstacle::Unsound("the lists of free objects"));
                }
                if count > 0 {
                    found.listed.insert((address, class), count);
                }
            }
        }
        let name = match holder {
            Holder::Thread(Some(thread)) => threads.get(&thread).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        found.index.insert(address, found.heaps.len());
        found.heaps.push(ThreadHeap {
            holder,
            name,
            in_use: 0,
            free: 0,
            cached_spans: fields.u64(layout.cached_span_bytes.into()),
            slabs: 0,
            refills: fields.u64(layout.refills.into()),
            fresh_slabs: fields.u64(layout.fresh_slabs.into()),
            remote_frees: fields.u64(layout.remote_frees.into()),
        });
    }
    Ok(found)
}

/// Each heap's address, and whether it is a shared one.
pub fn addresses(memory: &Memory, anchor: &Anchor) -> Result<Vec<(u64, bool)>, Obstacle> {
    let layout = &anchor.heaps;
    let (mut found, mut met) = (Vec::new(), HashSet::new());
    let mut at = memory.word(layout.first)?;
    while at != 0 {
        if !met.insert(at) || met.len() > MOST_HEAPS {
            return Err(Obstacle::Unsound("the list of heaps"));
        }
        found.push((at, false));
        at = memory.word(at.wrapping_add(layout.next.into()))?;
    }
    let shared = memory.bytes(layout.shared, usize::from(layout.most_shared) * 8)?;
    let shared = (0..usize::from(layout.most_shared)).map(|i| Fields(&shared).u64(i * 8));
    found.extend(shared.filter(|heap| *heap != 0).map(|heap| (heap, true)));
    Ok(found)
}

/// Where the lists of free objects of a class begin: with the heap's own, and one behind each sample point, up to
/// `most`. `heap` is what was read of a heap.
pub fn lists(
    pieces: &mut Pieces<'_>,
    anchor: &Anchor,
    heap: &Fields<'_>,
    class: usize,
    most: usize,
) -> Vec<u64> {
    let (layout, sampler) = (&anchor.heaps, &anchor.sampler);
    let heads = heap.u64(layout.heads.into());
    let mut found = vec![heads.wrapping_add(class as u64 * 8)];
    let bin = usize::from(layout.bins) + class * usize::from(layout.bin_bytes);
    let mut point = heap.u64(bin + usize::from(layout.bin_points));
    while point != 0 && found.len() <= most {
        found.push(point.wrapping_add(sampler.point_slot.into()));
        let next = point.wrapping_add(sampler.point_next.into());
        point = pieces.word(next).unwrap_or(0);
    }
    found
}

/// The process's threads and their names, for printing.
fn threads(memory: &Memory) -> HashMap<u32, String> {
    let entries = std::fs::read_dir(memory.proc_path("task"))
        .into_iter()
        .flatten()
        .flatten();
    let threads = entries.filter_map(|entry| {
        let thread: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read(entry.path().join("comm")).ok()?;
        Some((thread, printable::escape_bytes(name.trim_ascii_end())))
    });
    threads.collect()
}

fn thread_of(memory: &Memory, heads: u64, threads: &HashMap<u32, String>) -> Option<u32> {
    let mut bytes = memory.bytes(heads, MOST_TLS);
    // Less may be mapped.
    for size in [4096, 1024] {
        bytes = bytes.or_else(|_| memory.bytes(heads, size));
    }
    let bytes = bytes.ok()?;
    let fields = Fields(&bytes);
    let descriptor = (0..bytes.len() / 8).map(|i| (i * 8, heads + i as u64 * 8));
    let mut own = descriptor
        .filter(|(at, address)| fields.u64(*at) == *address && fields.u64(at + 16) == *address);
    let (_, address) = own.next()?;
    let thread = memory.word(address.wrapping_add(TID_IN_DESCRIPTOR)).ok()? as u32;
    threads.contains_key(&thread).then_some(thread)
}
