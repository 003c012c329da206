// The page heap's huge pages: which segments ask for one, and which give it up.
#include "base/policy.h"
#include "base/size_class.h"
#include "core/limit.h"
#include "core/page_heap.h"
#include "os/backing.h"
#include "os/options.h"

namespace larder {

// A huge page is resident as a whole, so only a heap asks for them that is large and has little
// free memory.
bool PageHeap::wants_huge_pages() {
  return used_bytes() >= kHugeHeapBytes && dirty_bytes() * kSparseHugeShare <= used_bytes() &&
         forbidden_huge_ < kMaxForbiddenHuge && option(Option::kHugePages) != 0;
}

// REQUIRES: the segment is in no dirty list.
void PageHeap::set_huge(Segment* segment, Huge huge) {
  forbidden_huge_ += size_t(huge == Huge::kForbidden) - size_t(segment->huge == Huge::kForbidden);
  segment->huge = huge;
}

// REQUIRES: none of its pages is free, at the moment.
void PageHeap::ask_for_huge_pages(Segment* segment) {
  if (!wants_huge_pages() || !backing::ask_for_huge_pages(segment->base, kSegmentBytes)) return;
  set_huge(segment, Huge::kAsked);
  segment->dirty = kAllPages;
}

// Of a heap that grows fast, a clean segment is soon filled if small spans are what fills it.
void PageHeap::open_segment(Segment* segment, unsigned pages) {
  uint64_t now_ms = os::now_ms();
  bool fast = now_ms - opened_ms_ < kHugeGrowthMs;
  opened_ms_ = now_ms;
  set_free_pages(segment, 0);
  set_huge(segment, Huge::kUnasked);
  if (fast && pages <= kMaxSlabPages && limit::allows(kSegmentBytes) &&
      os::now_us() >= huge_again_us_.load(std::memory_order_relaxed)) {
    ask_for_huge_pages(segment);
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
    if (segment->huge != Huge::kAsked) return;
    PageSet free_pages = segment->free_pages;
    set_free_pages(segment, 0);
    set_huge(segment, Huge::kForbidden);
    set_free_pages(segment, free_pages);
  }
  backing::forbid_huge_pages(segment->base, kSegmentBytes);
}

}  // namespace larder
