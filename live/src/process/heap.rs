//! What the heap holds by class and by kind: the library's own heap walk
//! (alloc/statistics/heap_walk.cc) from outside, with the same figures.
//!
//! Descriptors are read a segment's at a time, without the system pages that were never written to.
//! Time and memory grow with the segments: 20 microseconds each.

use std::collections::HashSet;

use super::Obstacle;
use super::anchor::{Anchor, KINDS, counter, kind, part};
use super::heaps::{self, Heaps, ThreadHeap};
use super::memory::{Fields, Memory};
use super::pages::{self, ClassTable, PAGE, PAGES, SEGMENT};
use super::residence::Residence;

/// System calls that are counted, in the order of their counters.
pub const CALLS: [&str; 4] = ["mmap", "munmap", "mremap", "madvise"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    /// The part that is in memory.
    pub resident: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub size: u32,
    /// In use.
    pub objects: u64,
    pub slabs: u64,
    /// Free, and allocated before.
    pub free_objects: u64,
}

/// Bytes, except where a name has another unit.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// By `KINDS`.
    pub kinds: [Size; KINDS.len()],
    /// The classes that have a slab.
    pub classes: Vec<Class>,
    pub heaps: Vec<ThreadHeap>,
    pub mapped: u64,
    /// The soft and the hard limit; 0: none.
    pub limits: [u64; 2],
    pub objects: u64,
    pub slabs: u64,
    /// Counts of objects with a span, and of those with a mapping.
    pub spans: u64,
    pub mappings: u64,
    /// Upper bound on the bytes in use beyond what was requested.
    pub rounding_most: u64,
    pub mapped_total: u64,
    pub purged_total: u64,
    pub reused_total: u64,
    pub realloc_copied: u64,
    /// By `CALLS`.
    pub calls: [u64; CALLS.len()],
    /// Descriptors that are inconsistent; their memory is left out.
    pub unsound: u64,
    /// False if more is mapped than `Residence` reads.
    pub resident_known: bool,
}

impl Heap {
    pub fn in_use(&self) -> u64 {
        self.kinds[part::IN_USE].bytes
    }

    /// Bytes in use in slabs.
    fn in_slabs(&self) -> u64 {
        let classes = self.classes.iter();
        let sizes = classes.map(|class| class.objects.saturating_mul(class.size.into()));
        sizes.fold(0, u64::saturating_add)
    }

    /// Bytes in use in slabs without an owner: full ones, and those on central lists.
    pub fn in_no_heap(&self) -> u64 {
        let owned = self.heaps.iter().map(|heap| heap.in_use);
        self.in_slabs()
            .saturating_sub(owned.fold(0, u64::saturating_add))
    }

    /// Bytes in use in spans and mappings of one object.
    pub fn in_large(&self) -> u64 {
        self.in_use().saturating_sub(self.in_slabs())
    }

    /// The heap's part of the process's RSS.
    pub fn resident(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.resident).sum()
    }
}

pub fn read(memory: &Memory, anchor: &Anchor) -> Result<Heap, Obstacle> {
    let classes = ClassTable::read(memory, anchor)?;
    let mut residence = Residence::open(memory)?;
    let heaps = heaps::read(memory, anchor, &mut residence, &classes.capacities)?;
    let mut walk = Walk {
        memory,
        anchor,
        residence,
        out: Heap {
            classes: classes
                .sizes
                .iter()
                .map(|size| Class {
                    size: *size,
                    ..Class::default()
                })
                .collect(),
            ..Heap::default()
        },
        classes,
        heaps,
        object_bytes: 0,
        leaves: HashSet::new(),
    };
    walk.regions()?;
    walk.mappings()?;
    walk.cached_mappings()?;
    walk.counters()?;
    walk.metadata()?;
    let mut heap = walk.out;
    heap.resident_known = walk.residence.is_complete();
    heap.classes.retain(|class| class.slabs > 0);
    heap.heaps = walk.heaps.heaps;
    Ok(heap)
}

