// The page heap looked at as a whole: by statistics, the leak search and the checks of its
// invariants.
#include <initializer_list>

#include "core/limit.h"
#include "core/page_heap.h"

namespace larder {

PageHeap::Totals PageHeap::totals() {
  LockGuard guard(lock_);
  Totals t = {};
  for (Region* r = regions_; r != nullptr; r = r->next) {
    t.region_bytes += r->count * kSegmentBytes;
    for (unsigned i = 0; i < r->count; ++i) {
      const Segment& segment = r->segments[i];
      t.free_bytes += size_t(count_pages(segment.free_pages)) * kPageBytes;
      t.dirty_free_bytes += size_t(count_pages(segment.free_pages & segment.dirty)) * kPageBytes;
    }
  }
  return t;
}

Slab* PageHeap::span_at(Segment& segment, int page) {
  Slab* s = &segment.slabs[page];
  bool in_use = (segment.free_pages >> page & 1) == 0 &&
                s->base == segment.base + size_t(page) * kPageBytes && s->kind != Kind::kNull &&
                s->kind != Kind::kFree;
  return in_use ? s : nullptr;
}

void PageHeap::for_each_segment(void (*visit)(Segment&, void*), void* context) {
  LockGuard guard(lock_);
  for (Region* r = regions_; r != nullptr; r = r->next)
    for (unsigned i = 0; i < r->count; ++i) visit(r->segments[i], context);
}

void PageHeap::for_each(void (*visit)(Slab*, void*), void* context) {
  struct Visit {
    void (*visit)(Slab*, void*);
    void* context;
  } each = {visit, context};
  auto visit_segment = [](Segment& segment, void* to) {
    for (int page = 0; page < kPagesPerSegment;) {
      Slab* s = span_at(segment, page);
      if (s != nullptr) static_cast<Visit*>(to)->visit(s, static_cast<Visit*>(to)->context);
      page += s != nullptr ? int(s->pages) : 1;
    }
  };
  for_each_segment(visit_segment, &each);
}

void PageHeap::for_each_free(void (*visit)(const void*, size_t, bool, void*), void* context) {
  LockGuard guard(lock_);
  for (Region* r = regions_; r != nullptr; r = r->next) {
    for (unsigned i = 0; i < r->count; ++i) {
      const Segment& segment = r->segments[i];
      for (PageSet set :
           {segment.free_pages & segment.dirty, segment.free_pages & ~segment.dirty}) {
        for (PageSet rest = set; rest != 0;) {
          int first = first_page(rest);
          int count = span_length_at(rest, first);
          rest &= ~page_range(first, count);
          visit(segment.base + size_t(first) * kPageBytes, size_t(count) * kPageBytes,
                (set & segment.dirty) != 0, context);
        }
      }
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
  LARDER_CHECK(dirty_segments == dirty_whole_.count + dirty_part_.count + dirty_dense_.count);
  LARDER_CHECK(forbidden == forbidden_huge_);
  LARDER_CHECK(this != &page_heap || limit::state.clean_bytes == clean_pages * kPageBytes);
  LARDER_CHECK(used_bytes_ == (segments_ * kPagesPerSegment - free_pages) * kPageBytes);
}

}  // namespace larder
