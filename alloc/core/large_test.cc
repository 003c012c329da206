#include "core/large.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>

#include <set>
#include <vector>

#include "base/stats.h"
#include "core/colour.h"
#include "core/page_map.h"
#include "core/purge.h"
#include "larder/larder_malloc.h"
#include "os/options.h"

namespace larder {
namespace {

Kind kind_of(void* p) { return page_map.find(p)->kind; }

TEST(Large, EachSizeHasItsKind) {
  struct {
    size_t size;
    Kind kind;
  } cases[] = {{kSmallMax + 1, Kind::kSpan},
               {kSpanMax, Kind::kSpan},
               {kSpanMax + 1, Kind::kHuge},
               {100 << 20, Kind::kHuge}};
  for (auto& c : cases) {
    auto* p = static_cast<char*>(larder_malloc(c.size));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(kind_of(p), c.kind) << c.size;
    EXPECT_GE(larder_malloc_usable_size(p), c.size);
    p[0] = p[c.size - 1] = 1;
    larder_free(p);
  }
}

TEST(Large, HugeAlignmentsHold) {
  for (size_t align = 32; align <= (size_t{64} << 20); align *= 2)
    for (size_t size : {size_t{0}, size_t{1}, size_t{5000}, kSmallMax + 1, kSpanMax + 1}) {
      auto* p = static_cast<char*>(larder_memalign(align, size));
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(uintptr_t(p) % align, 0u);
      memset(p, 1, larder_malloc_usable_size(p) < 65536 ? larder_malloc_usable_size(p) : 1);
      larder_free(p);
    }
}

TEST(Large, ACachedMappingIsReusedWithoutASystemCall) {
  set_option(Option::kEarlyPurge, 0);
  larder_free(larder_malloc(50 << 20));
  int64_t before = stats::get(stats::kMmapCalls) + stats::get(stats::kMunmapCalls);
  for (int i = 0; i < 100; ++i) larder_free(larder_malloc(50 << 20));
  EXPECT_EQ(stats::get(stats::kMmapCalls) + stats::get(stats::kMunmapCalls), before);
  set_option(Option::kEarlyPurge, 1);
  purge_all();
  EXPECT_EQ(large_cached_bytes(), 0u);
}

int64_t mapping_calls() {
  return stats::get(stats::kMmapCalls) + stats::get(stats::kMunmapCalls) +
         stats::get(stats::kMremapCalls);
}

TEST(Large, TheMappingFreedLastServesItsSizeAgain) {
  purge_all();
  void* p = larder_malloc(5 << 20);
  larder_free(p);
  EXPECT_EQ(large_cached_bytes(), 0u) << "it waits";
  EXPECT_TRUE(large_has_cached());
  EXPECT_EQ(larder_malloc(5 << 20), p);
  larder_free(p);
  void* q = larder_malloc(2 << 20);  // too different: takes a part of it
  EXPECT_GT(large_cached_bytes(), 0u);
  larder_free(q);
  EXPECT_DEATH(larder_free(q), "double free");
}

TEST(Large, CachedMappingsAreSplitAndCoalesced) {
  purge_all();
  larder_free(larder_malloc(60 << 20));
  int64_t before = mapping_calls();
  void* parts[10];
  for (void*& part : parts) part = larder_malloc(5 << 20);
  for (void* part : parts) larder_free(part);
  void* whole = larder_malloc(58 << 20);
  EXPECT_EQ(mapping_calls(), before);
  larder_free(whole);
}

TEST(Large, TheTailThatReallocCutsOffIsCachedAndAbsorbedAgain) {
  purge_all();
  auto* p = static_cast<char*>(larder_malloc(40 << 20));
  p[(10 << 20) - 1] = 5;
  int64_t before = mapping_calls();
  EXPECT_EQ(larder_realloc(p, 10 << 20), p);
  larder_free(larder_malloc(20 << 20));
  large_evict_last_freed();
  EXPECT_EQ(larder_realloc(p, 39 << 20), p);
  EXPECT_EQ(mapping_calls(), before);
  EXPECT_EQ(p[(10 << 20) - 1], 5);
  larder_free(p);
}

TEST(Large, CachedMappingsThatDoNotFitAreBounded) {
  purge_all();
  stats::counters[stats::kHugePeakBytes].store(0);
  std::vector<void*> pins, live;
  for (int i = 0; i < 8; ++i) {
    live.push_back(larder_malloc(8 << 20));
    pins.push_back(larder_malloc(3 << 19));
  }
  for (void* p : live) larder_free(p);
  live.clear();
  for (int i = 0; i < 6; ++i) {
    live.push_back(larder_malloc(10 << 20));
    auto peak = size_t(stats::get(stats::kHugePeakBytes));
    EXPECT_LE(size_t(stats::get(stats::kHugeBytes)) + large_cached_bytes(), peak + peak / 2);
  }
  EXPECT_LT(large_cached_bytes(), size_t{8 * 8} << 20);
  for (void* p : live) larder_free(p);
  for (void* p : pins) larder_free(p);
}

TEST(Large, CallocOfAReusedMappingIsZero) {
  auto* p = static_cast<char*>(larder_malloc(8 << 20));
  memset(p, 1, 8 << 20);
  larder_free(p);
  auto* q = static_cast<char*>(larder_calloc(1, 8 << 20));
  for (size_t i = 0; i < (8 << 20); i += 64) ASSERT_EQ(q[i], 0);
  larder_free(q);
}

TEST(Large, CallocOfFreshMemoryTouchesNothing) {
  purge_all();
  auto* p = static_cast<char*>(larder_calloc(1, size_t{1} << 34));
  ASSERT_NE(p, nullptr);  // 16 GiB: must not be touched
  EXPECT_EQ(p[size_t{1} << 33], 0);
  larder_free(p);
}

TEST(Large, AHugeObjectGrowsAndShrinksWithoutACopy) {
  size_t size = 4 << 20;
  auto* p = static_cast<char*>(larder_malloc(size));
  p[0] = 1;
  p[size - 1] = 2;
  int64_t before = stats::get(stats::kReallocCopiedBytes);
  for (size_t next = size; next < (size_t{1} << 29); next += next / 2) {
    p = static_cast<char*>(larder_realloc(p, next));
    ASSERT_NE(p, nullptr);
  }
  EXPECT_EQ(p[0], 1);
  EXPECT_EQ(p[size - 1], 2);
  p = static_cast<char*>(larder_realloc(p, size));
  EXPECT_EQ(p[size - 1], 2);
  EXPECT_LE(larder_malloc_usable_size(p), size + size / 4);
  EXPECT_EQ(stats::get(stats::kReallocCopiedBytes), before);
  larder_free(p);
}

TEST(Large, ReallocToTheSameSizeTakesNoSystemCall) {
  purge_all();
  larder_free(larder_malloc(50 << 20));
  void* p = larder_malloc(42 << 20);  // in the mapping of 50 MiB
  int64_t before = stats::get(stats::kMremapCalls);
  EXPECT_EQ(larder_realloc(p, 42 << 20), p);
  EXPECT_EQ(stats::get(stats::kMremapCalls), before);
  larder_free(p);
}

TEST(Large, GrowingBySmallStepsTakesFewSystemCalls) {
  void* p = larder_malloc(4 << 20);
  int64_t before = stats::get(stats::kMremapCalls);
  for (size_t size = 4 << 20; size < (64 << 20); size += 4096)
    ASSERT_NE(p = larder_realloc(p, size), nullptr);
  EXPECT_LE(stats::get(stats::kMremapCalls) - before, 2 * 30);
  larder_free(p);
}

TEST(Large, ASizeThatWrapsIsRefusedAndTheObjectStays) {
  for (size_t size : {size_t{100000}, size_t{3} << 20, (size_t{8} << 20) + 100}) {
    for (int i = 0; i < 3; ++i) {  // with different colours
      auto* p = static_cast<char*>(larder_malloc(size));
      p[size - 1] = 7;
      size_t usable = larder_malloc_usable_size(p);
      for (size_t bad : {SIZE_MAX, SIZE_MAX - 10, SIZE_MAX - 5000, size_t{PTRDIFF_MAX} + 1}) {
        errno = 0;
        EXPECT_EQ(larder_realloc(p, bad), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(larder_malloc_usable_size(p), usable);
      }
      EXPECT_EQ(p[size - 1], 7);
      larder_free(p);
    }
  }
}

TEST(Large, AFailedReallocLeavesTheObject) {
  auto* p = static_cast<char*>(larder_malloc(4 << 20));
  p[(4 << 20) - 1] = 3;
  errno = 0;
  EXPECT_EQ(larder_realloc(p, size_t{1} << 60), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(p[(4 << 20) - 1], 3);
  larder_free(p);
}

TEST(Large, ASpanGrowsInPlaceWhenItsNeighboursAreFree) {
  auto* p = static_cast<char*>(larder_malloc(40000));
  auto* q = larder_realloc(p, 200000);
  auto* r = larder_realloc(q, 220000);
  EXPECT_EQ(q, r);
  larder_free(r);
}

TEST(Colour, StartsDifferAndStayInTheSlack) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    uint32_t colour = next_colour(100000);
    EXPECT_EQ(colour % kCacheLine, 0u);
    EXPECT_LT(colour, kColourSpan);
    seen.insert(colour);
  }
  for (int i = 0; i < 100; ++i) EXPECT_LE(next_colour(200), 200u);
  EXPECT_EQ(seen.size(), kColourSpan / kCacheLine);
  EXPECT_EQ(next_colour(63), 0u);
}

TEST(Colour, LargeObjectsDoNotAllStartAtTheSameOffsetOfASystemPage) {
  std::set<uintptr_t> offsets;
  std::vector<void*> objects;
  for (int i = 0; i < 32; ++i) {
    objects.push_back(larder_malloc((5 << 20) + 100));
    offsets.insert(uintptr_t(objects.back()) % kColourSpan);
  }
  EXPECT_GE(offsets.size(), 16u);
  for (void* p : objects) larder_free(p);
}

TEST(Emergency, AnEmergencyMappingIsAnOrdinaryObject) {
  for (size_t align : {size_t{16}, size_t{4096}, size_t{65536}, size_t{1} << 22}) {
    auto* p = static_cast<char*>(emergency_alloc(100000, align));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(uintptr_t(p) % align, 0u);
    ASSERT_GE(larder_malloc_usable_size(p), 100000u);
    memset(p, 5, larder_malloc_usable_size(p));
    p = static_cast<char*>(larder_realloc(p, 300000));
    EXPECT_EQ(p[99999], 5);
    larder_free(p);
  }
}

}  // namespace
}  // namespace larder
