// A page heap of the test's own, and its purge.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "core/page_heap.h"

namespace larder {

class PageHeapTest : public testing::Test {
 protected:
  std::unique_ptr<PageHeap> heap = std::make_unique<PageHeap>();

  // Returns pages.
  size_t purge(uint64_t deadline_ms) {
    static uint64_t pass = 0;
    PurgeJob job;
    size_t pages = 0;
    for (++pass; heap->take_for_purge(deadline_ms, pass, &job);) {
      pages += size_t(count_pages(job.pages));
      if (job.forbid_huge) os::forbid_huge_pages(job.segment->base, kSegmentBytes);
      for (int i = 0; i < kPagesPerSegment; ++i)
        if ((job.pages >> i & 1) != 0)
          os::discard(job.segment->base + size_t(i) * kPageBytes, kPageBytes);
      heap->finish_purge(job, job.pages);
    }
    return pages;
  }
};

}  // namespace larder
