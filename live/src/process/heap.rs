//! What the heap holds by class and by kind: the walk of the library's own survey
//! (alloc/statistics/heap_walk.cc), from outside, with the same figures.
//!
//! Tables of descriptors are read a block's at a time, and pages of them that nothing was ever
//! written to are not touched. Time and memory grow with the blocks: 20 microseconds each.

use std::collections::HashSet;

use super::Obstacle;
use super::anchor::{Anchor, counter, kind};
use super::heaps::{self, Heaps, ThreadHeap};
use super::memory::{Fields, Memory};
use super::pages::{self, BLOCK, ClassTable, UNIT, UNITS};
use super::residence::Residence;

/// The kinds of memory.
pub const KINDS: [&str; 10] = [
    "in_use",
    "slab_free",
    "slab_uncarved",
    "slab_tail",
    "sample_slabs",
    "heap_runs",
    "page_heap_dirty",
    "page_heap_clean",
    "kept_mappings",
    "metadata",
];
/// A kind, by its place in `KINDS`.
#[derive(Clone, Copy)]
enum Part {
    InUse,
    SlabFree,
    Uncarved,
    Tail,
    SampleSlabs,
    HeapRuns,
    PageDirty,
    PageClean,
    Kept,
    Metadata,
}

/// System calls that are counted, in the order of their counters.
pub const CALLS: [&str; 4] = ["mmap", "munmap", "mremap", "madvise"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    /// Of them in memory.
    pub resident: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub size: u32,
    /// In use.
    pub objects: u64,
    pub slabs: u64,
    /// Handed out before, and free.
    pub free_objects: u64,
}

/// Bytes unless a name says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// By `KINDS`.
    pub kinds: [Size; KINDS.len()],
    /// Those with a slab.
    pub classes: Vec<Class>,
    pub heaps: Vec<ThreadHeap>,
    pub mapped: u64,
    /// The soft and the hard one; 0: none.
    pub limits: [u64; 2],
    pub objects: u64,
    pub slabs: u64,
    /// Large objects within blocks, and with a mapping each; counts.
    pub runs: u64,
    pub mappings: u64,
    /// Of what is in use at most: what objects have beyond what was asked for.
    pub rounding_most: u64,
    pub mapped_total: u64,
    pub purged_total: u64,
    pub reused_total: u64,
    pub realloc_copied: u64,
    /// By `CALLS`.
    pub calls: [u64; CALLS.len()],
    /// Descriptors that cannot be; what they stand for is left out.
    pub unsound: u64,
    /// Not so where more is mapped than is looked at.
    pub resident_known: bool,
}

impl Heap {
    pub fn in_use(&self) -> u64 {
        self.kinds[Part::InUse as usize].bytes
    }

    /// Of what is in use, objects in slabs.
    fn in_slabs(&self) -> u64 {
        let classes = self.classes.iter();
        let sizes = classes.map(|class| class.objects.saturating_mul(class.size.into()));
        sizes.fold(0, u64::saturating_add)
    }

    /// Of these, those in slabs of no thread's heap: full ones, and those for whoever wants them.
    pub fn in_no_heap(&self) -> u64 {
        let owned = self.heaps.iter().map(|heap| heap.in_use);
        self.in_slabs()
            .saturating_sub(owned.fold(0, u64::saturating_add))
    }

    /// Of what is in use, objects that have pages of their own.
    pub fn in_runs(&self) -> u64 {
        self.in_use().saturating_sub(self.in_slabs())
    }

    /// What is in memory for the heap: its part of the process's RSS.
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
    walk.kept()?;
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
    /// Mapped for objects.
    object_bytes: u64,
    /// Of the page map, by the upper bits of the addresses that they serve.
    leaves: HashSet<u64>,
}

/// What a descriptor says.
struct Descriptor<'a> {
    fields: Fields<'a>,
    address: u64,
}

