//! `larder_anchor` and the layouts that it points to: the structures of alloc/base/layout.h, from which
//! `build.rs` generates these, and the heap's numbers and enumerations from its other sources.

use larder_base::printable;

use super::Obstacle;
use super::memory::Memory;

pub use layouts::{
    DESCRIPTOR_SEARCH_BYTES, GENERATION_SHIFT, KINDS, LINK_TAG_SHIFT, MAX_SUPPRESSION_BYTES,
    PAGE_SHIFT, RED_ZONE, SEGMENT_SHIFT, SMALL_MAX, STATE_MASK, THREAD_BYTES, VERSION, counter,
    kind, part,
};
pub use layouts::{
    HeapsLayout, LargeLayout, MetaLayout, OwnLayout, PagesLayout, ProfileLayout, SamplerLayout,
};

pub const MAGIC: [u8; 16] = *b"larder anchor\0\r\n";

mod layouts {
    use super::Plain;

    /// A structure, its size in bytes, and its fields with their offsets.
    macro_rules! layout {
        ($name:ident $bytes:literal { $($field:ident: $type:ty = $offset:literal,)* }) => {
            #[allow(dead_code, reason = "not all are read")]
            pub struct $name { $(pub $field: $type),* }
            impl $name {
                pub const BYTES: usize = $bytes;
                pub fn of(bytes: &[u8]) -> Self {
                    Self { $($field: Plain::at(bytes, $offset)),* }
                }
            }
        };
    }

    include!(concat!(env!("OUT_DIR"), "/layouts.rs"));
}

/// A type that is plain bytes in the process; 0 behind the end.
trait Plain: Sized {
    fn at(bytes: &[u8], offset: usize) -> Self;
}

impl<const N: usize> Plain for [u8; N] {
    fn at(bytes: &[u8], offset: usize) -> Self {
        let rest = bytes.get(offset..).unwrap_or_default();
        rest.first_chunk().copied().unwrap_or([0; N])
    }
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(impl Plain for $type {
            fn at(bytes: &[u8], offset: usize) -> Self {
                Self::from_ne_bytes(Plain::at(bytes, offset))
            }
        })*
    };
}
plain!(u16, u32, u64);

/// Addresses and offsets in the process's memory.
pub struct Anchor {
    address: u64,
    pub library: String,
    pub parts: layouts::Anchor,
    pub profile: ProfileLayout,
    pub sampler: SamplerLayout,
    pub pages: PagesLayout,
    pub large: LargeLayout,
    pub heaps: HeapsLayout,
    pub meta: MetaLayout,
    pub own: OwnLayout,
    pub limits: layouts::LimitsLayout,
}

/// Reads a structure that contains its own size at this offset.
fn whole(memory: &Memory, at: u64, length_at: usize, length: usize) -> Result<Vec<u8>, Obstacle> {
    let bytes = memory.bytes(at, length)?;
    match u32::at(&bytes, length_at) as usize == length {
        true => Ok(bytes),
        false => Err(Obstacle::Unsound("the size of a layout")),
    }
}

impl Anchor {
    pub fn read(memory: &Memory, address: u64) -> Result<Self, Obstacle> {
        const HEAD: usize = MAGIC.len() + 8;
        let head = memory.bytes(address, HEAD)?;
        if !head.starts_with(&MAGIC) {
            return Err(Obstacle::Unsound("the anchor"));
        }
        let version = u32::at(&head, MAGIC.len());
        if version != VERSION {
            return Err(Obstacle::OtherVersion(version));
        }
        let anchor = whole(memory, address, MAGIC.len() + 4, layouts::Anchor::BYTES)?;
        let parts = layouts::Anchor::of(&anchor);
        let library = parts.library.split(|byte| *byte == 0).next();
        macro_rules! read {
            ($layout:ident, $part:ident) => {
                layouts::$layout::of(&whole(memory, parts.$part, 0, layouts::$layout::BYTES)?)
            };
        }
        let anchor = Self {
            address,
            library: printable::escape_bytes(library.unwrap_or_default()),
            profile: read!(ProfileLayout, profile),
            sampler: read!(SamplerLayout, sampler),
            pages: read!(PagesLayout, pages),
            large: read!(LargeLayout, large),
            heaps: read!(HeapsLayout, heaps),
            meta: read!(MetaLayout, meta),
            own: read!(OwnLayout, own),
            limits: read!(LimitsLayout, limits),
            parts,
        };
        anchor
            .is_sound()
            .then_some(anchor)
            .ok_or(Obstacle::Unsound("the anchor"))
    }

    /// Whether it is still where it was found.
    pub fn is_there(&self, memory: &Memory) -> Result<bool, Obstacle> {
        Ok(memory.bytes(self.address, MAGIC.len())? == MAGIC)
    }

    /// Checks the bounds that reading relies on; a field beyond the end of its structure reads as 0.
    fn is_sound(&self) -> bool {
        let (parts, profile, pages) = (&self.parts, &self.profile, &self.pages);
        profile.site_bytes <= 1024
            && profile.most_frames <= 256
            && profile.lifetimes <= 64
            && profile.most_sites <= 1 << 17
            && (self.sampler.point_bytes, pages.region_bytes) <= (256, 256)
            && pages.segment_bytes == 128
            && pages.slab_bytes == 128
            && self.large.most_cached <= 1024
            && self.large.cached_bytes <= 128
            && self.heaps.heap_bytes <= 32 * 1024
            && self.heaps.most_shared <= 1024
            && self.heaps.pending_bytes <= 128
            && self.heaps.pending_count <= 4096
            && self.heaps.inlined_classes <= 128
            && self.heaps.most_cpu_caches <= 1024
            && self.heaps.cpu_cache_room <= 1024
            && (4096..=1 << 20).contains(&self.meta.chunk_bytes)
            && parts.page_map_leaf_offset <= 64 << 20
            && parts.page_map_leaf_entries <= 1 << 24
            && u64::from(parts.page_map_leaf_offset) <= parts.page_map_bytes
            && parts.counter_count <= 256
            && (1..=128).contains(&parts.class_count)
            && (parts.page_shift, parts.segment_shift) == (14, 21)
    }
}
