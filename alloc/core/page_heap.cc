#include "core/page_heap.h"

#include "base/layout.h"
#include "base/policy.h"
#include "core/limit.h"
#include "core/page_map.h"
#include "core/source.h"

namespace larder {

constinit PageHeap page_heap;

namespace {

// The pages at which an aligned span may start.
constexpr PageSet aligned_pages(unsigned align_pages) {
  PageSet set = 1;
  for (unsigned step = kPagesPerSegment / 2; step >= align_pages && step > 0; step /= 2)
    set |= set << step;
  return set;
}

int page_index(const Slab* s) { return int((uintptr_t(s->base) >> kPageShift) % kPagesPerSegment); }

PageSet pages_of_bytes(int first, unsigned pages, size_t bytes) {
  size_t n = (bytes + kPageBytes - 1) / kPageBytes;
  return page_range(first, int(n < pages ? n : pages));
}

}  // namespace

constinit const PagesLayout PageHeap::layout = {
    .first_region = static_cast<const void*>(&page_heap.regions_),
    .reused_bytes = &page_heap.reused_bytes_,
    .region_bytes = sizeof(Region),
    .region_next = offsetof(Region, next),
    .region_base = offsetof(Region, base),
    .region_segments = offsetof(Region, segments),
    .region_count = offsetof(Region, count),
    .shared_table_segments = kSharedTableSegments,
    .segment_bytes = sizeof(Segment),
    .segment_free = offsetof(Segment, free_pages),
    .segment_dirty = offsetof(Segment, dirty),
    .slab_bytes = sizeof(Slab),
    .slab_owner = offsetof(Slab, owner_),
    .slab_list = offsetof(Slab, list),
    .slab_free = offsetof(Slab, free),
    .slab_used = offsetof(Slab, used),
    .slab_capacity = offsetof(Slab, capacity),
    .slab_class = offsetof(Slab, size_class),
    .slab_kind = offsetof(Slab, kind),
    .slab_base = offsetof(Slab, base),
    .slab_carved = offsetof(Slab, carved),
    .slab_purged = offsetof(Slab, purged_at),
    .slab_pages = offsetof(Slab, pages),
    .slab_span_bytes = offsetof(Slab, bytes),
    .slab_offset = offsetof(Slab, offset),
    .slab_prev = offsetof(Slab, prev),
    .slab_remote = offsetof(Slab, remote),
    .slab_decommitted = offsetof(Slab, decommitted),
    .slab_point = offsetof(Slab, sample_point)};

// --- buckets and lists

void PageHeap::bucket_remove(Segment* segment) {
  if (segment->longest == 0 || segment->longest == kPagesPerSegment) return;
  (segment->prev != nullptr ? segment->prev->next : buckets_[segment->longest]) = segment->next;
  if (segment->next != nullptr) segment->next->prev = segment->prev;
  if (buckets_[segment->longest] == nullptr) bucket_bits_ &= ~(PageSet{1} << segment->longest);
}

void PageHeap::bucket_insert(Segment* segment) {
  if (segment->longest == 0 || segment->longest == kPagesPerSegment) return;
  segment->prev = nullptr;
  segment->next = buckets_[segment->longest];
  if (segment->next != nullptr) segment->next->prev = segment;
  buckets_[segment->longest] = segment;
  bucket_bits_ |= PageSet{1} << segment->longest;
}

void PageHeap::count_used(size_t more_pages) {
  used_bytes_.store(used_bytes() + more_pages * kPageBytes, std::memory_order_relaxed);
}

// The only writer of free_pages: keeps buckets, regions, dirty lists and the limit's count in step.
void PageHeap::set_free_pages(Segment* segment, PageSet pages) {
  PageSet clean = pages & ~segment->dirty, was_clean = segment->free_pages & ~segment->dirty;
  if (clean != was_clean)
    limit::count_clean(int64_t(count_pages(clean) - count_pages(was_clean)) * int64_t(kPageBytes));
  bucket_remove(segment);
  if (segment->in_dirty_list) dirty_list(segment).remove(segment);
  segment->free_pages = pages;
  segment->longest = uint8_t(longest_span(pages));
  uint64_t bit = uint64_t{1} << segment->index();
  if (segment->wholly_free())
    segment->region->free_segments |= bit;
  else
    segment->region->free_segments &= ~bit;
  bucket_insert(segment);
  segment->in_dirty_list = (pages & segment->dirty) != 0;
  if (segment->in_dirty_list) dirty_list(segment).push_back(segment);
}

void PageHeap::release_pages(Segment* segment, PageSet pages, PageSet dirty) {
  LARDER_CHECK((segment->free_pages & pages) == 0);
  if (dirty != 0) {
    segment->last_free_ms = os::now_ms();
    if ((segment->free_pages & segment->dirty) == 0)
      segment->dirty_since_ms = segment->last_free_ms;
    segment->dirty |= dirty;
  }
  set_free_pages(segment, segment->free_pages | pages);
}

// --- finding

bool PageHeap::add_region(unsigned min_segments) {
  size_t segments = segments_.load(std::memory_order_relaxed);
  Region* r = source_region(min_segments, segments);
  if (r == nullptr) return false;
  for (unsigned i = 0; i < r->count; ++i) {
    Segment& segment = r->segments[i];
    segment.region = r;
    segment.slabs = reinterpret_cast<Slab*>(r->segments + r->count) + size_t{i} * kPagesPerSegment;
    segment.base = r->base + i * kSegmentBytes;
    segment.free_pages = kAllPages;
    segment.longest = kPagesPerSegment;
  }
  limit::count_clean(int64_t(r->count * kSegmentBytes));
  segments_.store(segments + r->count, std::memory_order_relaxed);
  r->next = regions_;
  regions_ = r;
  return true;
}

// Dirty before clean: dirty memory causes no page fault.
Segment* PageHeap::take_free_segment(unsigned pages) {
  if (!dirty_whole_.empty()) return dirty_whole_.back();
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Region* r = regions_; r != nullptr; r = r->next) {
      if (r->free_segments == 0) continue;
      Segment* segment = &r->segments[__builtin_ctzll(r->free_segments)];
      bool large = used_bytes() >= kHugeHeapBytes;
      if (unlikely(large || segment->huge != Huge::kUnasked)) open_segment(segment, pages);
      return segment;
    }
    if (!add_region(1)) return nullptr;
  }
  return nullptr;
}

