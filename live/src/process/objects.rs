//! Every object of a stopped heap: where it is, whether it is in use, and its sample, if it has one.
//!
//! A slot of a slab is in use unless a free list has it: the slab's own, its remote frees, the lists of
//! thread heaps, pending remote frees, CPU caches, those of inlined code, and the deferred frees of signal handlers.
//! A list ends at anything but a slot in use, so following one terminates. Memory: 2 bits a slot, 512
//! bytes for 2 MiB of small objects, 40 bytes a sampled object.

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use super::Obstacle;
use super::anchor::{Anchor, GENERATION_SHIFT, SEGMENT_SHIFT, STATE_MASK, kind};
use super::heaps;
use super::memory::{Fields, Memory, Pieces};
use super::pages::{self, ClassTable, PAGE, PAGES};
use super::residence::Residence;

/// Lists of free objects of a class in a heap.
const MOST_LISTS: usize = 1 << 16;

/// A sampled object.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    pub site: u64,
    /// The bytes that were requested.
    pub bytes: u64,
}

/// Adjacent objects of one size.
struct Slab {
    base: u64,
    size: u64,
    count: u32,
    /// The number of its first object.
    first: u32,
}

/// The rest of a slab's descriptor.
struct Descriptor {
    slab: usize,
    kind: u8,
    owner: u64,
    list: u64,
    free: u64,
    remote: u64,
    decommitted: u64,
    point: u64,
}

/// An object: its slab, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    slab: u32,
    index: u32,
}

pub struct Objects {
    slabs: Vec<Slab>,
    /// By address / 2 MiB: of each page, 1 + its slab, or 0.
    segments: FxHashMap<u64, Box<[u32; PAGES]>>,
    /// Slabs of objects with a mapping of their own, by address.
    mappings: Vec<u32>,
    in_use: Bits,
    low: u64,
    high: u64,
    pub sampled: FxHashMap<u32, Sampled>,
    /// Objects that are no leaks, even if nothing points to them.
    pub exempt: Vec<Slot>,
    /// Memory of the heap and of its descriptors, by address: no roots.
    pub covered: Vec<(u64, u64)>,
    /// Every object is sampled, since the process started.
    pub everything: bool,
    /// Heaps of threads that did not survive fork.
    pub orphaned_heaps: usize,
}

/// By an object's number.
#[derive(Clone)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub fn none(count: u32) -> Self {
        Self(vec![0; count as usize / 64 + 1])
    }
    pub fn has(&self, i: u32) -> bool {
        self.0
            .get(i as usize / 64)
            .is_some_and(|word| word >> (i % 64) & 1 != 0)
    }
    /// Whether the bit was clear.
    pub fn set(&mut self, i: u32) -> bool {
        let Some(word) = self.0.get_mut(i as usize / 64) else {
            return false;
        };
        let before = *word;
        *word |= 1 << (i % 64);
        *word != before
    }
    fn clear(&mut self, i: u32) {
        if let Some(word) = self.0.get_mut(i as usize / 64) {
            *word &= !(1 << (i % 64));
        }
    }
}

impl Objects {
    pub fn read(
        memory: &Memory,
        anchor: &Anchor,
        residence: &mut Residence,
    ) -> Result<Self, Obstacle> {
        let everything = match anchor.sampler.everything {
            0 => false,
            at => memory.bytes(at, 1)? != [0],
        };
        let mut gather = Gather {
            memory,
            anchor,
            pieces: Pieces::new(memory),
            descriptors: Vec::new(),
            count: 0,
            out: Self {
                slabs: Vec::new(),
                segments: FxHashMap::default(),
                mappings: Vec::new(),
                in_use: Bits::none(0),
                low: u64::MAX,
                high: 0,
                sampled: FxHashMap::default(),
                exempt: Vec::new(),
                covered: Vec::new(),
                everything,
                orphaned_heaps: 0,
            },
        };
        gather.regions(residence)?;
        gather.mappings()?;
        gather.out.in_use = Bits(vec![0; gather.count as usize / 64 + 1]);
        gather.find_used()?;
        if anchor.sampler.deferred != 0 {
            gather.follow(memory.word(anchor.sampler.deferred)?, usize::MAX);
        }
        gather.heaps(residence)?;
        gather.sites()?;
        let covered = &mut gather.out.covered;
        covered.sort_unstable();
        covered.dedup_by(|next, before| {
            let meets = next.0 <= before.1;
            before.1 = if meets {
                before.1.max(next.1)
            } else {
                before.1
            };
            meets
        });
        Ok(gather.out)
    }

