//! Where the heap's descriptors are: regions of segments, objects' own mappings, cached mappings, and
//! the size classes. Callers interpret the descriptors.

use std::collections::HashSet;

use super::Obstacle;
use super::anchor::{Anchor, LINK_TAG_SHIFT, PAGE_SHIFT, SEGMENT_SHIFT, SMALL_MAX, kind};
use super::memory::{Fields, Memory};

pub const PAGE: u64 = 1 << PAGE_SHIFT;
pub const SEGMENT: u64 = 1 << SEGMENT_SHIFT;
/// Pages of a segment.
pub const PAGES: usize = (SEGMENT / PAGE) as usize;
const MOST_SEGMENTS: usize = 64;
/// 128 TiB in regions of 128 MiB, and as many again for smaller ones.
const MOST_REGIONS: usize = 1 << 21;
const MOST_MAPPINGS: usize = 1 << 22;

/// The object that a link of a free list leads to, or 0. A link has a tag where no address has bits
/// (`alloc/core/slab.h`).
pub fn linked(link: u64) -> u64 {
    link & ((1 << LINK_TAG_SHIFT) - 1)
}

pub struct ClassTable {
    pub sizes: Vec<u32>,
    pub capacities: Vec<u16>,
}

impl ClassTable {
    pub fn read(memory: &Memory, anchor: &Anchor) -> Result<Self, Obstacle> {
        let count = usize::from(anchor.parts.class_count);
        let sizes = memory.bytes(anchor.parts.class_sizes, count * 4)?;
        let capacities = memory.bytes(anchor.parts.class_capacity, count * 2)?;
        let table = Self {
            sizes: (0..count).map(|i| Fields(&sizes).u32(i * 4)).collect(),
            capacities: (0..count).map(|i| Fields(&capacities).u16(i * 2)).collect(),
        };
        let valid = |size: &u32| (8..=SMALL_MAX).contains(&u64::from(*size));
        let grow = table.sizes.is_sorted() && table.sizes.iter().all(valid);
        grow.then_some(table)
            .ok_or(Obstacle::Unsound("the size classes"))
    }
}

/// Segments that were mapped together.
pub struct Region {
    pub base: u64,
    /// Descriptors of the segments, followed by those of their pages.
    pub table: u64,
    pub segments: usize,
}

pub fn regions(memory: &Memory, anchor: &Anchor) -> Result<Vec<Region>, Obstacle> {
    let layout = &anchor.pages;
    let mut at = memory.word(layout.first_region)?;
    let (mut met, mut found) = (HashSet::new(), Vec::new());
    while at != 0 {
        if !met.insert(at) || met.len() > MOST_REGIONS {
            return Err(Obstacle::Unsound("the list of regions"));
        }
        let bytes = memory.bytes(at, layout.region_bytes.into())?;
        let fields = Fields(&bytes);
        let region = Region {
            base: fields.u64(layout.region_base.into()),
            table: fields.u64(layout.region_segments.into()),
            segments: fields.u32(layout.region_count.into()) as usize,
        };
        let sound = (1..=MOST_SEGMENTS).contains(&region.segments);
        if !sound || !region.base.is_multiple_of(SEGMENT) || region.base >> 48 != 0 {
            return Err(Obstacle::Unsound("a region"));
        }
        found.push(region);
        at = fields.u64(layout.region_next.into());
    }
    Ok(found)
}

/// Calls `visit` with the descriptor of each object that has a mapping, or is a guarded sample
/// (`guarded_pages`), from the list of all such descriptors that were ever made.
pub fn mappings(
    memory: &Memory,
    anchor: &Anchor,
    mut visit: impl FnMut(&Fields<'_>),
) -> Result<(), Obstacle> {
    let pages = &anchor.pages;
    let mut at = memory.word(anchor.large.descriptors)?;
    let mut met = 0;
    while at != 0 {
        met += 1;
        if met > MOST_MAPPINGS {
            return Err(Obstacle::Unsound("the list of large objects"));
        }
        let bytes = memory.bytes(at, pages.slab_bytes.into())?;
        let fields = Fields(&bytes);
        if matches!(
            fields.u8(pages.slab_kind.into()),
            kind::HUGE | kind::SAMPLED
        ) {
            visit(&fields);
        }
        at = fields.u64(pages.slab_prev.into());
    }
    Ok(())
}

/// The system pages of a guarded sample, from its begin to its end; `None` for a mapping.
pub fn guarded_pages(anchor: &Anchor, fields: &Fields<'_>) -> Option<(u64, u64)> {
    let layout = &anchor.pages;
    if fields.u8(layout.slab_kind.into()) != kind::SAMPLED {
        return None;
    }
    let page = rustix::param::page_size() as u64;
    let base = fields.u64(layout.slab_base.into());
    let end = base.saturating_add(fields.u64(layout.slab_span_bytes.into()));
    Some((base / page * page, end.checked_next_multiple_of(page)?))
}

/// The cached mappings: address and bytes of each.
pub fn cached(memory: &Memory, anchor: &Anchor) -> Result<Vec<(u64, u64)>, Obstacle> {
    let large = &anchor.large;
    let entry = usize::from(large.cached_bytes);
    let count = Fields(&memory.bytes(large.cached_count, 4)?).u32(0) as usize;
    let table = memory.bytes(large.cached, usize::from(large.most_cached) * entry)?;
    let entries = table.chunks_exact(entry.max(1)).take(count).map(|bytes| {
        let fields = Fields(bytes);
        let base = fields.u64(large.cached_base.into());
        (base, fields.u64(large.cached_length.into()))
    });
    Ok(entries
        .filter(|(base, bytes)| base >> 48 == 0 && bytes >> 48 == 0)
        .collect())
}

/// Addresses of the memory for descriptors of all kinds.
pub fn chunks(memory: &Memory, anchor: &Anchor) -> Result<Vec<u64>, Obstacle> {
    let mut chunk = memory.word(anchor.meta.last_chunk)?;
    let (mut met, mut found) = (HashSet::new(), Vec::new());
    while chunk != 0 {
        if !met.insert(chunk) || met.len() > MOST_MAPPINGS {
            return Err(Obstacle::Unsound("the list of descriptors' memory"));
        }
        found.push(chunk);
        chunk = memory.word(chunk)?;
    }
    Ok(found)
}