struct Walk<'a> {
    memory: &'a Memory,
    anchor: &'a Anchor,
    residence: Residence,
    classes: ClassTable,
    heaps: Heaps,
    out: Heap,
    /// Bytes mapped for objects.
    object_bytes: u64,
    /// Leaves of the page map, by the upper bits of the addresses that they cover.
    leaves: HashSet<u64>,
}

/// A slab's descriptor.
struct Descriptor<'a> {
    fields: Fields<'a>,
    address: u64,
}

impl Walk<'_> {
    fn add(&mut self, part: usize, start: u64, bytes: u64) {
        let resident = self.residence.resident(start, start.saturating_add(bytes));
        self.add_known(part, bytes, resident);
    }

    fn add_known(&mut self, part: usize, bytes: u64, resident: u64) {
        let size = &mut self.out.kinds[part];
        size.bytes = size.bytes.saturating_add(bytes);
        size.resident = size.resident.saturating_add(resident);
    }

    fn regions(&mut self) -> Result<(), Obstacle> {
        for region in pages::regions(self.memory, self.anchor)? {
            self.region(region.base, region.table, region.segments)?;
        }
        Ok(())
    }

    fn region(&mut self, base: u64, table: u64, count: usize) -> Result<(), Obstacle> {
        let layout = &self.anchor.pages;
        let (segment, slab) = (
            usize::from(layout.segment_bytes),
            usize::from(layout.slab_bytes),
        );
        self.object_bytes += count as u64 * SEGMENT;
        self.note_leaf(base, count as u64 * SEGMENT);
        let slabs = table.wrapping_add((count * segment) as u64);
        if count > usize::from(layout.shared_table_segments) {
            self.descriptors(table, (count * (segment + PAGES * slab)) as u64);
        }
        let segments = self.memory.bytes(table, count * segment)?;
        for (i, bytes) in segments.chunks_exact(segment).enumerate() {
            let fields = Fields(bytes);
            let free = fields.u128(layout.segment_free.into());
            let dirty = fields.u128(layout.segment_dirty.into());
            let table = slabs.wrapping_add((i * PAGES * slab) as u64);
            self.segment(base + i as u64 * SEGMENT, table, free, dirty)?;
        }
        Ok(())
    }

    fn segment(&mut self, base: u64, table: u64, free: u128, dirty: u128) -> Result<(), Obstacle> {
        let slab = usize::from(self.anchor.pages.slab_bytes);
        let bytes = match free {
            u128::MAX => Vec::new(),
            _ => self.residence.read(self.memory, table, PAGES * slab)?,
        };
        let mut page = 0;
        while page < PAGES {
            let start = base + page as u64 * PAGE;
            let (is_free, is_dirty) = (free >> page & 1 != 0, dirty >> page & 1 != 0);
            let descriptor = Descriptor {
                fields: Fields(bytes.get(page * slab..).unwrap_or_default()),
                address: table.wrapping_add((page * slab) as u64),
            };
            if !is_free && let Some(pages) = self.span(&descriptor, start, PAGES - page) {
                page += pages;
                continue;
            }
            let of = match (is_free, is_dirty) {
                (false, _) => part::CACHED_SPANS,
                (true, true) => part::PAGE_DIRTY,
                (true, false) => part::PAGE_CLEAN,
            };
            self.add(of, start, PAGE);
            page += 1;
        }
        Ok(())
    }

    /// The pages of the span that begins here, if one does.
    fn span(&mut self, descriptor: &Descriptor<'_>, start: u64, left: usize) -> Option<usize> {
        let (layout, fields) = (&self.anchor.pages, &descriptor.fields);
        let kind = fields.u8(layout.slab_kind.into());
        if fields.u64(layout.slab_base.into()) != start || kind < kind::SLAB {
            return None;
        }
        let pages = fields.u16(layout.slab_pages.into()) as usize;
        if kind > kind::SPAN || pages == 0 || pages > left {
            self.out.unsound += 1;
            return None;
        }
        let bytes = pages as u64 * PAGE;
        match kind {
            kind::SLAB => self.slab(descriptor, start, bytes),
            kind::SAMPLED => self.add(part::SAMPLE_SLABS, start, bytes),
            _ => {
                self.out.spans += 1;
                self.large(start, bytes, fields.u32(layout.slab_offset.into()).into());
            }
        }
        Some(pages)
    }

    fn slab(&mut self, descriptor: &Descriptor<'_>, start: u64, bytes: u64) {
        let (layout, fields) = (&self.anchor.pages, &descriptor.fields);
        let class = usize::from(fields.u8(layout.slab_class.into()));
        let carved = fields.u16(layout.slab_carved.into());
        let capacity = fields.u16(layout.slab_capacity.into());
        let size = self.classes.sizes.get(class).copied().map_or(0, u64::from);
        if size == 0 || carved > capacity || u64::from(capacity) * size > bytes {
            self.out.unsound += 1;
            return self.add(part::IN_USE, start, bytes);
        }
        let owner = fields.u64(layout.slab_owner.into());
        let used = self.objects_in_use(descriptor, owner, class, carved.into());
        let (carved, in_use) = (u64::from(carved), u64::from(used) * size);
        let below = class
            .checked_sub(1)
            .and_then(|below| self.classes.sizes.get(below));
        let below = below.copied().map_or(0, u64::from);
        self.out.rounding_most += u64::from(used) * size.saturating_sub(below + 1);
        self.out.objects += u64::from(used);
        self.out.slabs += 1;
        if let Some(of) = self.out.classes.get_mut(class) {
            of.objects += u64::from(used);
            of.slabs += 1;
            of.free_objects += carved - u64::from(used);
        }
        let heap = self
            .heaps
            .index
            .get(&owner)
            .and_then(|i| self.heaps.heaps.get_mut(*i));
        if let Some(heap) = heap {
            heap.slabs += 1;
            heap.in_use += in_use;
            heap.free += bytes - in_use;
        }
        let (handed_out, room) = (start + carved * size, start + u64::from(capacity) * size);
        let resident = self.residence.resident(start, handed_out);
        let of_used = resident.min(in_use);
        self.add_known(part::IN_USE, in_use, of_used);
        self.add_known(part::SLAB_FREE, carved * size - in_use, resident - of_used);
        self.add(part::UNCARVED, handed_out, room - handed_out);
        self.add(part::TAIL, room, start + bytes - room);
    }

    fn objects_in_use(&self, slab: &Descriptor<'_>, owner: u64, class: usize, carved: u32) -> u32 {
        let (layout, fields) = (&self.anchor.pages, &slab.fields);
        let own_list = slab.address.wrapping_add(layout.slab_free.into());
        if fields.u64(layout.slab_list.into()) == own_list {
            // `used` has another meaning for a slab on the full list.
            let none_free = pages::linked(fields.u64(layout.slab_free.into())) == 0
                && fields.u16(layout.slab_purged.into()) == 0;
            let used = fields.u32(layout.slab_used.into());
            return if none_free { carved } else { used.min(carved) };
        }
        let listed = self.heaps.listed.get(&(owner, class)).copied().unwrap_or(0);
        carved.saturating_sub(listed)
    }

    fn large(&mut self, start: u64, bytes: u64, offset: u64) {
        let used = bytes.saturating_sub(offset);
        let resident = self.residence.resident(start, start.saturating_add(bytes));
        let of_used = resident.min(used);
        self.add_known(part::IN_USE, used, of_used);
        self.add_known(part::TAIL, bytes - used, resident - of_used);
        self.out.objects += 1;
        self.out.rounding_most += used.min(PAGE - 1);
    }

    /// Objects with a mapping each, and guarded samples.
    fn mappings(&mut self) -> Result<(), Obstacle> {
        pages::mappings(self.memory, self.anchor, |fields| {
            let pages = &self.anchor.pages;
            let base = fields.u64(pages.slab_base.into());
            let bytes = fields.u64(pages.slab_span_bytes.into());
            if let Some((from, to)) = pages::guarded_pages(self.anchor, fields) {
                self.object_bytes = self.object_bytes.saturating_add(to - from);
                self.note_leaf(base, 1);
                self.add(part::SAMPLE_SLABS, from, to - from);
            } else if base >> 48 == 0 && bytes >> 48 == 0 {
                self.object_bytes = self.object_bytes.saturating_add(bytes);
                self.out.mappings += 1;
                self.note_leaf(base, 1);
                self.large(base, bytes, fields.u32(pages.slab_offset.into()).into());
            } else {
                self.out.unsound += 1;
            }
        })
    }

    fn cached_mappings(&mut self) -> Result<(), Obstacle> {
        for (base, bytes) in pages::cached(self.memory, self.anchor)? {
            self.object_bytes = self.object_bytes.saturating_add(bytes);
            self.note_leaf(base, 1);
            self.add(part::CACHED_MAPPINGS, base, bytes);
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<(), Obstacle> {
        let count = usize::from(self.anchor.parts.counter_count);
        let bytes = self.memory.bytes(self.anchor.parts.counters, count * 8)?;
        // The counters are signed, and may be below 0 for a moment.
        let value = |i: usize| u64::try_from(Fields(&bytes).u64(i * 8) as i64).unwrap_or(0);
        self.out.mapped = value(counter::MAPPED_BYTES);
        self.out.mapped_total = value(counter::MAPPED_TOTAL_BYTES);
        self.out.purged_total = value(counter::PURGED_BYTES);
        self.out.realloc_copied = value(counter::REALLOC_COPIED_BYTES);
        self.out.calls = std::array::from_fn(|i| value(counter::MMAP_CALLS + i));
        let limits = &self.anchor.limits;
        for (limit, at) in self
            .out
            .limits
            .iter_mut()
            .zip([limits.soft_mib, limits.hard_mib])
        {
            *limit = self.memory.word(at)?.saturating_mul(1 << 20);
        }
        let reused = self.memory.word(self.anchor.pages.reused_bytes)?;
        let of_large = self.memory.word(self.anchor.large.reused_bytes)?;
        self.out.reused_total = reused.saturating_add(of_large);
        Ok(())
    }

    /// Counts the resident part of descriptors at a known place.
    fn descriptors(&mut self, start: u64, bytes: u64) {
        self.out.kinds[part::METADATA].resident +=
            self.residence.resident(start, start.saturating_add(bytes));
    }

    /// Notes that the page map's leaves for this range exist.
    fn note_leaf(&mut self, start: u64, bytes: u64) {
        let leaf = u64::from(self.anchor.parts.page_map_leaf_entries).max(1) * PAGE;
        let last = start.saturating_add(bytes.saturating_sub(1)) / leaf;
        // A region has up to two leaves.
        self.leaves.extend([start / leaf, last]);
    }

    fn metadata(&mut self) -> Result<(), Obstacle> {
        self.out.kinds[part::METADATA].bytes = self.out.mapped.saturating_sub(self.object_bytes);
        for chunk in pages::chunks(self.memory, self.anchor)? {
            self.descriptors(chunk, self.anchor.meta.chunk_bytes.into());
        }
        let profile = &self.anchor.profile;
        if profile.slots != 0 {
            let slots = self.memory.word(profile.slots)?;
            let count = self.memory.word(profile.slot_count)?;
            self.descriptors(slots, count.min(1 << 20) * 8);
        }
        let parts = &self.anchor.parts;
        self.descriptors(parts.page_map, parts.page_map_bytes.min(64 << 20));
        for leaf in std::mem::take(&mut self.leaves) {
            let entry = parts.page_map.wrapping_add(leaf * 8);
            let offset = self.memory.word(entry)?;
            if offset != 0 {
                let null_leaf = parts
                    .page_map
                    .wrapping_add(parts.page_map_leaf_offset.into());
                let bytes = u64::from(parts.page_map_leaf_entries) * 8;
                self.descriptors(null_leaf.wrapping_add(offset), bytes);
            }
        }
        Ok(())
    }
}