    /// Numbers are below this.
    pub fn count(&self) -> u32 {
        self.slabs.last().map_or(0, |slab| slab.first + slab.count)
    }

    /// The object in use that contains the address.
    #[inline]
    pub fn find(&self, address: u64) -> Option<Slot> {
        if address.wrapping_sub(self.low) >= self.high.wrapping_sub(self.low) {
            return None;
        }
        let slot = self.slot(address)?;
        self.in_use.has(self.number(slot)).then_some(slot)
    }

    fn slot(&self, address: u64) -> Option<Slot> {
        let by_page = self.segments.get(&(address >> SEGMENT_SHIFT));
        let slab = match by_page.map(|segment| segment[(address / PAGE) as usize % PAGES]) {
            Some(slab) if slab != 0 => slab - 1,
            _ => self.mapping(address)?,
        };
        let of = self.slabs.get(slab as usize)?;
        let offset = address.checked_sub(of.base)?;
        let index = match of.count {
            1 => u32::from(offset >= of.size),
            _ => offset as u32 / of.size as u32,
        };
        (index < of.count).then_some(Slot { slab, index })
    }

    fn mapping(&self, address: u64) -> Option<u32> {
        let base = |slab: &u32| self.slabs.get(*slab as usize).map_or(0, |slab| slab.base);
        let after = self.mappings.partition_point(|slab| base(slab) <= address);
        self.mappings.get(after.checked_sub(1)?).copied()
    }

    pub fn number(&self, slot: Slot) -> u32 {
        self.slabs[slot.slab as usize].first + slot.index
    }

    /// Its address and its usable bytes.
    pub fn place(&self, slot: Slot) -> (u64, u64) {
        let slab = &self.slabs[slot.slab as usize];
        (slab.base + u64::from(slot.index) * slab.size, slab.size)
    }

    /// Objects in use, in the order of slabs, and by address within a slab.
    pub fn each(&self) -> impl Iterator<Item = Slot> + '_ {
        let slabs = self.slabs.iter().zip(0..);
        slabs.flat_map(move |(of, slab)| {
            let used = (0..of.count).filter(|index| self.in_use.has(of.first + index));
            used.map(move |index| Slot { slab, index })
        })
    }

    fn set_free(&mut self, address: u64) -> bool {
        let Some(slot) = self.slot(address) else {
            return false;
        };
        let number = self.number(slot);
        let used = self.place(slot).0 == address && self.in_use.has(number);
        if used {
            self.in_use.clear(number);
        }
        used
    }
}

struct Gather<'a> {
    memory: &'a Memory,
    anchor: &'a Anchor,
    pieces: Pieces<'a>,
    descriptors: Vec<Descriptor>,
    count: u32,
    out: Objects,
}

