//! What the heap holds: `struct larder_stats` of `larder/larder.h`.

use crate::ffi;

macro_rules! structure {
    ($(#[$about:meta])* $name:ident, $($(#[$field_about:meta])* $field:ident,)*) => {
        $(#[$about])*
        #[repr(C)]
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_about])* pub $field: u64,)*
        }

        #[cfg(test)]
        const FIELDS: &[&str] = &[$(stringify!($field)),*];
    };
}

structure! {
    /// Bytes, or a count where it says so. Each figure is exact when it is read; together they are no snapshot.
    Stats,

    /// Of this structure, as the library filled it.
    size,
    /// Mapped from the system now, descriptors included.
    mapped,
    /// In allocated objects, by their size class.
    in_use,
    /// Free, and perhaps still backed by memory.
    free_dirty,
    /// Free, and untouched or purged.
    free_clean,
    /// Freed mappings that are cached for reuse.
    kept_mappings,
    /// Given back to the system since the start.
    purged_total,
    /// Copied by realloc since the start: objects over 64 KiB.
    realloc_copied_bytes,
    /// Of these, from objects over 1 MiB.
    realloc_copied_huge_bytes,
    /// Count, in use by a thread now.
    thread_heaps,
    /// Count, for threads beyond the bound.
    shared_heaps,
    /// Count: entries into malloc's slow path since the start.
    refills,
    /// Count: slabs taken from the page heap since the start.
    fresh_slabs,
    /// Count: objects freed in another heap's slab, pushed so far.
    remote_frees,
    /// Count: atomic pushes these took.
    remote_pushes,
    /// Count: mmap, munmap, mremap, madvise since the start.
    system_calls,
    /// Free objects in slabs.
    slab_free,
    /// Of slabs, not carved into objects yet.
    slab_uncarved,
    /// Ends of slabs; before large objects, for alignment.
    slab_tail,
    /// Slabs of sampled objects, whose slots are in use as well.
    sample_slabs,
    /// Spans that threads' heaps cache.
    heap_runs,
    /// Free for any thread, and perhaps in memory.
    page_heap_dirty,
    /// Free for any thread, and not in memory.
    page_heap_clean,
    /// Descriptors and the page map.
    metadata,
    /// Count, in use.
    objects,
    /// Count, with an object in use or cached empty.
    slabs,
    /// Upper bound: of in_use, bytes that were not requested.
    rounding_most,
    /// Memory that was handed out again while it could still be resident, since the start: no page faults.
    reused_total,
    /// Of the heap profile; 0: off.
    sample_mean,
    /// Count, of stacks in the profile.
    sites,
    /// The profile's estimate of in_use.
    sampled_in_use,
    /// Resident bytes of the heap: the sum of those that follow; all are 0 if the system does not say.
    resident,
    /// Resident bytes of allocated objects.
    resident_in_use,
    /// Resident bytes of free objects in slabs.
    resident_slab_free,
    /// Resident bytes of memory of slabs that is not carved yet.
    resident_slab_uncarved,
    /// Resident bytes of ends of slabs.
    resident_slab_tail,
    /// Resident bytes of slabs of sampled objects.
    resident_sample_slabs,
    /// Resident bytes of spans that threads cache.
    resident_heap_runs,
    /// Resident bytes of dirty free pages.
    resident_page_heap_dirty,
    /// Resident bytes of clean free pages.
    resident_page_heap_clean,
    /// Resident bytes of cached mappings.
    resident_kept_mappings,
    /// Resident bytes of descriptors and the page map.
    resident_metadata,
}

/// What the heap holds and wastes. Walks all slabs: a few microseconds a MiB of heap.
pub fn stats() -> Stats {
    let mut stats = Stats::default();
    // SAFETY: the structure has that size, and any bytes are valid in it.
    unsafe { ffi::larder_get_stats(&mut stats, size_of::<Stats>()) };
    stats
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_fields_are_those_of_the_header() {
        let header = include_str!("../include/larder/larder.h");
        let (_, structure) = header.split_once("struct larder_stats {").unwrap();
        let (structure, _) = structure.split_once("\n};").unwrap();
        let declared: Vec<String> = structure
            .split("uint64_t ")
            .skip(1)
            .map(|field| field.split(';').next().unwrap().into())
            .collect();
        assert_eq!(FIELDS, declared);
    }

    #[test]
    fn the_library_fills_the_whole_structure() {
        assert_eq!(stats().size as usize, size_of::<Stats>());
    }
}
