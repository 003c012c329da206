#include "core/page_heap.h"

#include <gtest/gtest.h>
#include <string.h>

#include <memory>
#include <random>
#include <vector>

#include "core/page_map.h"

namespace larder {
namespace {

class PageHeapTest : public testing::Test {
 protected:
  std::unique_ptr<PageHeap> heap = std::make_unique<PageHeap>();

  size_t purge(uint64_t deadline_ms) {
    static uint64_t pass = 0;
    PurgeJob job;
    size_t units = 0;
    for (++pass; heap->take_for_purge(deadline_ms, pass, &job);) {
      units += size_t(count_units(job.units));
      for (int i = 0; i < kUnitsPerBlock; ++i)
        if ((job.units >> i & 1) != 0) os::discard(job.block->base + size_t(i) * kUnit, kUnit);
      heap->finish_purge(job, job.units);
    }
    return units;
  }
};

TEST_F(PageHeapTest, ARunIsFoundFromEveryByteOfIt) {
  Slab* run = heap->alloc_run(5, 1, Kind::kRun);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->bytes, 5 * kUnit);
  EXPECT_EQ(page_map.find(run->base), run);
  EXPECT_EQ(page_map.find(run->base + run->bytes - 1), run);
  memset(run->base, 1, run->bytes);
  heap->free_run(run, run->bytes);
  heap->check();
}

TEST_F(PageHeapTest, RunsAreAlignedWhenAsked) {
  std::vector<Slab*> runs;
  for (unsigned align = 1; align <= 128; align *= 2) {
    Slab* run = heap->alloc_run(3, align, Kind::kRun);
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(uintptr_t(run->base) % (align * kUnit), 0u);
    runs.push_back(run);
  }
  for (Slab* run : runs) heap->free_run(run, 0);
  heap->check();
}

TEST_F(PageHeapTest, TheFullestBlockThatFitsServes) {
  Slab* a = heap->alloc_run(100, 1, Kind::kRun);  // leaves 28 units
  Slab* b = heap->alloc_run(60, 1, Kind::kRun);   // another block: leaves 68
  Slab* c = heap->alloc_run(20, 1, Kind::kRun);
  EXPECT_EQ(c->block, a->block);
  Slab* d = heap->alloc_run(40, 1, Kind::kRun);
  EXPECT_EQ(d->block, b->block);
  heap->check();
}

TEST_F(PageHeapTest, WarmUnitsServeBeforeColdOnesOfAFullerBlock) {
  Slab* a = heap->alloc_run(128, 1, Kind::kRun);
  Slab* b = heap->alloc_run(100, 1, Kind::kRun);
  heap->free_run(a, a->bytes);
  Slab* c = heap->alloc_run(20, 1, Kind::kRun);
  EXPECT_EQ(c->block, a->block);
  EXPECT_FALSE(c->zero);
  EXPECT_NE(c->block, b->block);
  heap->check();
}

TEST_F(PageHeapTest, NeighboursGrowIntoFreedUnitsAndGiveTailsBack) {
  Slab* a = heap->alloc_run(10, 1, Kind::kRun);
  Slab* b = heap->alloc_run(10, 1, Kind::kRun);
  ASSERT_EQ(b->base, a->base + a->bytes);
  EXPECT_FALSE(heap->extend_run(a, 12));
  heap->free_run(b, b->bytes);
  EXPECT_TRUE(heap->extend_run(a, 15));
  EXPECT_EQ(page_map.find(a->base + 15 * kUnit - 1), a);
  heap->shrink_run(a, 4);
  Slab* c = heap->alloc_run(6, 1, Kind::kRun);
  EXPECT_EQ(c->base, a->base + 4 * kUnit);
  EXPECT_FALSE(heap->extend_run(a, 129));
  heap->check();
}

TEST_F(PageHeapTest, KnowsWhatIsZero) {
  Slab* a = heap->alloc_run(8, 1, Kind::kRun);
  EXPECT_TRUE(a->zero);
  char* base = a->base;
  memset(base, 1, 2 * kUnit);
  heap->free_run(a, 2 * kUnit);
  Slab* again = heap->alloc_run(8, 1, Kind::kRun);
  EXPECT_EQ(again->base, base);
  EXPECT_FALSE(again->zero);
  heap->free_run(again, 2 * kUnit);
  EXPECT_EQ(purge(UINT64_MAX), 2u);
  Slab* purged = heap->alloc_run(8, 1, Kind::kRun);
  EXPECT_EQ(purged->base, base);
  EXPECT_TRUE(purged->zero);
  for (size_t i = 0; i < purged->bytes; i += 512) ASSERT_EQ(purged->base[i], 0);
}

TEST_F(PageHeapTest, OnlyWhatHasBeenFreeLongEnoughIsPurged) {
  Slab* a = heap->alloc_run(8, 1, Kind::kRun);
  Slab* b = heap->alloc_run(8, 1, Kind::kRun);
  heap->free_run(a, a->bytes);
  EXPECT_EQ(purge(os::now_ms() - 1000), 0u);
  EXPECT_TRUE(heap->has_dirty());
  EXPECT_EQ(purge(UINT64_MAX), 8u);
  EXPECT_FALSE(heap->has_dirty());
  heap->free_run(b, b->bytes);
  heap->check();
}

TEST_F(PageHeapTest, ARefusedPurgeLeavesThePagesDirty) {
  Slab* a = heap->alloc_run(8, 1, Kind::kRun);
  heap->free_run(a, a->bytes);
  PurgeJob job;
  ASSERT_TRUE(heap->take_for_purge(UINT64_MAX, 1, &job));
  heap->finish_purge(job, 0);
  EXPECT_FALSE(heap->take_for_purge(UINT64_MAX, 1, &job)) << "once a pass";
  EXPECT_TRUE(heap->take_for_purge(UINT64_MAX, 2, &job));
  heap->finish_purge(job, 0);
  EXPECT_FALSE(heap->alloc_run(8, 1, Kind::kRun)->zero);
  heap->check();
}

TEST_F(PageHeapTest, RandomRunsNeverOverlapAndAllComeTogetherAgain) {
  std::minstd_rand random(7);
  struct Piece {
    Slab* slab;
    char mark;
  };
  std::vector<Piece> live;
  auto check_and_free = [&](size_t i) {
    Piece piece = live[i];
    for (size_t at = 0; at < piece.slab->bytes; at += kUnit)
      ASSERT_EQ(piece.slab->base[at], piece.mark);
    heap->free_run(piece.slab, piece.slab->bytes);
    live[i] = live.back();
    live.pop_back();
  };
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      Slab* s = heap->alloc_run(1 + unsigned(random() % 64), 1u << random() % 4, Kind::kRun);
      ASSERT_NE(s, nullptr);
      char mark = char(random());
      for (size_t at = 0; at < s->bytes; at += kUnit) s->base[at] = mark;
      live.push_back({s, mark});
    } else {
      check_and_free(random() % live.size());
    }
    if (live.size() > 200)
      while (live.size() > 50) check_and_free(random() % live.size());
    if (i % 1000 == 0) heap->check();
    if (i % 3000 == 0) purge(UINT64_MAX);
  }
  while (!live.empty()) check_and_free(live.size() - 1);
  heap->check();
  PageHeap::Totals totals = heap->totals();
  EXPECT_EQ(totals.free_bytes, totals.region_bytes);
}

}  // namespace
}  // namespace larder