impl Gather<'_> {
    fn regions(&mut self, residence: &mut Residence) -> Result<(), Obstacle> {
        let layout = &self.anchor.pages;
        let (segment, slab) = (layout.segment_bytes as usize, layout.slab_bytes as usize);
        let classes = ClassTable::read(self.memory, self.anchor)?;
        for region in pages::regions(self.memory, self.anchor)? {
            let end = region.base + region.segments as u64 * pages::SEGMENT;
            self.out.covered.push((region.base, end));
            let segments = self.memory.bytes(region.table, region.segments * segment)?;
            let slabs = region
                .table
                .wrapping_add((region.segments * segment) as u64);
            let table_end = slabs.wrapping_add((region.segments * PAGES * slab) as u64);
            self.out
                .covered
                .push((region.table, table_end.max(region.table)));
            for (i, bytes) in segments.chunks_exact(segment).enumerate() {
                let free = Fields(bytes).u128(layout.segment_free.into());
                if free == u128::MAX {
                    continue;
                }
                let table = slabs.wrapping_add((i * PAGES * slab) as u64);
                let table = residence.read(self.memory, table, PAGES * slab)?;
                self.segment(
                    region.base + i as u64 * pages::SEGMENT,
                    &table,
                    free,
                    &classes,
                )?;
            }
        }
        Ok(())
    }

    fn segment(
        &mut self,
        base: u64,
        table: &[u8],
        free: u128,
        classes: &ClassTable,
    ) -> Result<(), Obstacle> {
        let layout = &self.anchor.pages;
        let mut page = 0;
        while page < PAGES {
            let bytes = table.get(page * usize::from(layout.slab_bytes)..);
            let fields = Fields(bytes.unwrap_or_default());
            let start = base + page as u64 * PAGE;
            let pages = fields.u16(layout.slab_pages.into()) as usize;
            let kind = fields.u8(layout.slab_kind.into());
            let is_span = free >> page & 1 == 0
                && (kind::SLAB..=kind::SPAN).contains(&kind)
                && fields.u64(layout.slab_base.into()) == start
                && (1..=PAGES - page).contains(&pages);
            if !is_span {
                page += 1;
                continue;
            }
            let bytes = pages as u64 * PAGE;
            let offset = u64::from(fields.u32(layout.slab_offset.into()));
            if kind == kind::SPAN && offset < bytes {
                self.add(&fields, start + offset, bytes - offset, 1, pages as u32)?;
            } else if kind != kind::SPAN {
                let class = usize::from(fields.u8(layout.slab_class.into()));
                let size = classes.sizes.get(class).copied().map_or(0, u64::from);
                let carved = u64::from(fields.u16(layout.slab_carved.into()));
                if size != 0 && carved != 0 && carved * size <= bytes {
                    self.add(&fields, start, size, carved as u32, pages as u32)?;
                }
            }
            page += pages;
        }
        Ok(())
    }

    /// Adds `count` adjacent objects from `base` on.
    fn add(
        &mut self,
        fields: &Fields<'_>,
        base: u64,
        size: u64,
        count: u32,
        pages: u32,
    ) -> Result<(), Obstacle> {
        let layout = &self.anchor.pages;
        let slab = self.out.slabs.len();
        let (first, sum) = (self.count, self.count.checked_add(count));
        self.count = sum.ok_or(Obstacle::Unsound("the number of objects"))?;
        for page in base / PAGE..base / PAGE + u64::from(pages) {
            let segment = self.out.segments.entry((page * PAGE) >> SEGMENT_SHIFT);
            let segment = segment.or_insert_with(|| Box::new([0; PAGES]));
            segment[page as usize % PAGES] = slab as u32 + 1;
        }
        self.out.low = self.out.low.min(base);
        self.out.high = self.out.high.max(base + u64::from(count) * size);
        self.out.slabs.push(Slab {
            base,
            size,
            count,
            first,
        });
        self.descriptors.push(Descriptor {
            slab,
            kind: fields.u8(layout.slab_kind.into()),
            owner: fields.u64(layout.slab_owner.into()),
            list: fields.u64(layout.slab_list.into()),
            free: fields.u64(layout.slab_free.into()),
            remote: fields.u64(layout.slab_remote.into()),
            decommitted: fields.u64(layout.slab_decommitted.into()),
            point: fields.u64(layout.slab_point.into()),
        });
        Ok(())
    }

    fn mappings(&mut self) -> Result<(), Obstacle> {
        let layout = &self.anchor.pages;
        let mut found = Vec::new();
        pages::mappings(self.memory, self.anchor, |fields| {
            let base = fields.u64(layout.slab_base.into());
            let bytes = fields.u64(layout.slab_span_bytes.into());
            let offset = u64::from(fields.u32(layout.slab_offset.into()));
            if base >> 47 == 0 && bytes >> 47 == 0 && offset < bytes {
                let guarded = pages::guarded_pages(self.anchor, fields);
                found.push((base, bytes, offset, guarded, fields.0.to_vec()));
            }
        })?;
        found.sort_unstable_by_key(|(base, ..)| *base);
        for (base, bytes, offset, guarded, fields) in found {
            if let Some(pages) = guarded {
                self.out.covered.push(pages);
                let spanned = Fields(&fields).u16(layout.slab_pages.into());
                self.add(&Fields(&fields), base, bytes, 1, spanned.into())?;
                continue;
            }
            self.out.covered.push((base, base + bytes));
            self.out.mappings.push(self.out.slabs.len() as u32);
            self.add(&Fields(&fields), base + offset, bytes - offset, 1, 0)?;
        }
        for (base, bytes) in pages::cached(self.memory, self.anchor)? {
            self.out.covered.push((base, base + bytes));
        }
        let own = &self.anchor.own;
        let word = |at: u16| self.memory.word(own.table.wrapping_add(at.into()));
        let (ranges, room) = (word(own.ranges)?, word(own.room)?);
        for (table, bytes) in [
            (own.table, own.table_bytes.into()),
            (ranges, room.saturating_mul(16)),
        ] {
            self.out.covered.push((table, table.saturating_add(bytes)));
        }
        // Descriptors contain the addresses of objects.
        for chunk in pages::chunks(self.memory, self.anchor)? {
            let end = chunk.saturating_add(self.anchor.meta.chunk_bytes.into());
            self.out.covered.push((chunk, end));
        }
        let last_freed = self.memory.word(self.anchor.large.last_freed)?;
        if last_freed != 0 {
            let bytes = self.memory.bytes(last_freed, layout.slab_bytes.into())?;
            let fields = Fields(&bytes);
            let base = fields.u64(layout.slab_base.into());
            let end = base.saturating_add(fields.u64(layout.slab_span_bytes.into()));
            self.out.covered.push((base, end));
        }
        Ok(())
    }

    /// Marks all slots as in use, except those that the slabs' own lists have as free.
    fn find_used(&mut self) -> Result<(), Obstacle> {
        let descriptors = std::mem::take(&mut self.descriptors);
        for descriptor in &descriptors {
            let slab = &self.out.slabs[descriptor.slab];
            if descriptor.kind != kind::SAMPLED {
                for number in slab.first..slab.first + slab.count {
                    self.out.in_use.set(number);
                }
            }
        }
        for descriptor in &descriptors {
            match descriptor.kind {
                kind::SLAB => self.slab_lists(descriptor),
                kind::SAMPLED => self.sampled(descriptor)?,
                _ => self.large(descriptor)?,
            }
        }
        self.descriptors = descriptors;
        Ok(())
    }

    fn slab_lists(&mut self, descriptor: &Descriptor) {
        self.follow(descriptor.free, usize::MAX);
        self.follow(
            descriptor.remote & ((1 << GENERATION_SHIFT) - 1) & !STATE_MASK,
            usize::MAX,
        );
        let slab = &self.out.slabs[descriptor.slab];
        let (base, size, count) = (slab.base, slab.size, u64::from(slab.count));
        let system_page = rustix::param::page_size() as u64;
        for i in (0..64).filter(|i| descriptor.decommitted >> i & 1 != 0) {
            for object in
                (i * system_page).div_ceil(size)..((i + 1) * system_page).div_ceil(size).min(count)
            {
                self.out.set_free(base + object * size);
            }
        }
    }

    /// The list of a sample slab is an array of sample points, by slot.
    fn sampled(&mut self, descriptor: &Descriptor) -> Result<(), Obstacle> {
        let (slab, count) = (
            descriptor.slab as u32,
            self.out.slabs[descriptor.slab].count,
        );
        let points = self.memory.bytes(descriptor.list, count as usize * 8)?;
        for index in 0..count {
            let point = Fields(&points).u64(index as usize * 8);
            let slot = Slot { slab, index };
            if point != 0 {
                self.out.in_use.set(self.out.number(slot));
                self.point(slot, point)?;
            }
        }
        Ok(())
    }

    fn large(&mut self, descriptor: &Descriptor) -> Result<(), Obstacle> {
        let slot = Slot {
            slab: descriptor.slab as u32,
            index: 0,
        };
        match descriptor.point {
            0 => Ok(()),
            point => self.point(slot, point),
        }
    }

    fn point(&mut self, slot: Slot, point: u64) -> Result<(), Obstacle> {
        let layout = &self.anchor.sampler;
        let bytes = self.pieces.bytes(point, layout.point_bytes.into())?;
        let fields = Fields(&bytes);
        let sampled = Sampled {
            site: fields.u64(layout.point_site.into()),
            bytes: fields
                .u64(layout.point_asked.into())
                .min(self.out.place(slot).1),
        };
        if fields.u32(layout.point_state.into()) & u32::from(layout.exempt_states) != 0 {
            self.out.exempt.push(slot);
        }
        // Its slot in the slab of its class stays in use while it is sampled.
        let place = fields.u64(layout.point_slot.into());
        if place != 0 {
            self.out.set_free(place);
        }
        if sampled.site != 0 {
            self.out.sampled.insert(self.out.number(slot), sampled);
        }
        Ok(())
    }

    /// Marks up to `most` objects of a list as free. `first` is an address or a link.
    fn follow(&mut self, first: u64, most: usize) {
        let (mut at, mut left) = (pages::linked(first), most);
        while at != 0 && left > 0 && self.out.set_free(at) {
            at = self.pieces.word(at).map_or(0, pages::linked);
            left -= 1;
        }
    }

    fn heaps(&mut self, residence: &mut Residence) -> Result<(), Obstacle> {
        let layout = &self.anchor.heaps;
        let classes = u64::from(self.anchor.parts.class_count);
        let mut orphaned = HashSet::new();
        for (address, _) in heaps::addresses(self.memory, self.anchor)? {
            let bytes = residence.read(self.memory, address, layout.heap_bytes.into())?;
            let fields = Fields(&bytes);
            if fields.u8(layout.orphaned.into()) != 0 {
                orphaned.insert(address);
                continue;
            }
            for class in 0..classes as usize {
                let most = MOST_LISTS;
                for head in heaps::lists(&mut self.pieces, self.anchor, &fields, class, most) {
                    let list = self.pieces.word(head).unwrap_or(0);
                    self.follow(list, usize::MAX);
                }
            }
            let heads = fields.u64(layout.heads.into());
            // Behind the heads lies the object that malloc returned last.
            let end = heads.wrapping_add((classes + 2) * 8);
            self.out.covered.push((heads, end.max(heads)));
            self.pending(address)?;
            self.inlined(fields.u64(layout.inlined.into()));
        }
        self.cpu_caches();
        self.out.orphaned_heaps = orphaned.len();
        self.exempt_unknown(&orphaned);
        Ok(())
    }

    /// What threads without a heap share.
    fn cpu_caches(&mut self) {
        let layout = &self.anchor.heaps;
        let room = u64::from(layout.cpu_cache_room);
        for cpu in 0..u64::from(layout.most_cpu_caches) {
            let cache = self.pieces.word(layout.cpu_caches + cpu * 8).unwrap_or(0);
            if cache == 0 {
                continue;
            }
            for class in 0..u64::from(self.anchor.parts.class_count) {
                let count = self.pieces.word(cache.wrapping_add(class * 4)).unwrap_or(0);
                let objects = u64::from(layout.cpu_cache_objects) + class * room * 8;
                for index in 0..u64::from(count as u32).min(room) {
                    let at = cache.wrapping_add(objects + index * 8);
                    if let Ok(object) = self.pieces.word(at) {
                        self.out.set_free(object);
                    }
                }
            }
        }
    }

    /// Remote frees that a thread has not pushed yet.
    fn pending(&mut self, heap: u64) -> Result<(), Obstacle> {
        let layout = &self.anchor.heaps;
        let (count, bytes) = (layout.pending_count as usize, layout.pending_bytes as usize);
        let at = heap.wrapping_add(layout.pending.into());
        let table = self.pieces.bytes(at, count * bytes)?;
        for entry in table.chunks_exact(bytes.max(1)) {
            let fields = Fields(entry);
            if fields.u64(layout.pending_slab.into()) != 0 {
                let objects = fields.u32(layout.pending_objects.into()) as usize;
                self.follow(fields.u64(layout.pending_head.into()), objects);
            }
        }
        Ok(())
    }

    fn inlined(&mut self, state: u64) {
        let layout = &self.anchor.heaps;
        if state == 0 {
            return;
        }
        for class in 0..u64::from(layout.inlined_classes) {
            let word = |from: u64| state.wrapping_add(from + class * 8);
            if let Ok(newest) = self.pieces.word(word(0)) {
                self.out.set_free(newest);
            }
            for list in [layout.inlined_newer, layout.inlined_older] {
                let first = self.pieces.word(word(list.into())).unwrap_or(0);
                self.follow(first, usize::MAX);
            }
        }
    }

    /// Exempts objects whose state is uncertain: the lists of an orphaned heap may be torn, and objects
    /// from before everything was sampled have no site.
    fn exempt_unknown(&mut self, orphaned: &HashSet<u64>) {
        for descriptor in &self.descriptors {
            let unknown = orphaned.contains(&descriptor.owner)
                || self.out.everything && descriptor.kind != kind::SAMPLED;
            if !unknown {
                continue;
            }
            for index in 0..self.out.slabs[descriptor.slab].count {
                let slab = descriptor.slab as u32;
                let slot = Slot { slab, index };
                let number = self.out.number(slot);
                if self.out.in_use.has(number) && !self.out.sampled.contains_key(&number) {
                    self.out.exempt.push(slot);
                }
            }
        }
    }

    /// Exempts objects of the sites that the library's own check exempts.
    fn sites(&mut self) -> Result<(), Obstacle> {
        let offset = self.anchor.profile.exempt;
        if !self.out.everything {
            return Ok(());
        }
        let mut known: FxHashMap<u64, bool> = FxHashMap::default();
        let mut found = Vec::new();
        for slot in self.out.each() {
            let Some(sampled) = self.out.sampled.get(&self.out.number(slot)) else {
                continue;
            };
            let exempt = match known.get(&sampled.site) {
                Some(exempt) => *exempt,
                None => {
                    let at = sampled.site.wrapping_add(offset.into());
                    let exempt = self.pieces.bytes(at, 1)? != [0];
                    known.insert(sampled.site, exempt);
                    exempt
                }
            };
            if exempt {
                found.push(slot);
            }
        }
        self.out.exempt.append(&mut found);
        Ok(())
    }
}
