// Spans: find, split, coalesce, and choose what to purge.
//
// One page heap a process, behind one lock. Threads come here for slabs and spans, not for objects.
// Best fit by the longest free span: the fullest segment that can serve a request serves it, at its
// lowest fitting page. Coalescing is implicit in the bits of pages and of segments. Cost: O(log
// 128) bit operations a request, plus the page-map entries of the span. Memory: 16.1 KiB of
// descriptors a segment, of which a span touches 128 bytes.
#pragma once

#include "base/function_ref.h"
#include "base/policy.h"
#include "core/segment.h"
#include "os/lock.h"

namespace larder {

// Pages in a row of one segment.
struct PageRange {
  // kCached: they have no object, and the page heap does not have them. Heaps cache them, or they
  // are being purged or freed.
  enum State : uint8_t { kInUse, kCached, kDirty, kClean };
  State state;
  Segment* segment;
  char* base;
  size_t bytes;
  Slab* slab;  // kInUse: the slab or span
};

struct PurgeJob {
  Segment* segment;
  PageSet pages;
  bool forbid_huge;  // first: else the kernel would fill the gaps again
};

struct PagesLayout;

class PageHeap {
 public:
  // An unowned span of `pages` (1..128) at a multiple of `align_pages` (a power of two, <= 128),
  // with its page-map entries set; nullptr without memory. Sets `kind`, `base`, `pages`, `bytes`,
  // `zero`.
  Slab* alloc_span(unsigned pages, unsigned align_pages, Kind kind);
  // Only the first `touched_bytes` may hold something else than zeros.
  void free_span(Slab* span, size_t touched_bytes);
  // Grows in place. False: the pages behind the span are not free.
  bool extend_span(Slab* span, unsigned new_pages);
  void shrink_span(Slab* span, unsigned new_pages);

  // Takes free dirty pages out of the heap, so that they can be discarded without the lock: wholly
  // free segments first, then those that were freed before `deadline_ms`; each segment once a pass.
  // Of dense huge pages only if the deadline is UINT64_MAX. False: there are none.
  bool take_for_purge(uint64_t deadline_ms, uint64_t pass, PurgeJob* job);
  // Returns the job's pages; those in `discarded` read as zeros now.
  void finish_purge(const PurgeJob& job, PageSet discarded);
  // Before parts of a span of this segment are discarded.
  void forbid_huge_pages(Segment* segment);
  // Unchecked, as below: the counts are hints.
  bool has_dirty() const LARDER_UNCHECKED {
    return (dirty_whole_.size() | dirty_part_.size()) != 0;
  }
  // Bytes of wholly free dirty segments; of pages in use.
  size_t dirty_whole_bytes() const LARDER_UNCHECKED { return dirty_whole_.size() * kSegmentBytes; }
  // Bytes of free dirty pages.
  size_t dirty_bytes() const;
  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

  // Unmaps wholly free regions, for when address space is short. Returns bytes.
  size_t release_regions();

  // Calls `visit` for all pages of all segments, in their order, under the lock.
  void for_each(FunctionRef<void(const PageRange&)> visit);
  // Checks every invariant of segment.h: debug builds and tests.
  void check();

  Lock& lock() LARDER_RETURNS(lock_) { return lock_; }
  // Bytes of spans that were handed out dirty, since the start: no page faults. Relaxed: a figure.
  uint64_t reused_bytes() const { return __atomic_load_n(&reused_bytes_, __ATOMIC_RELAXED); }

  static const PagesLayout layout;

 private:
  using DirtyList = List<Segment, &Segment::dirty_next, &Segment::dirty_prev>;

  Segment* find_segment(unsigned pages, unsigned align_pages, int* page) LARDER_REQUIRES(lock_);
  Segment* take_free_segment(unsigned pages) LARDER_REQUIRES(lock_);
  void open_segment(Segment* segment, unsigned pages) LARDER_REQUIRES(lock_);
  bool wants_huge_pages() LARDER_REQUIRES(lock_);
  void ask_for_huge_pages(Segment* segment) LARDER_REQUIRES(lock_);
  void set_huge(Segment* segment, Huge huge) LARDER_REQUIRES(lock_);
  void touch_huge_page(const Slab* span);
  Slab* claim(Segment* segment, int page, unsigned pages, Kind kind) LARDER_REQUIRES(lock_);
  void set_free_pages(Segment* segment, PageSet pages) LARDER_REQUIRES(lock_);
  void count_used(size_t more_pages) LARDER_REQUIRES(lock_);
  void release_pages(Segment* segment, PageSet pages, PageSet dirty) LARDER_REQUIRES(lock_);
  void bucket_remove(Segment* segment) LARDER_REQUIRES(lock_);
  void bucket_insert(Segment* segment) LARDER_REQUIRES(lock_);
  DirtyList& dirty_list(const Segment* segment) LARDER_REQUIRES(lock_) {
    if (segment->wholly_free()) return dirty_whole_;
    bool dense = segment->huge == Huge::kAsked &&
                 count_pages(segment->free_pages) * kSparseHugeShare < kPagesPerSegment;
    return dense ? dirty_dense_ : dirty_part_;
  }
  bool add_region(unsigned min_segments) LARDER_REQUIRES(lock_);

  Lock lock_;
  Region* regions_ LARDER_GUARDED_BY(lock_) = nullptr;
  Segment* buckets_[kPagesPerSegment] LARDER_GUARDED_BY(lock_) = {};  // by longest, 1..127
  PageSet bucket_bits_ LARDER_GUARDED_BY(lock_) = 0;  // bit i: buckets_[i] is not empty
  DirtyList dirty_whole_ LARDER_GUARDED_BY(lock_), dirty_part_ LARDER_GUARDED_BY(lock_),
      dirty_dense_ LARDER_GUARDED_BY(lock_);
  // Segments that may have no huge page; when a clean segment was last opened; when the next may
  // ask.
  size_t forbidden_huge_ LARDER_GUARDED_BY(lock_) = 0;
  uint64_t opened_ms_ LARDER_GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> huge_again_us_{0};  // relaxed: a hint
  // Written under the lock. Relaxed: others read them as statistics.
  std::atomic<size_t> used_bytes_{0}, segments_{0};
  uint64_t reused_bytes_ LARDER_GUARDED_BY(lock_) = 0;
};

extern PageHeap page_heap;

}  // namespace larder
