// Remote frees: adoption, batches, the central lists, generations.
#include "core/remote.h"

#include <gtest/gtest.h>
#include <string.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/page_heap.h"
#include "core/registry.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "os/options.h"

namespace larder {
namespace {

// Runs `body` on a thread and waits for it to end.
template <typename Body>
void on_thread(Body body) {
  std::thread(body).join();
}

TEST(Remote, AFreerAdoptsFullSlabs) {
  constexpr int kObjects = 10000;
  std::vector<void*> objects;
  for (int i = 0; i < kObjects; ++i) objects.push_back(larder_malloc(64));
  uint64_t pushes = heap_counts().remote_pushes;
  uint64_t adopted = heap_counts().adopted_slabs;
  on_thread([&] {
    for (void* p : objects) larder_free(p);
  });
  uint64_t slabs = kObjects / kSizeClasses.capacity[class_of(64)];
  EXPECT_GE(heap_counts().adopted_slabs - adopted, slabs - 1);
  EXPECT_LE(heap_counts().remote_pushes - pushes, 8u);
}

TEST(Remote, FreesOfAPartialSlabArriveInBatches) {
  int c = class_of(48);
  std::vector<void*> objects;
  for (int i = 0; i < kSizeClasses.capacity[c] - 10; ++i) objects.push_back(larder_malloc(48));
  Slab* current = thread_state.heap->bins[c].current;
  std::vector<void*> in_current;
  for (void* p : objects)
    if (page_map.find(p) == current) in_current.push_back(p);
  if (in_current.size() < 64) GTEST_FAIL() << "the current slab should hold most of them";
  uint64_t pushes = heap_counts().remote_pushes;
  on_thread([&] {
    for (void* p : in_current) larder_free(p);
  });
  uint64_t atomics = heap_counts().remote_pushes - pushes;
  EXPECT_LE(atomics, in_current.size() / 64 + 1);
  void* list = remote_take(current);
  size_t count = 0;
  for (void* p = list; p != nullptr; p = next_of(p)) ++count;
  EXPECT_EQ(count, in_current.size());
}

TEST(Remote, WhatAnEndedThreadOwnedServesTheNext) {
  void* kept = nullptr;
  Slab* slab = nullptr;
  on_thread([&] {
    kept = larder_malloc(11000);
    slab = page_map.find(kept);
    ASSERT_EQ(slab->owner(), thread_state.heap);
  });
  // The next thread gets the heap with its slabs, because these are few.
  ThreadHeap* heap = slab->owner();
  EXPECT_NE(heap, kUnowned);
  EXPECT_FALSE(heap->registered.assigned);
  on_thread([&] {
    EXPECT_EQ(thread_heap(), heap);
    void* p = larder_malloc(11000);
    EXPECT_EQ(page_map.find(p), slab);
    larder_free(p);
  });
  release_free_memory();
  EXPECT_EQ(slab->owner(), kUnowned);
  EXPECT_EQ(slab->remote.load() & kStateMask, kCentral);
  on_thread([&] {
    void* p = larder_malloc(11000);
    EXPECT_EQ(page_map.find(p), slab);
    larder_free(p);
  });
  release_free_memory();
  // The last free in an unowned slab releases it to the page heap.
  larder_free(kept);
  remote_flush(thread_state.heap);
  EXPECT_EQ(slab->kind, Kind::kFree);
}

TEST(Remote, AHeapThatOwnsMuchGivesUpItsSlabsWhenItsThreadEnds) {
  Slab* slab = nullptr;
  std::vector<void*> objects;
  on_thread([&] {
    for (int i = 0; i < 2000; ++i) objects.push_back(larder_malloc(1000));
    for (size_t i = 0; i < objects.size(); i += 2) larder_free(objects[i]);
    slab = page_map.find(objects[1]);
  });
  EXPECT_EQ(slab->owner(), kUnowned);
  for (size_t i = 1; i < objects.size(); i += 2) larder_free(objects[i]);
}

TEST(Remote, AListOfAnOlderGenerationIsDropped) {
  Slab slab;
  slab.kind = Kind::kSlab;
  remote_reset(&slab);
  alignas(16) char object[16];
  ASSERT_TRUE(remote_push_without_heap(&slab, object));
  remote_new_generation();
  EXPECT_EQ(remote_take(&slab), nullptr);
  ASSERT_TRUE(remote_push_without_heap(&slab, object));
  EXPECT_EQ(remote_take(&slab), static_cast<void*>(object));
}

TEST(Remote, ASlabIsNotDisownedWhileAPushIsPending) {
  Slab slab;
  slab.kind = Kind::kSlab;
  remote_reset(&slab);
  alignas(16) char object[16];
  ASSERT_TRUE(remote_push_without_heap(&slab, object));
  EXPECT_FALSE(remote_release(&slab, kFull));
  EXPECT_EQ(remote_take(&slab), static_cast<void*>(object));
  EXPECT_TRUE(remote_release(&slab, kFull));
  EXPECT_FALSE(remote_push_without_heap(&slab, object));
}

// Objects move between threads that come and go. Each byte is checked when its object is freed.
void churn(unsigned threads, int operations) {
  struct Segment {
    unsigned char* p;
    size_t size;
  };
  std::mutex mutex;
  std::vector<Segment> shared;
  auto work = [&](unsigned seed) {
    std::minstd_rand random(seed);
    std::vector<Segment> mine;
    auto drop = [](Segment b) {
      if (b.size != 0) {
        ASSERT_EQ(b.p[0], static_cast<unsigned char>(uintptr_t(b.p) >> 4));
        ASSERT_EQ(memcmp(b.p, b.p + 1, b.size - 1), 0);  // all bytes are equal
      }
      larder_free(b.p);
    };
    for (int i = 0; i < operations; ++i) {
      switch (random() % 4) {
        case 0:
        case 1: {
          size_t size = random() % 16 == 0 ? random() % 40000 : random() % 600;
          Segment b = {static_cast<unsigned char*>(larder_malloc(size)), size};
          ASSERT_NE(b.p, nullptr);
          memset(b.p, static_cast<unsigned char>(uintptr_t(b.p) >> 4), size);
          mine.push_back(b);
          break;
        }
        case 2:
          if (!mine.empty()) {
            size_t at = random() % mine.size();
            drop(mine[at]);
            mine[at] = mine.back();
            mine.pop_back();
          }
          break;
        default: {
          std::lock_guard<std::mutex> guard(mutex);
          shared.insert(shared.end(), mine.begin(), mine.end());
          mine.clear();
          size_t take = shared.size() / 2;
          mine.assign(shared.end() - long(take), shared.end());
          shared.resize(shared.size() - take);
        }
      }
    }
    std::lock_guard<std::mutex> guard(mutex);
    shared.insert(shared.end(), mine.begin(), mine.end());
  };
  for (int generation = 0; generation < 3; ++generation) {
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t)
      all.emplace_back(work, t * 17 + unsigned(generation) + 1);
    for (auto& t : all) t.join();
  }
  for (Segment b : shared) larder_free(b.p);
  page_heap.check();
}

// ThreadSanitizer looks at each byte that is filled and compared.
#ifdef __SANITIZE_THREAD__
constexpr int kOperations = 5000;
#else
constexpr int kOperations = 20'000;
#endif

TEST(RemoteChurn, ThreadsWithHeaps) { churn(4, kOperations); }

TEST(RemoteChurn, ThreadsThatShareHeaps) {
  set_option(Option::kMaxHeaps, 1);
  churn(6, kOperations / 2);
  EXPECT_GE(heap_counts().shared, 1u);
  set_option(Option::kMaxHeaps, 0);
}

}  // namespace
}  // namespace larder