impl Walk<'_> {
    fn add(&mut self, part: Part, start: u64, bytes: u64) {
        let resident = self.residence.resident(start, start.saturating_add(bytes));
        self.add_known(part, bytes, resident);
    }

    fn add_known(&mut self, part: Part, bytes: u64, resident: u64) {
        let size = &mut self.out.kinds[part as usize];
        size.bytes = size.bytes.saturating_add(bytes);
        size.resident = size.resident.saturating_add(resident);
    }

    fn regions(&mut self) -> Result<(), Obstacle> {
        for region in pages::regions(self.memory, self.anchor)? {
            self.region(region.base, region.table, region.blocks)?;
        }
        Ok(())
    }

    fn region(&mut self, base: u64, table: u64, count: usize) -> Result<(), Obstacle> {
        let layout = &self.anchor.pages;
        let (block, slab) = (
            usize::from(layout.segment_bytes),
            usize::from(layout.slab_bytes),
        );
        self.object_bytes += count as u64 * BLOCK;
        self.note_leaf(base, count as u64 * BLOCK);
        let slabs = table.wrapping_add((count * block) as u64);
        if count > usize::from(layout.shared_table_segments) {
            self.descriptors(table, (count * (block + UNITS * slab)) as u64);
        }
        let blocks = self.memory.bytes(table, count * block)?;
        for (i, bytes) in blocks.chunks_exact(block).enumerate() {
            let fields = Fields(bytes);
            let free = fields.u128(layout.segment_free.into());
            let dirty = fields.u128(layout.segment_dirty.into());
            let table = slabs.wrapping_add((i * UNITS * slab) as u64);
            self.block(base + i as u64 * BLOCK, table, free, dirty)?;
        }
        Ok(())
    }

    fn block(&mut self, base: u64, table: u64, free: u128, dirty: u128) -> Result<(), Obstacle> {
        let slab = usize::from(self.anchor.pages.slab_bytes);
        let bytes = match free {
            u128::MAX => Vec::new(),
            _ => self.residence.read(self.memory, table, UNITS * slab)?,
        };
        let mut unit = 0;
        while unit < UNITS {
            let start = base + unit as u64 * UNIT;
            let (is_free, is_dirty) = (free >> unit & 1 != 0, dirty >> unit & 1 != 0);
            let descriptor = Descriptor {
                fields: Fields(bytes.get(unit * slab..).unwrap_or_default()),
                address: table.wrapping_add((unit * slab) as u64),
            };
            if !is_free && let Some(units) = self.run(&descriptor, start, UNITS - unit) {
                unit += units;
                continue;
            }
            let part = match (is_free, is_dirty) {
                (false, _) => Part::HeapRuns,
                (true, true) => Part::PageDirty,
                (true, false) => Part::PageClean,
            };
            self.add(part, start, UNIT);
            unit += 1;
        }
        Ok(())
    }

    /// The units of the run that begins here, if one does.
    fn run(&mut self, descriptor: &Descriptor<'_>, start: u64, left: usize) -> Option<usize> {
        let (layout, fields) = (&self.anchor.pages, &descriptor.fields);
        let kind = fields.u8(layout.slab_kind.into());
        if fields.u64(layout.slab_base.into()) != start || kind < kind::SLAB {
            return None;
        }
        let units = fields.u32(layout.slab_pages.into()) as usize;
        if kind > kind::SPAN || units == 0 || units > left {
            self.out.unsound += 1;
            return None;
        }
        let bytes = units as u64 * UNIT;
        match kind {
            kind::SLAB => self.slab(descriptor, start, bytes),
            kind::SAMPLED => self.add(Part::SampleSlabs, start, bytes),
            _ => {
                self.out.runs += 1;
                self.large(start, bytes, fields.u32(layout.slab_offset.into()).into());
            }
        }
        Some(units)
    }

    fn slab(&mut self, descriptor: &Descriptor<'_>, start: u64, bytes: u64) {
        let (layout, fields) = (&self.anchor.pages, &descriptor.fields);
        let class = usize::from(fields.u8(layout.slab_class.into()));
        let carved = fields.u16(layout.slab_carved.into());
        let capacity = fields.u16(layout.slab_capacity.into());
        let size = self.classes.sizes.get(class).copied().map_or(0, u64::from);
        if size == 0 || carved > capacity || u64::from(capacity) * size > bytes {
            self.out.unsound += 1;
            return self.add(Part::InUse, start, bytes);
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
        self.add_known(Part::InUse, in_use, of_used);
        self.add_known(Part::SlabFree, carved * size - in_use, resident - of_used);
        self.add(Part::Uncarved, handed_out, room - handed_out);
        self.add(Part::Tail, room, start + bytes - room);
    }

    fn objects_in_use(&self, slab: &Descriptor<'_>, owner: u64, class: usize, carved: u32) -> u32 {
        let (layout, fields) = (&self.anchor.pages, &slab.fields);
        let own_list = slab.address.wrapping_add(layout.slab_free.into());
        if fields.u64(layout.slab_list.into()) == own_list {
            // `used` of a slab that was set aside says something else.
            let none_free = fields.u64(layout.slab_free.into()) == 0
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
        self.add_known(Part::InUse, used, of_used);
        self.add_known(Part::Tail, bytes - used, resident - of_used);
        self.out.objects += 1;
        self.out.rounding_most += used.min(UNIT - 1);
    }

    /// Objects with a mapping each.
    fn mappings(&mut self) -> Result<(), Obstacle> {
        pages::mappings(self.memory, self.anchor, |fields| {
            let pages = &self.anchor.pages;
            let base = fields.u64(pages.slab_base.into());
            let bytes = fields.u64(pages.slab_span_bytes.into());
            if base >> 48 == 0 && bytes >> 48 == 0 {
                self.object_bytes = self.object_bytes.saturating_add(bytes);
                self.out.mappings += 1;
                self.note_leaf(base, 1);
                self.large(base, bytes, fields.u32(pages.slab_offset.into()).into());
            } else {
                self.out.unsound += 1;
            }
        })
    }

    fn kept(&mut self) -> Result<(), Obstacle> {
        for (base, bytes) in pages::kept(self.memory, self.anchor)? {
            self.object_bytes = self.object_bytes.saturating_add(bytes);
            self.note_leaf(base, 1);
            self.add(Part::Kept, base, bytes);
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<(), Obstacle> {
        let count = usize::from(self.anchor.parts.counter_count);
        let bytes = self.memory.bytes(self.anchor.parts.counters, count * 8)?;
        // Signed there, and perhaps below 0 for a moment.
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

    /// Descriptors that lie at a known place.
    fn descriptors(&mut self, start: u64, bytes: u64) {
        self.out.kinds[Part::Metadata as usize].resident +=
            self.residence.resident(start, start.saturating_add(bytes));
    }

    /// The part of the page map's root that serves the range is in use.
    fn note_leaf(&mut self, start: u64, bytes: u64) {
        let leaf = u64::from(self.anchor.parts.page_map_leaf_entries).max(1) * UNIT;
        let last = start.saturating_add(bytes.saturating_sub(1)) / leaf;
        // A region lies in two at most.
        self.leaves.extend([start / leaf, last]);
    }

    fn metadata(&mut self) -> Result<(), Obstacle> {
        self.out.kinds[Part::Metadata as usize].bytes =
            self.out.mapped.saturating_sub(self.object_bytes);
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
