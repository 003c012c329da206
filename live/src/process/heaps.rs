//! Threads' heaps (alloc/core/thread_heap.h), and whose they are.
//!
//! A heap does not know its thread. But its list heads lie in the thread's static TLS, behind which
//! glibc has the thread's descriptor: it begins with its own address, twice, and has the thread's
//! number at a place that has been the same since 2.34. What is found there counts if the process
//! has such a thread.

use std::collections::{HashMap, HashSet};

use larder_base::printable;

use super::Obstacle;
use super::anchor::Anchor;
use super::memory::{Fields, Memory, Pieces};
use super::residence::Residence;

/// More heaps than LARDER_MAX_HEAPS allows, and the shared ones.
const MOST_HEAPS: usize = 8192;
/// Free objects in all lists together, and marks; a second or ten.
const MOST_FREE: u32 = 1 << 25;
/// How far behind the list heads a thread's descriptor may begin.
const MOST_TLS: usize = 16 << 10;
const TID_IN_DESCRIPTOR: u64 = 0x2d0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A living thread; its number, where it can be told.
    Thread(Option<u32>),
    /// Its thread has ended; the next one takes it over.
    Waiting,
    /// Threads beyond the bound on heaps.
    Shared,
    /// Its thread did not come along through fork.
    Dead,
}

/// A heap as it is now.
#[derive(Clone, Debug)]
pub struct ThreadHeap {
    pub holder: Holder,
    /// The thread's, as the kernel knows it.
    pub name: String,
    /// Bytes of objects in slabs that it owns, and of what is free there.
    pub in_use: u64,
    pub free: u64,
    /// Freed runs that it keeps, bytes.
    pub kept_runs: u64,
    pub slabs: u64,
    /// Since it was made, also by threads before this one.
    pub refills: u64,
    pub fresh_slabs: u64,
    pub remote_frees: u64,
}

impl ThreadHeap {
    /// Bytes, used and free.
    pub fn held(&self) -> u64 {
        let in_slabs = self.in_use.saturating_add(self.free);
        in_slabs.saturating_add(self.kept_runs)
    }
}

/// The heaps, and how many free objects of each class each has in its list.
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
            () if fields.u8(layout.orphaned.into()) != 0 => Holder::Dead,
            () if shared => Holder::Shared,
            () if fields.u8(layout.assigned.into()) == 0 => Holder::Waiting,
            () => Holder::Thread(thread_of(memory, heads, &threads)),
        };
        if !matches!(holder, Holder::Dead) {
            for (class, capacity) in capacities.iter().enumerate() {
                let first = heads.wrapping_add(class as u64 * 8);
                let bin = usize::from(layout.bins) + class * usize::from(layout.bin_bytes);
                let marks = fields.u64(bin + usize::from(layout.bin_points));
                let lists = Lists {
                    first,
                    marks,
                    most: u32::from(*capacity) + 256,
                };
                let count = lists.count(&mut pieces, anchor, &mut left);
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
            kept_runs: fields.u64(layout.cached_span_bytes.into()),
            slabs: 0,
            refills: fields.u64(layout.refills.into()),
            fresh_slabs: fields.u64(layout.fresh_slabs.into()),
            remote_frees: fields.u64(layout.remote_frees.into()),
        });
    }
    Ok(found)
}

/// Of all heaps; and whether each is a shared one.
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

/// The free objects of a class: a list, and one behind each mark.
struct Lists {
    first: u64,
    marks: u64,
    most: u32,
}

impl Lists {
    /// Lists change while they are followed: what cannot be read ends one, as `most` does.
    fn count(&self, pieces: &mut Pieces<'_>, anchor: &Anchor, left: &mut u32) -> u32 {
        let most = self.most.min(*left);
        let mut count = 0;
        let mut follow = |pieces: &mut Pieces<'_>, from: u64| {
            let mut at = from;
            while let Ok(next) = pieces.word(at)
                && next != 0
                && count < most
            {
                count += 1;
                at = next;
            }
        };
        follow(pieces, self.first);
        let (mut mark, mut marks) = (self.marks, 0);
        while mark != 0 && marks < most {
            let slot = mark.wrapping_add(anchor.sampler.point_slot.into());
            follow(pieces, slot);
            let next = pieces.word(mark.wrapping_add(anchor.sampler.point_next.into()));
            mark = next.unwrap_or(0);
            marks += 1;
        }
        *left = left.saturating_sub(count.max(marks));
        count
    }
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
    // Where less is mapped.
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
