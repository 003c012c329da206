#include "core/thread_heap.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/stats.h"
#include "core/page_heap.h"
#include "core/purge.h"
#include "core/registry.h"
#include "larder/larder.h"
#include "larder/larder_malloc.h"
#include "os/os.h"
#include "tests/clock.h"

namespace larder {
namespace {

TEST(ThreadHeap, ObjectsOfAClassAreDistinctAndInOrder) {
  for (int c = 0; c < kClasses; ++c) {
    size_t size = kSizeClasses.size[c];
    std::set<char*> seen;
    std::vector<char*> objects;
    for (int i = 0; i < 3 * kSizeClasses.capacity[c]; ++i) {
      auto* p = static_cast<char*>(larder_malloc(size));
      ASSERT_NE(p, nullptr);
      memset(p, 7, size);
      auto at = seen.insert(p).first;
      if (at != seen.begin()) {
        ASSERT_LE(*std::prev(at) + size, p);
      }
      if (std::next(at) != seen.end()) {
        ASSERT_LE(p + size, *std::next(at));
      }
      objects.push_back(p);
    }
    for (char* p : objects) larder_free(p);
  }
  page_heap.check();
}

TEST(ThreadHeap, TheLastFreedIsTheNextHandedOut) {
  void* p = larder_malloc(100);
  larder_free(p);
  EXPECT_EQ(larder_malloc(100), p);
  larder_free(p);
}

TEST(ThreadHeap, ACurrentSlabOutlivesABillionFrees) {
  void* p = larder_malloc(100);
  Slab* s = page_map.find(p);
  ASSERT_TRUE(is_current(s));
  s->used = 2;  // as after 2^30 frees
  for (int i = 0; i < 5; ++i) {
    void* last =
        larder_malloc(50);  // so that p is not the last object, and its free uses the page map
    larder_free(p);
    ASSERT_EQ(larder_malloc(100), p);
    larder_free(last);
  }
  EXPECT_GT(s->used, 1000u);
  EXPECT_EQ(s->owner(), thread_state.heap);
  EXPECT_EQ(thread_state.heap->bins[class_of(100)].current, s);
  larder_free(p);
}

TEST(ThreadHeap, SlabStateFollowsItsObjects) {
  int c = class_of(304);
  std::vector<void*> objects;
  for (int i = 0; i < 3 * kSizeClasses.capacity[c]; ++i) objects.push_back(larder_malloc(300));
  Slab* first = page_map.find(objects[kSizeClasses.capacity[c]]);
  // A full slab is unowned. The first free in it is deferred; a second one adopts the slab.
  EXPECT_EQ(first->owner(), kUnowned);
  EXPECT_EQ(first->remote.load() & kStateMask, kFull);
  void*& deferred = objects[kSizeClasses.capacity[c]];
  void*& second = objects[kSizeClasses.capacity[c] + 1];
  ASSERT_EQ(page_map.find(second), first);
  larder_free(deferred);
  EXPECT_EQ(first->owner(), kUnowned);
  EXPECT_EQ(larder_malloc(300), deferred);
  larder_free(second);
  EXPECT_EQ(first->owner(), thread_state.heap);
  EXPECT_EQ(first->used + 1, first->carved);
  second = larder_malloc(1);
  for (void* p : objects) larder_free(p);
}

TEST(ThreadHeap, EmptySlabsAreCachedUpToTheBoundThenReleased) {
  std::vector<void*> objects;
  for (int i = 0; i < 100000; ++i) objects.push_back(larder_malloc(200));
  size_t used_before = page_heap.used_bytes();
  for (void* p : objects) larder_free(p);
  EXPECT_LE(thread_state.heap->cache.empty_bytes,
            (size_t{512} << 10) + thread_state.heap->cache.extra);
  EXPECT_LE(page_heap.used_bytes() + 100000 * 200, used_before + (1 << 20));
  larder_release_free_memory();
  EXPECT_EQ(thread_state.heap->cache.empty_bytes, 0u);
}

TEST(ThreadHeap, AFreedSpanServesTheNextRequestOfItsSizeWithoutALock) {
  std::thread([] {
    void* p = larder_malloc(120000);
    larder_free(larder_malloc(180000));
    larder_free(p);
    ASSERT_NE(thread_state.heap, nullptr) << "a thread of large blocks only has a heap, too";
    EXPECT_GE(thread_state.heap->cache.span_bytes, 120000u);
  }).join();
  larder_release_free_memory();
  void* p = larder_malloc(120000);
  Slab* s = page_map.find(p);
  larder_free(larder_malloc(180000));
  larder_free(p);
  EXPECT_EQ(s->kind, Kind::kFree);
  void* q = larder_malloc(110000);
  EXPECT_EQ(page_map.find(q), s);
  EXPECT_EQ(s->kind, Kind::kSpan);
  larder_free(q);
  larder_release_free_memory();
  EXPECT_EQ(thread_state.heap->cache.span_bytes, 0u);
}

TEST(ThreadHeap, TheSpanFreedLastIsInTheOneEntryCache) {
  larder_release_free_memory();
  auto* p = static_cast<char*>(larder_malloc(120000));
  p[119999] = 1;
  larder_free(p);
  ASSERT_NE(thread_state.heap->cache.last_freed, nullptr);
  EXPECT_EQ(thread_state.heap->cache.last_freed->kind, Kind::kFree);
  EXPECT_EQ(larder_malloc(118000), p);
  EXPECT_EQ(thread_state.heap->cache.last_freed, nullptr);
  larder_free(p);
  // The entry does not fit: it moves to the cached spans.
  void* larger = larder_malloc(180000);
  EXPECT_NE(larger, p);
  EXPECT_EQ(thread_state.heap->cache.last_freed, nullptr);
  larder_free(larder_realloc(larger, 80000));
  void* fresh = larder_malloc(180000);
  EXPECT_GE(larder_malloc_usable_size(fresh), 180000u);
  larder_free(fresh);
  EXPECT_DEATH(
      {
        void* twice = larder_malloc(120000);
        larder_free(twice);
        larder_free(twice);
      },
      "double free");
  larder_release_free_memory();
}

// A thread that exists already, so that giving it work takes no malloc here.
class Other {
 public:
  template <typename Work>
  void does(Work work) {
    work_ = [](void* w) { (*static_cast<Work*>(w))(); };
    context_ = &work;
    turn_.store(1);
    while (turn_.load() != 0) std::this_thread::yield();
  }
  ~Other() {
    turn_.store(2);
    thread_.join();
  }

