//! How the calls of the malloc family are counted: curl's five kinds of allocation, and frees.

use std::ops::AddAssign;

use larder_trace::AllocCall;
use serde::Serialize;

use super::sites::SortKey;

/// The kind that an allocation counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Malloc,
    Calloc,
    Realloc,
    Strdup,
    Wcsdup,
}

impl Kind {
    /// C++'s `new` and the aligned family count as mallocs, `strndup` as a strdup.
    pub fn of(call: AllocCall) -> Self {
        match call {
            AllocCall::Malloc
            | AllocCall::AlignedAlloc
            | AllocCall::PosixMemalign
            | AllocCall::Memalign
            | AllocCall::Valloc
            | AllocCall::Pvalloc
            | AllocCall::New
            | AllocCall::NewArray => Kind::Malloc,
            AllocCall::Calloc => Kind::Calloc,
            AllocCall::Realloc | AllocCall::Reallocarray => Kind::Realloc,
            AllocCall::Strdup | AllocCall::Strndup => Kind::Strdup,
            AllocCall::Wcsdup => Kind::Wcsdup,
        }
    }

    /// The name of the C function.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Malloc => "malloc",
            Kind::Calloc => "calloc",
            Kind::Realloc => "realloc",
            Kind::Strdup => "strdup",
            Kind::Wcsdup => "wcsdup",
        }
    }
}

/// Totals of one process image, or of several. `allocations` is the sum of the five kinds.
///
/// Bytes are those that the program requested. A realloc frees its old block before it allocates the
/// new one, and adds its whole new size to the total.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub mallocs: u64,
    pub callocs: u64,
    pub reallocs: u64,
    pub strdups: u64,
    pub wcsdups: u64,
    pub frees: u64,
    pub allocations: u64,
    /// Of several process images: the highest.
    pub peak_bytes: u64,
    pub total_bytes: u64,
    /// At the end of the trace.
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Blocks under 32 bytes.
    pub tiny: u64,
    /// Mallocs that are operator new or new[].
    pub news: u64,
    /// Mallocs that are aligned_alloc, posix_memalign, memalign, valloc or pvalloc.
    pub aligned: u64,
    /// Strdups that are strndup.
    pub strndups: u64,
    /// Frees that are operator delete or delete[].
    pub deletes: u64,
    /// Calls that returned no memory; counted nowhere else.
    pub failed: u64,
    /// Frees and reallocs of blocks whose allocation is not in the trace.
    pub unknown_frees: u64,
}

/// A counter's name and value.
pub type Counter = (&'static str, u64);

impl Counters {
    /// What the sites that allocate add up to.
    pub fn of(&self, key: SortKey) -> u64 {
        match key {
            SortKey::Calls => self.allocations,
            SortKey::Bytes => self.total_bytes,
            SortKey::Peak => self.peak_bytes,
            SortKey::Tiny => self.tiny,
            SortKey::Live => self.live_bytes,
            SortKey::Errors | SortKey::Time => 0,
        }
    }

    /// The calls by kind and their sum, in the order of a report.
    pub fn of_calls(&self) -> [Counter; 7] {
        [
            ("Mallocs", self.mallocs),
            ("Reallocs", self.reallocs),
            ("Callocs", self.callocs),
            ("Strdups", self.strdups),
            ("Wcsdups", self.wcsdups),
            ("Frees", self.frees),
            ("Allocations", self.allocations),
        ]
    }

    /// The bytes at the top of every report.
    pub fn of_bytes(&self) -> [Counter; 2] {
        [
            ("Maximum allocated", self.peak_bytes),
            ("Total allocated", self.total_bytes),
        ]
    }

    pub fn count_allocations(&mut self, kind: Kind, call: AllocCall, calls: u64) {
        let add = |sum: &mut u64| *sum = sum.saturating_add(calls);
        add(&mut self.allocations);
        add(match kind {
            Kind::Malloc => &mut self.mallocs,
            Kind::Calloc => &mut self.callocs,
            Kind::Realloc => &mut self.reallocs,
            Kind::Strdup => &mut self.strdups,
            Kind::Wcsdup => &mut self.wcsdups,
        });
        match call {
            AllocCall::New | AllocCall::NewArray => add(&mut self.news),
            AllocCall::AlignedAlloc
            | AllocCall::PosixMemalign
            | AllocCall::Memalign
            | AllocCall::Valloc
            | AllocCall::Pvalloc => add(&mut self.aligned),
            AllocCall::Strndup => add(&mut self.strndups),
            _ => {}
        }
    }
}

impl AddAssign<&Counters> for Counters {
    fn add_assign(&mut self, other: &Counters) {
        self.mallocs += other.mallocs;
        self.callocs += other.callocs;
        self.reallocs += other.reallocs;
        self.strdups += other.strdups;
        self.wcsdups += other.wcsdups;
        self.frees += other.frees;
        self.allocations += other.allocations;
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.total_bytes += other.total_bytes;
        self.live_bytes += other.live_bytes;
        self.live_blocks += other.live_blocks;
        self.tiny += other.tiny;
        self.news += other.news;
        self.aligned += other.aligned;
        self.strndups += other.strndups;
        self.deletes += other.deletes;
        self.failed += other.failed;
        self.unknown_frees += other.unknown_frees;
    }
}
