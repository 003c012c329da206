#include "core/page_heap.h"

#include "base/layout.h"
#include "base/policy.h"
#include "base/size_class.h"
#include "core/limit.h"
#include "core/page_map.h"
#include "core/source.h"
#include "os/backing.h"
#include "os/options.h"

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

void PageHeap::dirty_insert(Segment* segment) {
  DirtyList& list = dirty_list(segment);
  segment->dirty_next = nullptr;
  segment->dirty_prev = list.tail;
  (list.tail != nullptr ? list.tail->dirty_next : list.head) = segment;
  list.tail = segment;
  segment->in_dirty_list = true;
  list.add(1);
}

void PageHeap::dirty_remove(Segment* segment) {
  DirtyList& list = dirty_list(segment);
  (segment->dirty_prev != nullptr ? segment->dirty_prev->dirty_next : list.head) =
      segment->dirty_next;
  (segment->dirty_next != nullptr ? segment->dirty_next->dirty_prev : list.tail) =
      segment->dirty_prev;
  segment->in_dirty_list = false;
  list.add(size_t(-1));
}

void PageHeap::count_used(size_t more_pages) {
  size_t used = used_bytes() + more_pages * kPageBytes;
  used_bytes_.store(used, std::memory_order_relaxed);
  if (used > peak_bytes()) peak_bytes_.store(used, std::memory_order_relaxed);
}

// The only writer of free_pages: keeps buckets, regions, dirty lists and the limit's count in step.
void PageHeap::set_free_pages(Segment* segment, PageSet pages) {
  int more_clean =
      count_pages(pages & ~segment->dirty) - count_pages(segment->free_pages & ~segment->dirty);
  limit::count_clean(int64_t(more_clean) * int64_t(kPageBytes));
  bucket_remove(segment);
  if (segment->in_dirty_list) dirty_remove(segment);
  segment->free_pages = pages;
  segment->longest = uint8_t(longest_span(pages));
  uint64_t bit = uint64_t{1} << segment->index();
  if (segment->wholly_free())
    segment->region->free_segments |= bit;
  else
    segment->region->free_segments &= ~bit;
  bucket_insert(segment);
  if ((pages & segment->dirty) != 0) dirty_insert(segment);
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
  Region* r = source_region(min_segments, segments_);
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
  segments_ += r->count;
  r->next = regions_;
  regions_ = r;
  return true;
}

// --- huge pages

// A huge page is resident as a whole, so only a heap asks for them that is large and has little
// free memory.
bool PageHeap::wants_huge_pages() {
  if (used_bytes() < kHugeHeapBytes || dirty_bytes() * kSparseHugeShare > used_bytes() ||
      forbidden_huge_ >= kMaxForbiddenHuge || option(Option::kHugePages) == 0)
    return false;
  if (!system_huge_known_) system_huge_ = os::huge_pages();
  system_huge_known_ = true;
  return system_huge_ != os::HugePages::kNever;
}

bool PageHeap::may_be_huge(const Segment* segment) const {
  return segment->huge == Huge::kAsked ||
         (segment->huge == Huge::kUnasked && system_huge_ == os::HugePages::kAlways);
}

// REQUIRES: the segment is in no dirty list.
void PageHeap::set_huge(Segment* segment, Huge huge) {
  forbidden_huge_ += size_t(huge == Huge::kForbidden) - size_t(segment->huge == Huge::kForbidden);
  segment->huge = huge;
}

// Of a heap that grows fast, a clean segment is soon filled if small spans are what fills it.
void PageHeap::open_segment(Segment* segment, unsigned pages) {
  uint64_t now_ms = os::now_ms();
  bool fast = now_ms - opened_ms_ < kHugeGrowthMs;
  opened_ms_ = now_ms;
  set_free_pages(segment, 0);
  set_huge(segment, Huge::kUnasked);
  if (fast && pages <= SizeClasses::pages_for(kSmallMax) && wants_huge_pages() &&
      limit::allows(kSegmentBytes) &&
      os::now_us() >= huge_again_us_.load(std::memory_order_relaxed) &&
      backing::ask_for_huge_pages(segment->base, kSegmentBytes)) {
    set_huge(segment, Huge::kAsked);
    segment->dirty = kAllPages;
    segment->dirty_since_ms = segment->last_free_ms = now_ms;
  }
  set_free_pages(segment, kAllPages);
}

