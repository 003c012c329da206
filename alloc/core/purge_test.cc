#include "core/purge.h"

#include <gtest/gtest.h>
#include <string.h>

#include <vector>

#include "base/policy.h"
#include "base/stats.h"
#include "core/large.h"
#include "core/page_heap.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "os/options.h"
#include "os/os.h"
#include "tests/clock.h"

namespace larder {
namespace {

// The process's resident memory, in bytes.
size_t resident() {
  FILE* statm = fopen("/proc/self/statm", "r");
  long total = 0, pages = 0;
  EXPECT_EQ(fscanf(statm, "%ld %ld", &total, &pages), 2);
  fclose(statm);
  return size_t(pages) * os::page_size();
}

// Not under ThreadSanitizer, whose shadow memory of purged memory stays.
void expect_resident(size_t most) {
#ifndef __SANITIZE_THREAD__
  EXPECT_LE(resident(), most);
#else
  (void)most;
#endif
}

class Purge : public testing::Test {
 protected:
  void SetUp() override {
    test_clock::stop();
    set_option(Option::kEarlyPurge, 0);
    purge_all();
  }
  void TearDown() override {
    test_clock::go_on();
    set_option(Option::kEarlyPurge, 1);
    set_option(Option::kPurgeDecayMs, 1000);
    set_option(Option::kPurgeMibPerTick, 64);
  }
  // Leaves `mib` MiB of dirty free pages.
  void dirty(size_t mib) {
    std::vector<void*> objects;
    for (size_t i = 0; i < mib; ++i) {
      objects.push_back(larder_malloc(size_t{1} << 20));
      memset(objects.back(), 1, size_t{1} << 20);
    }
    for (void* p : objects) larder_free(p);
  }
};

TEST_F(Purge, NothingIsPurgedBeforeTheDecay) {
  set_option(Option::kPurgeDecayMs, 3600 * 1000);
  test_clock::pass_ms(110);
  int64_t before = stats::get(stats::kPurgedBytes);
  dirty(16);
  purge_tick();
  EXPECT_EQ(stats::get(stats::kPurgedBytes), before);
}

TEST_F(Purge, FreeMemoryIsPurgedAfterTheDecay) {
  dirty(64);
  size_t before = resident();
  set_option(Option::kPurgeDecayMs, 20);
  test_clock::pass_ms(150);
  purge_tick();
  expect_resident(before - (size_t{60} << 20));
}

TEST_F(Purge, ATickPurgesABoundedAmount) {
  dirty(64);
  set_option(Option::kPurgeDecayMs, 20);
  set_option(Option::kPurgeMibPerTick, 8);
  test_clock::pass_ms(150);
  int64_t before = stats::get(stats::kPurgedBytes);
  purge_tick();
  purge_tick();  // not due yet
  int64_t once = stats::get(stats::kPurgedBytes) - before;
  EXPECT_GE(once, 8 << 20);
  EXPECT_LE(once, 10 << 20);
}

TEST_F(Purge, CachedMappingsAreUnmappedAfterTheDecay) {
  larder_free(larder_malloc(50 << 20));
  EXPECT_TRUE(large_has_cached());
  set_option(Option::kPurgeDecayMs, 20);
  // The one-entry cache lasts until the first tick.
  for (int tick = 0; tick < 2; ++tick) {
    test_clock::pass_ms(150);
    purge_tick();
  }
  EXPECT_FALSE(large_has_cached());
}

TEST_F(Purge, AHeapThatIsNearlyEmptyDoesNotWaitForTheDecayWithinBounds) {
  set_option(Option::kPurgeDecayMs, 3600 * 1000);
  set_option(Option::kEarlyPurge, 1);
  size_t before = resident();
  dirty(64);
  expect_resident(before + (size_t{16} << 20));
  // Bounds the purging of memory that is reused at once: the peak once, and 64 MiB a second.
  int64_t purged = stats::get(stats::kPurgedBytes);
  for (int i = 0; i < 8; ++i) {
    dirty(64);
    test_clock::pass_ms(10);
  }
  EXPECT_LE(size_t(stats::get(stats::kPurgedBytes) - purged),
            (size_t{66} << 20) + 80 * kEarlyBytesPerMs);
}

// Free mappings do not serve small objects.
TEST_F(Purge, AHeapThatGrowsGivesBackWhatIsMoreThanItEverUsed) {
  constexpr size_t kMiB = size_t{1} << 20, kMost = 160, kRoom = kMost / kGrowthPart + 2;
  set_option(Option::kPurgeDecayMs, 3600 * 1000);
  void* used = larder_malloc(4 * kMiB);  // the heap is not at rest
  // With what the one-entry cache has, which counts as in use.
  auto mapped = [] { return size_t(stats::get(stats::kHugeBytes)) + large_cached_bytes(); };
  // What of freed mappings is gone when `mib` of small objects are in use.
  auto released = [mapped](size_t mib) {
    void* mappings[] = {larder_malloc(kMost / 2 * kMiB), larder_malloc(kMost / 2 * kMiB)};
    for (void* p : mappings) larder_free(p);
    std::vector<void*> objects(mib * kMiB / 4096);
    size_t before = mapped();
    for (void*& p : objects) p = larder_malloc(4096);
    size_t after = mapped();
    for (void* p : objects) larder_free(p);
    purge_all();
    return before - after;
  };
  EXPECT_EQ(released(40), 0u) << "the option is off";
  set_option(Option::kEarlyPurge, 1);
  test_clock::pass_ms(kMost * kMiB / kEarlyBytesPerMs);
  EXPECT_EQ(released(kRoom - 4), 0u);
  EXPECT_GE(released(40), 8 * kMiB);
  size_t sum = 0;
  for (int i = 0; i < 20; ++i) sum += released(40);
  EXPECT_LE(sum, (kMost + kRoom) * kMiB) << "no time has passed";
  test_clock::pass_ms(kMost * kMiB / kEarlyBytesPerMs);
  EXPECT_GE(released(40), 8 * kMiB);
  larder_free(used);
}

TEST_F(Purge, WhatAHeapCachesIsNotInUseAndGoesWithTheRest) {
  set_option(Option::kPurgeDecayMs, 3600 * 1000);
  test_clock::pass_ms(2100);  // 64 MiB were too much: the next purge is delayed by 2048 ms
  size_t before = resident();
  void* mappings[] = {larder_malloc(5 << 20), larder_malloc(5 << 20)};
  for (void* p : mappings) memset(p, 1, 5 << 20);
  for (int i = 0; i < 4; ++i) {
    void* spans[64];
    for (void*& p : spans) p = memset(larder_malloc(200 << 10), 1, 200 << 10);
    for (void* p : spans) larder_free(p);
  }
  EXPECT_GE(thread_state.heap->cache.bytes(), size_t{8} << 20);
  set_option(Option::kEarlyPurge, 1);
  for (void* p : mappings) larder_free(p);
  EXPECT_EQ(thread_state.heap->cache.bytes(), 0u);
  expect_resident(before + (size_t{4} << 20));
}

TEST_F(Purge, AHeapInUseWaitsForTheDecay) {
  set_option(Option::kPurgeDecayMs, 3600 * 1000);
  set_option(Option::kEarlyPurge, 1);
  void* used = larder_malloc(40 << 20);
  int64_t before = stats::get(stats::kPurgedBytes);
  dirty(64);
  EXPECT_EQ(stats::get(stats::kPurgedBytes), before);
  larder_free(used);
}

TEST_F(Purge, TrimReturnsWhetherMemoryWasPurged) {
  dirty(4);
  EXPECT_EQ(larder_malloc_trim(0), 1);
  EXPECT_EQ(larder_malloc_trim(0), 0);
}

}  // namespace
}  // namespace larder