// Dirty pages before clean ones, in any segment: a page fault costs more than any search here.
Segment* PageHeap::find_segment(unsigned pages, unsigned align_pages, int* page) {
  PageSet may_start = aligned_pages(align_pages);
  PageSet buckets = pages >= kPagesPerSegment ? 0 : bucket_bits_ & (kAllPages << pages);
  Segment* cold = nullptr;
  int looks = kSegmentLooks;
  while (buckets != 0 && (looks > 0 || cold == nullptr)) {
    int longest = first_page(buckets);
    buckets &= buckets - 1;
    // An unaligned request fits in every segment of the bucket; an aligned one tries a few.
    if (cold == nullptr) looks = kSegmentLooks;
    for (Segment* segment = buckets_[longest]; segment != nullptr && looks > 0;
         segment = segment->next, --looks) {
      PageSet warm = starts_of_spans(segment->free_pages & segment->dirty, int(pages)) & may_start;
      if (warm != 0) {
        *page = first_page(warm);
        return segment;
      }
      if (cold != nullptr) continue;
      PageSet starts = starts_of_spans(segment->free_pages, int(pages)) & may_start;
      if (starts == 0) continue;
      *page = first_page(starts);
      cold = segment;
    }
  }
  if (cold != nullptr && dirty_whole_.empty()) return cold;
  *page = 0;
  return take_free_segment(pages);
}

Slab* PageHeap::claim(Segment* segment, int page, unsigned pages, Kind kind) {
  PageSet taken = page_range(page, int(pages));
  LARDER_CHECK((segment->free_pages & taken) == taken);
  Slab* s = &segment->slabs[page];
  s->set_owner(kUnowned);
  s->kind = kind;
  s->base = segment->base + size_t(page) * kPageBytes;
  s->segment = segment;
  s->pages = uint16_t(pages);
  s->bytes = pages * kPageBytes;
  s->offset = 0;
  s->zero = (segment->dirty & taken) == 0;
  reused_bytes_ += size_t(count_pages(segment->dirty & taken)) * kPageBytes;
  page_map.set(s->base, pages, s);
  count_used(pages);
  set_free_pages(segment, segment->free_pages & ~taken);
  // Full, and dense: the kernel makes it huge in the background.
  if (unlikely(segment->free_pages == 0 && used_bytes() >= kHugeHeapBytes) &&
      segment->huge == Huge::kUnasked && !segment->purging)
    ask_for_huge_pages(segment);
  return s;
}

// --- spans

Slab* PageHeap::alloc_span(unsigned pages, unsigned align_pages, Kind kind) {
  Slab* span = nullptr;
  bool first_of_huge = false;
  {
    LockGuard guard(lock_);
    int page = 0;
    Segment* segment = find_segment(pages, align_pages, &page);
    if (segment == nullptr) return nullptr;
    PageSet taken = page_range(page, int(pages));
    int clean = count_pages(taken & ~segment->dirty);
    if (clean != 0 && !limit::allows(size_t(clean) * kPageBytes)) return nullptr;
    span = claim(segment, page, pages, kind);
    first_of_huge = segment->huge == Huge::kAsked && segment->free_pages == ~taken;
  }
  if (first_of_huge) touch_huge_page(span);
  return span;
}

