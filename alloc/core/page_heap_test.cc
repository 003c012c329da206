#include "core/page_heap_test.h"

#include <string.h>

#include <random>
#include <vector>

#include "core/page_map.h"

namespace larder {
namespace {

TEST_F(PageHeapTest, ASpanIsFoundFromEveryByteOfIt) {
  Slab* span = heap->alloc_span(5, 1, Kind::kSpan);
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(span->bytes, 5 * kPageBytes);
  EXPECT_EQ(page_map.find(span->base), span);
  EXPECT_EQ(page_map.find(span->base + span->bytes - 1), span);
  memset(span->base, 1, span->bytes);
  heap->free_span(span, span->bytes);
  heap->check();
}

TEST_F(PageHeapTest, SpansAreAlignedWhenAsked) {
  std::vector<Slab*> spans;
  for (unsigned align = 1; align <= 128; align *= 2) {
    Slab* span = heap->alloc_span(3, align, Kind::kSpan);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(uintptr_t(span->base) % (align * kPageBytes), 0u);
    spans.push_back(span);
  }
  for (Slab* span : spans) heap->free_span(span, 0);
  heap->check();
}

TEST_F(PageHeapTest, TheFullestSegmentThatFitsServes) {
  Slab* a = heap->alloc_span(100, 1, Kind::kSpan);  // leaves 28 pages
  Slab* b = heap->alloc_span(60, 1, Kind::kSpan);   // another segment: leaves 68
  Slab* c = heap->alloc_span(20, 1, Kind::kSpan);
  EXPECT_EQ(c->segment, a->segment);
  Slab* d = heap->alloc_span(40, 1, Kind::kSpan);
  EXPECT_EQ(d->segment, b->segment);
  heap->check();
}

TEST_F(PageHeapTest, DirtyPagesServeBeforeCleanOnesOfAFullerSegment) {
  Slab* a = heap->alloc_span(128, 1, Kind::kSpan);
  Slab* b = heap->alloc_span(100, 1, Kind::kSpan);
  heap->free_span(a, a->bytes);
  Slab* c = heap->alloc_span(20, 1, Kind::kSpan);
  EXPECT_EQ(c->segment, a->segment);
  EXPECT_FALSE(c->zero);
  EXPECT_NE(c->segment, b->segment);
  heap->check();
}

TEST_F(PageHeapTest, NeighboursGrowIntoFreedPagesAndGiveTailsBack) {
  Slab* a = heap->alloc_span(10, 1, Kind::kSpan);
  Slab* b = heap->alloc_span(10, 1, Kind::kSpan);
  ASSERT_EQ(b->base, a->base + a->bytes);
  EXPECT_FALSE(heap->extend_span(a, 12));
  heap->free_span(b, b->bytes);
  EXPECT_TRUE(heap->extend_span(a, 15));
  EXPECT_EQ(page_map.find(a->base + 15 * kPageBytes - 1), a);
  heap->shrink_span(a, 4);
  Slab* c = heap->alloc_span(6, 1, Kind::kSpan);
  EXPECT_EQ(c->base, a->base + 4 * kPageBytes);
  EXPECT_FALSE(heap->extend_span(a, 129));
  heap->check();
}

TEST_F(PageHeapTest, KnowsWhatIsZero) {
  Slab* a = heap->alloc_span(8, 1, Kind::kSpan);
  EXPECT_TRUE(a->zero);
  char* base = a->base;
  memset(base, 1, 2 * kPageBytes);
  heap->free_span(a, 2 * kPageBytes);
  Slab* again = heap->alloc_span(8, 1, Kind::kSpan);
  EXPECT_EQ(again->base, base);
  EXPECT_FALSE(again->zero);
  heap->free_span(again, 2 * kPageBytes);
  EXPECT_EQ(purge(UINT64_MAX), 2u);
  Slab* purged = heap->alloc_span(8, 1, Kind::kSpan);
  EXPECT_EQ(purged->base, base);
  EXPECT_TRUE(purged->zero);
  for (size_t i = 0; i < purged->bytes; i += 512) ASSERT_EQ(purged->base[i], 0);
}

TEST_F(PageHeapTest, OnlyWhatHasBeenFreeLongEnoughIsPurged) {
  Slab* a = heap->alloc_span(8, 1, Kind::kSpan);
  Slab* b = heap->alloc_span(8, 1, Kind::kSpan);
  heap->free_span(a, a->bytes);
  EXPECT_EQ(purge(os::now_ms() - 1000), 0u);
  EXPECT_TRUE(heap->has_dirty());
  EXPECT_EQ(purge(UINT64_MAX), 8u);
  EXPECT_FALSE(heap->has_dirty());
  heap->free_span(b, b->bytes);
  heap->check();
}

TEST_F(PageHeapTest, ARefusedPurgeLeavesThePagesDirty) {
  Slab* a = heap->alloc_span(8, 1, Kind::kSpan);
  heap->free_span(a, a->bytes);
  PurgeJob job;
  ASSERT_TRUE(heap->take_for_purge(UINT64_MAX, 1, &job));
  heap->finish_purge(job, 0);
  EXPECT_FALSE(heap->take_for_purge(UINT64_MAX, 1, &job)) << "once a pass";
  EXPECT_TRUE(heap->take_for_purge(UINT64_MAX, 2, &job));
  heap->finish_purge(job, 0);
  EXPECT_FALSE(heap->alloc_span(8, 1, Kind::kSpan)->zero);
  heap->check();
}

TEST_F(PageHeapTest, RandomSpansNeverOverlapAndAllCoalesce) {
  std::minstd_rand random(7);
  struct Piece {
    Slab* slab;
    char mark;
  };
  std::vector<Piece> live;
  auto check_and_free = [&](size_t i) {
    Piece piece = live[i];
    for (size_t at = 0; at < piece.slab->bytes; at += kPageBytes)
      ASSERT_EQ(piece.slab->base[at], piece.mark);
    heap->free_span(piece.slab, piece.slab->bytes);
    live[i] = live.back();
    live.pop_back();
  };
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      Slab* s = heap->alloc_span(1 + unsigned(random() % 64), 1u << random() % 4, Kind::kSpan);
      ASSERT_NE(s, nullptr);
      char mark = char(random());
      for (size_t at = 0; at < s->bytes; at += kPageBytes) s->base[at] = mark;
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
  EXPECT_EQ(heap->used_bytes(), 0u);
}

}  // namespace
}  // namespace larder