// Where huge pages are scarce the kernel searches and copies; then they wait.
void PageHeap::touch_huge_page(const Slab* span) {
  uint64_t before_us = os::now_us();
  *static_cast<volatile char*>(span->base) = 0;
  uint64_t us = os::now_us() - before_us;
  if (us > kSlowHugeUs)
    huge_again_us_.store(before_us + us * kHugeShare, std::memory_order_relaxed);
}

void PageHeap::forbid_huge_pages(Segment* segment) {
  {
    LockGuard guard(lock_);
    if (!may_be_huge(segment)) return;
    PageSet free_pages = segment->free_pages;
    set_free_pages(segment, 0);
    set_huge(segment, Huge::kForbidden);
    set_free_pages(segment, free_pages);
  }
  backing::forbid_huge_pages(segment->base, kSegmentBytes);
}

// Dirty before clean: dirty memory causes no page fault.
Segment* PageHeap::take_free_segment(unsigned pages) {
  if (dirty_whole_.tail != nullptr) return dirty_whole_.tail;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Region* r = regions_; r != nullptr; r = r->next) {
      if (r->free_segments == 0) continue;
      Segment* segment = &r->segments[__builtin_ctzll(r->free_segments)];
      open_segment(segment, pages);
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
  if (cold != nullptr && dirty_whole_.tail == nullptr) return cold;
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
  if (segment->free_pages == 0 && segment->huge == Huge::kUnasked && !segment->purging &&
      wants_huge_pages() && backing::ask_for_huge_pages(segment->base, kSegmentBytes)) {
    set_huge(segment, Huge::kAsked);
    segment->dirty = kAllPages;
  }
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
    for (Segment* segment = list->head; segment != nullptr; segment = segment->dirty_next) {
      bool idle = segment->last_free_ms <= deadline_ms;
      uint64_t decay_ms = os::now_ms() - deadline_ms;
      bool stale = segment->dirty_since_ms + (kStaleDecays - 1) * decay_ms <= deadline_ms;
      if (segment->purging || segment->purge_pass == pass || !(idle || stale)) continue;
      job->segment = segment;
      job->pages = segment->free_pages & segment->dirty;
      segment->purging = true;
      segment->purge_pass = pass;
      set_free_pages(segment, segment->free_pages & ~job->pages);
      job->forbid_huge = may_be_huge(segment);
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
  size_t segments = __atomic_load_n(&segments_, __ATOMIC_RELAXED);  // relaxed: a figure
  size_t rest = used_bytes() + limit::state.clean_bytes.load(std::memory_order_relaxed);
  return segments * kSegmentBytes > rest ? segments * kSegmentBytes - rest : 0;
}

size_t PageHeap::release_regions() {
  LockGuard guard(lock_);
  size_t bytes = 0;
  for (Region** link = &regions_; *link != nullptr;) {
    Region* r = *link;
    if (r->free_segments == segment_bits(r->count)) {
      for (unsigned i = 0; i < r->count; ++i)
        if (r->segments[i].in_dirty_list) dirty_remove(&r->segments[i]);
      for (unsigned i = 0; i < r->count; ++i) set_huge(&r->segments[i], Huge::kUnasked);
      Region* following = r->next;
      unsigned count = r->count;
      int dirty = 0;
      for (unsigned i = 0; i < count; ++i) dirty += count_pages(r->segments[i].dirty);
      if (source_release(r)) {
        limit::count_clean(int64_t(size_t(dirty) * kPageBytes) - int64_t(count * kSegmentBytes));
        *link = following;
        segments_ -= count;
        bytes += count * kSegmentBytes;
        continue;
      }
      for (unsigned i = 0; i < r->count; ++i)
        if (r->segments[i].dirty != 0) dirty_insert(&r->segments[i]);
    }
    link = &r->next;
  }
  return bytes;
}

// --- walks

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
