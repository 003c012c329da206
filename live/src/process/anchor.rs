//! `larder_anchor` (alloc/statistics/anchor.h) and the layouts that it leads to (alloc/base/layout.h): read field by
//! field in the order in which they are declared, which leaves no gaps.

use larder_base::printable;

use super::Obstacle;
use super::memory::Memory;

/// `Anchor::kVersion`.
pub const VERSION: u32 = 3;
pub const MAGIC: [u8; 16] = *b"larder anchor\0\r\n";
/// What the version of the anchor has: its own bytes, and each layout's.
const ANCHOR_BYTES: usize = 152;
const LAYOUT_BYTES: usize = 128;

/// Reads the fields of a layout in their order.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ident),* $(,)? }) => {
        $(#[$doc])*
        pub struct $name { $(pub $field: $type),* }
        impl $name {
            fn of(bytes: &[u8]) -> Self {
                let cursor = &mut Cursor(bytes);
                Self { $($field: cursor.$type()),* }
            }
        }
    };
}

layout! {
    /// Offsets in bytes, here and below, where a name does not say otherwise.
    ProfileLayout {
        first_site: u64, slots: u64, slot_count: u64, peak_version: u64, most_sites: u32,
        site_bytes: u16, most_frames: u16, lifetimes: u16, next: u16, frames: u16, depth: u16,
        truncated: u16, in_use: u16, allocated: u16, variance: u16, sampled_bytes: u16,
        samples: u16, heaviest: u16, at_mark: u16, at_peak: u16, own_peak_version: u16, freed: u16,
        exempt: u16,
    }
}
layout! {
    SamplerLayout {
        mean: u64, everything: u64, deferred: u64, mark_bytes: u16, mark_next: u16, mark_slot: u16,
        mark_state: u16, mark_site: u16, mark_asked: u16, exempt_states: u16,
    }
}
layout! {
    PagesLayout {
        first_region: u64, reused_bytes: u64, region_bytes: u16, region_next: u16,
        region_base: u16, region_blocks: u16, region_count: u16, shared_table_blocks: u16,
        block_bytes: u16, block_free: u16, block_dirty: u16, slab_bytes: u16, slab_owner: u16,
        slab_list: u16, slab_free: u16, slab_used: u16, slab_capacity: u16, slab_class: u16,
        slab_kind: u16, slab_base: u16, slab_carved: u16, slab_thinned: u16, slab_units: u16,
        slab_run_bytes: u16, slab_offset: u16, slab_prev: u16, slab_remote: u16, slab_gone: u16, slab_mark: u16,
    }
}
layout! {
    LargeLayout {
        descriptors: u64, kept: u64, kept_count: u64, reused_bytes: u64, parked: u64,
        most_kept: u16,        kept_bytes: u16, kept_base: u16, kept_length: u16,
    }
}
layout! {
    HeapsLayout {
        first: u64, shared: u64, most_shared: u16, heap_bytes: u16, next: u16, heads: u16,
        bins: u16, bin_bytes: u16, bin_marks: u16, kept_run_bytes: u16, refills: u16,
        fresh_slabs: u16, remote_frees: u16, dead: u16, assigned: u16, pending: u16,
        pending_count: u16, pending_bytes: u16, pending_slab: u16, pending_head: u16,
        pending_objects: u16, inlined: u16, inlined_classes: u16, inlined_newer: u16,
        inlined_older: u16,
    }
}
layout! {
    MetaLayout { last_chunk: u64, chunk_bytes: u32 }
}
layout! {
    OwnLayout { table: u64, table_bytes: u32, ranges: u16, room: u16 }
}
layout! {
    /// The rest of the anchor, behind its name.
    Parts {
        profile: u64, sampler: u64, pages: u64, large: u64, heaps: u64, meta: u64, own: u64, counters: u64,
        class_sizes: u64, class_capacity: u64, page_map: u64,
        page_map_bytes: u64, page_map_leaf_entries: u32, page_map_leaf_offset: u32,
        counter_count: u16, class_count: u16, unit_shift: u16, block_shift: u16,
    }
}

