// The page heap looked at as a whole: by statistics, the leak search and the checks of its
// invariants.
#include "core/limit.h"
#include "core/page_heap.h"

namespace larder {

void PageHeap::for_each(FunctionRef<void(const PageRange&)> visit) {
  LockGuard guard(lock_);
  for (Region* r = regions_; r != nullptr; r = r->next)
    for (unsigned i = 0; i < r->count; ++i) {
      Segment& segment = r->segments[i];
      PageSet dirty = segment.free_pages & segment.dirty;
      PageSet clean = segment.free_pages & ~segment.dirty;
      for (int page = 0, count = 1; page < kPagesPerSegment; page += count) {
        PageRange pages = {PageRange::kCached, &segment, segment.base + size_t(page) * kPageBytes,
                           0, nullptr};
        Slab* s = &segment.slabs[page];
        count = 1;
        if ((dirty >> page & 1) != 0) {
          pages.state = PageRange::kDirty;
          count = span_length_at(dirty, page);
        } else if ((clean >> page & 1) != 0) {
          pages.state = PageRange::kClean;
          count = span_length_at(clean, page);
        } else if (s->base == pages.base && s->kind != Kind::kNull && s->kind != Kind::kFree) {
          pages.state = PageRange::kInUse;
          pages.slab = s;
          count = s->pages;
        }
        pages.bytes = size_t(count) * kPageBytes;
        visit(pages);
      }
    }
}

void PageHeap::check() {
  LockGuard guard(lock_);
  size_t dirty_segments = 0;
  size_t free_pages = 0, clean_pages = 0, forbidden = 0;
  for (Region* r = regions_; r != nullptr; r = r->next) {
    for (unsigned i = 0; i < r->count; ++i) {
      const Segment& segment = r->segments[i];
      LARDER_CHECK(segment.longest == longest_span(segment.free_pages));
      LARDER_CHECK((r->free_segments >> i & 1) == (segment.wholly_free() ? 1u : 0u));
      LARDER_CHECK(segment.in_dirty_list == ((segment.free_pages & segment.dirty) != 0));
      dirty_segments += segment.in_dirty_list ? 1 : 0;
      forbidden += segment.huge == Huge::kForbidden ? 1 : 0;
      free_pages += size_t(count_pages(segment.free_pages));
      clean_pages += size_t(count_pages(segment.free_pages & ~segment.dirty));
    }
  }
  for (int length = 1; length < kPagesPerSegment; ++length) {
    LARDER_CHECK((buckets_[length] != nullptr) == ((bucket_bits_ >> length & 1) != 0));
    for (Segment* segment = buckets_[length]; segment != nullptr; segment = segment->next)
      LARDER_CHECK(segment->longest == length);
  }
  LARDER_CHECK(dirty_segments == dirty_whole_.size() + dirty_part_.size() + dirty_dense_.size());
  LARDER_CHECK(forbidden == forbidden_huge_);
  LARDER_CHECK(this != &page_heap || limit::state.clean_bytes == clean_pages * kPageBytes);
  LARDER_CHECK(used_bytes_ == (segments_ * kPagesPerSegment - free_pages) * kPageBytes);
}

}  // namespace larder