 private:
  void serve() {
    for (int turn = 0; (turn = turn_.load()) != 2;) {
      if (turn == 1) {
        work_(context_);
        turn_.store(0);
      }
      std::this_thread::yield();
    }
  }
  void (*work_)(void*) = nullptr;
  void* context_ = nullptr;
  std::atomic<int> turn_{0};
  std::thread thread_{[this] { serve(); }};
};

TEST(ThreadHeap, ASpanThatAnotherThreadResizedServesWhatFitsInIt) {
  Other other;
  void* p = larder_malloc(200000);
  void* q = nullptr;
  other.does([&] { q = larder_realloc(p, 80000); });
  ASSERT_EQ(p, q);
  larder_free(q);
  p = larder_malloc(200000);
  EXPECT_GE(larder_malloc_usable_size(p), 200000u);
  larder_free(p);
}

TEST(ThreadHeap, TheLastObjectMayBeAnotherObjectByNow) {
  // A deferred free is handed out; another thread frees it, with all of its slab; and its address
  // becomes an object of another class.
  int capacity = kSizeClasses.capacity[class_of(64)];
  std::vector<void*> objects;
  for (int i = 0; i < 4 * capacity; ++i) objects.push_back(larder_malloc(64));
  Slab* slab = page_map.find(objects[2 * capacity]);
  std::vector<void*> of_slab;
  for (void* p : objects)
    if (page_map.find(p) == slab) of_slab.push_back(p);
  ASSERT_EQ(slab->owner(), kUnowned);
  void* x = of_slab.front();
  larder_free(x);
  ASSERT_EQ(larder_malloc(64), x);
  std::vector<void*> small;
  void* same = nullptr;
  std::thread([&] {
    for (void* p : of_slab) larder_free(p);
    ASSERT_EQ(slab->kind, Kind::kSlab);
    for (int i = 0; i < 4096 && same == nullptr; ++i) {
      small.push_back(larder_malloc(16));
      if (small.back() == x) same = x;
    }
  }).join();
  ASSERT_EQ(same, x) << "the slab should have become one of the smaller class";
  larder_free(x);
  for (int i = 0; i < 2 * capacity; ++i) {
    void* p = larder_malloc(64);
    ASSERT_GE(larder_malloc_usable_size(p), 64u);
  }
}

TEST(ThreadHeap, DeferredFreesGoBackToTheirSlabs) {
  // Every second object of many full slabs, never two in a row of one slab.
  constexpr int kSlabs = 200;
  int capacity = kSizeClasses.capacity[class_of(400)];
  std::vector<void*> objects;
  for (int i = 0; i < kSlabs * capacity; ++i) objects.push_back(larder_malloc(400));
  for (int i = 0; i < capacity; ++i)
    for (int slab = 0; slab < kSlabs; ++slab) larder_free(objects[slab * capacity + i]);
  larder_release_free_memory();
  EXPECT_EQ(thread_state.heap->bins[class_of(400)].deferred, kDeferNoMore);
  larder_stats after = {};
  ASSERT_EQ(larder_get_stats(&after, sizeof after), 0);
  EXPECT_LT(after.in_use, size_t{kSlabs} * 16384 / 20);
}

// Another thread allocates what two threads free. This one allocates a quarter of what it frees:
// slabs that it adopts must not wait for the other thread's frees.
TEST(ThreadHeap, AHeapThatFreesMoreThanItAllocatesPassesSlabsOn) {
  Other allocates, frees;
  static void* objects[2000];
  static void* kept[500];
  size_t at = 0;
  size_t before = page_heap.used_bytes();
  for (int round = 0; round < 200; ++round) {
    allocates.does([] {
      for (void*& p : objects) p = larder_malloc(400);
    });
    for (size_t i = 0; i < 2000; i += 2) {
      larder_free(objects[i]);
      if (i % 8 != 0) continue;
      larder_free(kept[at]);
      kept[at] = larder_malloc(400);
      at = (at + 1) % 500;
    }
    frees.does([] {
      for (size_t i = 1; i < 2000; i += 2) larder_free(objects[i]);
    });
  }
  EXPECT_LT(page_heap.used_bytes(), before + (size_t{16} << 20));
  for (void*& p : kept) larder_free(std::exchange(p, nullptr));
}

TEST(ThreadHeap, OnlyTheNeededSystemPagesOfASlabAreTouched) {
  // A new thread has no slabs.
  std::thread([] {
    void* p = larder_malloc(24000);
    Slab* s = page_map.find(p);
    EXPECT_EQ(s->carved, 1u);
    EXPECT_GT(s->capacity, 1);
    larder_free(p);
  }).join();
}

// In whichever order its objects were freed, an emptied slab hands them out in address order.
TEST(ThreadHeap, AnEmptiedSlabServesInAddressOrder) {
  size_t capacity = kSizeClasses.capacity[class_of(512)];
  std::vector<void*> objects(6 * capacity);
  for (void*& p : objects) p = larder_malloc(512);
  for (size_t i = 0; i < objects.size(); ++i) larder_free(objects[i * 7 % objects.size()]);
  size_t in_order = 0;
  for (size_t i = 0; i < objects.size(); ++i) {
    objects[i] = larder_malloc(512);
    if (i != 0 && static_cast<char*>(objects[i - 1]) + 512 == objects[i]) ++in_order;
  }
  // The current slab is not empty, nor is a slab with other objects.
  EXPECT_GE(in_order, 4 * (capacity - 1));
  for (void* p : objects) larder_free(p);
}

TEST(ThreadHeap, MemoryThatAHeapCachesServesBeforeMoreIsTouched) {
  std::thread([] {
    void* span = larder_malloc(200 << 10);
    memset(span, 1, 200 << 10);
    void* last = larder_malloc(10);
    larder_free(span);
    larder_free(last);
    ASSERT_NE(thread_state.heap->cache.bytes(), 0u);
    size_t before = thread_state.heap->cache.bytes();
    std::vector<void*> objects;
    for (int i = 0; i < 100; ++i) objects.push_back(larder_malloc(20000));
    EXPECT_LT(thread_state.heap->cache.bytes(), before);
    for (void* p : objects) larder_free(p);
  }).join();
}

TEST(ThreadHeap, ErrnoSurvivesFreeAndIsSetByFailure) {
  errno = 77;
  larder_free(larder_malloc(10));
  larder_free(larder_malloc(10 << 20));
  larder_free(nullptr);
  EXPECT_EQ(errno, 77);
  EXPECT_EQ(larder_malloc(SIZE_MAX), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(larder_calloc(SIZE_MAX / 2, 3), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(ThreadHeap, CallocDoesNotTouchWhatHoldsZerosAlready) {
  std::thread([] {
    constexpr size_t kBytes = 60'000;
    size_t system_page = os::page_size(), untouched = 0;
    std::vector<char*> objects;
    for (int i = 0; i < 200; ++i) {
      objects.push_back(static_cast<char*>(larder_calloc(1, kBytes)));
      unsigned char in_memory = 1;
      char* middle = objects.back() + kBytes / 2;
      ASSERT_EQ(mincore(middle - uintptr_t(middle) % system_page, 1, &in_memory), 0);
      if ((in_memory & 1) == 0) ++untouched;
    }
    EXPECT_GT(untouched, 100u);
    for (char* p : objects) {
      ASSERT_TRUE(std::all_of(p, p + kBytes, [](char byte) { return byte == 0; }));
      memset(p, 1, kBytes);
      larder_free(p);
    }
    objects.assign(objects.size(), nullptr);
    for (size_t i = 0; i < 2000; ++i) {
      size_t bytes = 4096 + i * 7919 % 61'000;
      char* p = static_cast<char*>(larder_calloc(1, bytes));
      ASSERT_TRUE(std::all_of(p, p + bytes, [](char byte) { return byte == 0; })) << bytes;
      memset(p, 1, bytes);
      larder_free(std::exchange(objects[i % objects.size()], p));
    }
    for (char* p : objects) larder_free(p);
  }).join();
}

TEST(ThreadHeap, ReallocPreservesContentAcrossAllKinds) {
  size_t sizes[] = {1,     8,     9,       100,           1024,    1025,    32768,
                    32769, 65536, 1 << 20, (1 << 20) + 1, 3 << 20, 5 << 20, 9 << 20};
  for (size_t from : sizes)
    for (size_t to : sizes) {
      auto* p = static_cast<unsigned char*>(larder_malloc(from));
      for (size_t i = 0; i < from; i += 97) p[i] = static_cast<unsigned char>(i * 31);
      p = static_cast<unsigned char*>(larder_realloc(p, to));
      ASSERT_NE(p, nullptr);
      ASSERT_GE(larder_malloc_usable_size(p), to);
      for (size_t i = 0; i < (from < to ? from : to); i += 97)
        ASSERT_EQ(p[i], static_cast<unsigned char>(i * 31)) << from << " to " << to;
      larder_free(p);
    }
  EXPECT_EQ(larder_realloc(larder_malloc(5), 0), nullptr);
}

TEST(ThreadHeap, ASignalHandlerInASlowPathGetsMemoryOfItsOwn) {
  void* mine = larder_malloc(64);
  thread_state.busy = true;  // as in a handler that interrupted a refill
  int64_t before = stats::get(stats::kEmergencyMappings);
  int c = class_of(30000);
  thread_state.heads[c] = nullptr;
  auto* p = static_cast<char*>(larder_malloc(100000));
  ASSERT_NE(p, nullptr);
  memset(p, 1, 100000);
  larder_free(p);  // takes no lock
  void* aligned = larder_aligned_alloc(8192, 8192);
  EXPECT_EQ(uintptr_t(aligned) % 8192, 0u);
  larder_free(aligned);
  larder_free(larder_aligned_alloc(65536, 0));
  thread_state.busy = false;
  void* large = larder_malloc(200000);
  void* last = larder_malloc(10);
  thread_state.busy = true;
  larder_free(large);  // impossible here: counted
  larder_free(mine);
  larder_stats none = {};
  registry_for_each_lock([](Lock& lock) { lock.acquire(); });
  EXPECT_EQ(larder_get_stats(&none, sizeof none), 0) << "and does not wait for itself";
  registry_for_each_lock([](Lock& lock) { lock.release(); });
  EXPECT_GE(stats::get(stats::kEmergencyMappings), before + 2);
  EXPECT_GE(stats::get(stats::kLeakedInSignal), 1);
  thread_state.busy = false;
  larder_free(last);
}

TEST(Statistics, AThreadWithoutAHeapMayReadThemWhileASlabIsMade) {
  // As between alloc_span() and init().
  Slab* s = page_heap.alloc_span(1, 1, Kind::kSlab);
  ASSERT_NE(s, nullptr);
  s->list = nullptr;
  s->carved = 0;
  std::thread([] {
    larder_stats stats = {};
    EXPECT_EQ(larder_get_stats(&stats, sizeof stats), 0);
    EXPECT_EQ(thread_state.heap, nullptr);
  }).join();
  page_heap.free_span(s, 0);
}

TEST(Statistics, FollowWhatIsAllocated) {
  larder_stats before = {}, after = {};
  ASSERT_EQ(larder_get_stats(&before, sizeof before), 0);
  std::vector<void*> objects;
  for (int i = 0; i < 10000; ++i) objects.push_back(larder_malloc(1000));
  ASSERT_EQ(larder_get_stats(&after, sizeof after), 0);
  EXPECT_NEAR(double(after.in_use - before.in_use), 10000.0 * 1024, 100.0 * 1024);
  EXPECT_GE(after.mapped, after.in_use);
  for (void* p : objects) larder_free(p);
  EXPECT_EQ(larder_get_stats(nullptr, 100), -1);
  EXPECT_EQ(larder_get_stats(&after, 4), -1);
  uint64_t only_size = 0;
  EXPECT_EQ(larder_get_stats(reinterpret_cast<larder_stats*>(&only_size), 8), 0);
  EXPECT_EQ(only_size, 8u);
}

// Allocates and frees `count` objects of `size` bytes.
void turn_over(size_t count, size_t size) {
  std::vector<void*> objects(count);
  for (void*& p : objects) p = larder_malloc(size);
  for (void* p : objects) larder_free(p);
}

// In a thread of its own, whose heap's cache limit ends with it.
void in_a_thread(void (*body)()) {
  larder_release_free_memory();
  std::thread(body).join();
}

TEST(ThreadHeap, WhatIsTurnedOverIsCached) {
  in_a_thread([] {
    for (int round = 0; round < 4; ++round) turn_over(1000, 5000);
    EXPECT_GE(thread_state.heap->cache.empty_bytes, 4u << 20);
  });
  in_a_thread([] {
    for (int round = 0; round < 4; ++round) turn_over(40, 100000);
    EXPECT_GE(thread_state.heap->cache.span_bytes, 3u << 20);
  });
}

TEST(ThreadHeap, WhatIsCachedIsBoundedAndFallsWithoutUse) {
  test_clock::stop();  // in time, an early purge would empty what is looked at
  in_a_thread([] {
    for (int round = 0; round < 4; ++round) turn_over(10000, 5000);
    ThreadHeap* heap = thread_state.heap;
    EXPECT_GT(heap->cache.extra, kCacheExtraBytes / 2);
    EXPECT_LE(heap->cache.extra, kCacheExtraBytes);
    EXPECT_LE(heap->cache.bytes(), kCacheExtraBytes + (1 << 20));
    for (int round = 0; round < 1000; ++round) {
      heap->cache.extra_since_ms = 0;  // as if the time had passed
      turn_over(60, 5000);
    }
    EXPECT_LE(heap->cache.extra, 1u << 20);
    EXPECT_LE(heap->cache.bytes(), 2u << 20);
  });
  // The extra limit ends with the thread.
  in_a_thread([] {
    for (int round = 0; round < 4; ++round) turn_over(10000, 5000);
    EXPECT_GT(thread_state.heap->cache.extra, kCacheExtraBytes / 2);
  });
  test_clock::go_on();
}

}  // namespace
}  // namespace larder