/// Where things are, in the process's memory.
pub struct Anchor {
    address: u64,
    pub library: String,
    pub parts: Parts,
    pub profile: ProfileLayout,
    pub sampler: SamplerLayout,
    pub pages: PagesLayout,
    pub large: LargeLayout,
    pub heaps: HeapsLayout,
    pub meta: MetaLayout,
    pub own: OwnLayout,
}

impl Anchor {
    pub fn read(memory: &Memory, address: u64) -> Result<Self, Obstacle> {
        let head = memory.bytes(address, MAGIC.len() + 8)?;
        let mut cursor = Cursor(&head);
        if cursor.take(MAGIC.len()) != MAGIC {
            return Err(Obstacle::Unsound("the anchor"));
        }
        let (version, bytes) = (cursor.u32(), cursor.u32());
        if version != VERSION {
            return Err(Obstacle::OtherVersion(version));
        }
        if bytes as usize != ANCHOR_BYTES {
            return Err(Obstacle::Unsound("the anchor's size"));
        }
        let body = memory.bytes(address + head.len() as u64, ANCHOR_BYTES - head.len())?;
        let mut cursor = Cursor(&body);
        let library = cursor.take(16).split(|byte| *byte == 0).next();
        let library = printable::escape_bytes(library.unwrap_or_default());
        let parts = Parts::of(cursor.0);
        let layout = |at: u64| memory.bytes(at, LAYOUT_BYTES);
        let anchor = Self {
            address,
            library,
            profile: ProfileLayout::of(&layout(parts.profile)?),
            sampler: SamplerLayout::of(&layout(parts.sampler)?),
            pages: PagesLayout::of(&layout(parts.pages)?),
            large: LargeLayout::of(&layout(parts.large)?),
            heaps: HeapsLayout::of(&layout(parts.heaps)?),
            meta: MetaLayout::of(&layout(parts.meta)?),
            own: OwnLayout::of(&layout(parts.own)?),
            parts,
        };
        anchor
            .is_sound()
            .then_some(anchor)
            .ok_or(Obstacle::Unsound("the anchor"))
    }

    /// Whether it still is where it was found.
    pub fn is_there(&self, memory: &Memory) -> Result<bool, Obstacle> {
        Ok(memory.bytes(self.address, MAGIC.len())? == MAGIC)
    }

    /// What bounds the reading; a field beyond the end of its structure reads as 0.
    fn is_sound(&self) -> bool {
        let (parts, profile, pages) = (&self.parts, &self.profile, &self.pages);
        profile.site_bytes <= 1024
            && profile.most_frames <= 256
            && profile.lifetimes <= 64
            && profile.most_sites <= 1 << 17
            && (self.sampler.mark_bytes, pages.region_bytes) <= (256, 256)
            && pages.block_bytes == 128
            && pages.slab_bytes == 128
            && self.large.most_kept <= 1024
            && self.large.kept_bytes <= 128
            && self.heaps.heap_bytes <= 32 * 1024
            && self.heaps.most_shared <= 1024
            && self.heaps.pending_bytes <= 128
            && self.heaps.pending_count <= 4096
            && self.heaps.inlined_classes <= 128
            && (4096..=1 << 20).contains(&self.meta.chunk_bytes)
            && parts.page_map_leaf_offset <= 64 << 20
            && parts.page_map_leaf_entries <= 1 << 24
            && u64::from(parts.page_map_leaf_offset) <= parts.page_map_bytes
            && parts.counter_count <= 256
            && (1..=128).contains(&parts.class_count)
            && (parts.unit_shift, parts.block_shift) == (14, 21)
    }
}

/// Fields one behind the other; 0 behind the end.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).first_chunk().copied().unwrap_or([0; N])
    }
    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.array())
    }
    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.array())
    }
    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.array())
    }
}