void PageHeap::free_span(Slab* span, size_t touched_bytes) {
  LockGuard guard(lock_);
  int page = page_index(span);
  PageSet pages = page_range(page, int(span->pages));
  PageSet touched = pages_of_bytes(page, span->pages, touched_bytes);
  span->kind = Kind::kFree;
  span->set_owner(kUnowned);
  count_used(-size_t{span->pages});
  release_pages(span->segment, pages, touched);
}

bool PageHeap::extend_span(Slab* span, unsigned new_pages) {
  LockGuard guard(lock_);
  int page = page_index(span);
  if (page + int(new_pages) > kPagesPerSegment) return false;
  Segment* segment = span->segment;
  PageSet more = page_range(page + int(span->pages), int(new_pages - span->pages));
  if ((segment->free_pages & more) != more ||
      !limit::allows(size_t(count_pages(more)) * kPageBytes))
    return false;
  page_map.set(span->base + span->bytes, new_pages - span->pages, span);
  count_used(new_pages - span->pages);
  span->pages = uint16_t(new_pages);
  span->bytes = new_pages * kPageBytes;
  span->zero = false;
  set_free_pages(segment, segment->free_pages & ~more);
  return true;
}

void PageHeap::shrink_span(Slab* span, unsigned new_pages) {
  LockGuard guard(lock_);
  PageSet tail = page_range(page_index(span) + int(new_pages), int(span->pages - new_pages));
  count_used(size_t{new_pages} - span->pages);
  span->pages = uint16_t(new_pages);
  span->bytes = new_pages * kPageBytes;
  release_pages(span->segment, tail, tail);
}

// --- purge

bool PageHeap::take_for_purge(uint64_t deadline_ms, uint64_t pass, PurgeJob* job) {
  LockGuard guard(lock_);
  for (DirtyList* list : {&dirty_whole_, &dirty_part_, &dirty_dense_}) {
    if (list == &dirty_dense_ && deadline_ms != UINT64_MAX) break;
    for (Segment* segment = list->front(); segment != nullptr; segment = segment->dirty_next) {
      bool idle = segment->last_free_ms <= deadline_ms;
      uint64_t decay_ms = os::now_ms() - deadline_ms;
      bool stale = segment->dirty_since_ms + (kStaleDecays - 1) * decay_ms <= deadline_ms;
      if (segment->purging || segment->purge_pass == pass || !(idle || stale)) continue;
      job->segment = segment;
      job->pages = segment->free_pages & segment->dirty;
      segment->purging = true;
      segment->purge_pass = pass;
      set_free_pages(segment, segment->free_pages & ~job->pages);
      job->forbid_huge = segment->huge == Huge::kAsked;
      if (job->forbid_huge) set_huge(segment, Huge::kForbidden);
      return true;
    }
  }
  return false;
}

void PageHeap::finish_purge(const PurgeJob& job, PageSet discarded) {
  LockGuard guard(lock_);
  Segment* segment = job.segment;
  segment->purging = false;
  segment->dirty &= ~discarded;
  segment->dirty_since_ms = segment->last_free_ms = os::now_ms();
  set_free_pages(segment, segment->free_pages | job.pages);
}

size_t PageHeap::dirty_bytes() const {
  size_t all = segments_.load(std::memory_order_relaxed) * kSegmentBytes;
  size_t rest = used_bytes() + limit::state.clean_bytes.load(std::memory_order_relaxed);
  return all > rest ? all - rest : 0;
}

size_t PageHeap::release_regions() {
  LockGuard guard(lock_);
  size_t bytes = 0;
  for (Region** link = &regions_; *link != nullptr;) {
    Region* r = *link;
    bool is_free = r->free_segments == segment_bits(r->count);
    for (unsigned i = 0; is_free && i < r->count; ++i) {
      set_free_pages(&r->segments[i], 0);
      set_huge(&r->segments[i], Huge::kUnasked);
    }
    Region* following = r->next;
    unsigned count = r->count;
    if (is_free && source_release(r)) {
      *link = following;
      segments_.store(segments_.load(std::memory_order_relaxed) - count, std::memory_order_relaxed);
      bytes += count * kSegmentBytes;
      continue;
    }
    for (unsigned i = 0; is_free && i < count; ++i) set_free_pages(&r->segments[i], kAllPages);
    link = &r->next;
  }
  return bytes;
}

// --- all of them

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

}  // namespace larder
