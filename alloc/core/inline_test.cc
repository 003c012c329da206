// The inlined functions: what they cache, and that all of it goes back.
#include "larder/inline.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/page_heap.h"
#include "core/registry.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "os/options.h"
#include "statistics/heap_walk.h"

namespace larder {
namespace {

template <size_t kSize>
void* take() {
  return larder_malloc_inline(kSize);
}
template <size_t kSize>
void put(void* p) {
  larder_free_sized_inline(p, kSize);
}

struct Functions {
  size_t size;
  void* (*take)();
  void (*put)(void*);
};
template <size_t kSize>
constexpr Functions kFunctions = {kSize, take<kSize>, put<kSize>};
constexpr Functions kAll[] = {
    kFunctions<0>,    kFunctions<8>,    kFunctions<9>,    kFunctions<16>,  kFunctions<40>,
    kFunctions<100>,  kFunctions<128>,  kFunctions<129>,  kFunctions<600>, kFunctions<1000>,
    kFunctions<1024>, kFunctions<1025>, kFunctions<40000>};

larder_inline_state& state() { return LARDER_INLINE_NAME(state); }

size_t length(void* list) {
  size_t n = 0;
  for (void* p = list; p != nullptr; p = next_of(p)) ++n;
  return n;
}

size_t kept(size_t size) {
  size_t c = larder_inline_class(size);
  return length(state().newer[c]) + length(state().older[c]) +
         (LARDER_INLINE_IS_OBJECT(state().kept[c]) ? 1 : 0);
}

template <typename Body>
void on_thread(Body body) {
  std::thread(body).join();
}

size_t slabs() {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  return snapshot.slabs;
}

size_t in_use() {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  return snapshot.small_in_use + snapshot.span_bytes;
}

TEST(Inline, WhatWasFreedLastIsHandedOutNext) {
  for (const Functions& f : kAll) {
    for (int i = 0; i < 3; ++i) f.put(f.take());
    void* p = f.take();
    f.put(p);
    EXPECT_EQ(f.take(), p) << f.size;
    memset(p, 1, f.size);
    f.put(p);
    if (f.size > 8 && f.size <= LARDER_INLINE_MAX) {
      EXPECT_EQ(kept(f.size), 1u);
    }
  }
}

TEST(Inline, FreeOfNullDoesNothing) {
  for (int round = 0; round < 3; ++round) {
    for (const Functions& f : kAll)
      for (int i = 0; i < 200; ++i) {
        f.put(nullptr);
        larder_free_inline(nullptr);
      }
    for (const Functions& f : kAll) {
      void *p = f.take(), *q = f.take();
      ASSERT_NE(p, nullptr);
      ASSERT_NE(p, q);
      f.put(p);
      f.put(q);
    }
  }
}

TEST(Inline, CachesNoMoreThanItsBound) {
  size_t before = in_use();
  std::vector<void*> objects;
  for (int i = 0; i < 5000; ++i) objects.push_back(take<16>());
  size_t most = 0;
  for (void* p : objects) {
    put<16>(p);
    most = std::max(most, kept(16));
  }
  EXPECT_GE(most, kSizeClasses.max_deferred[1] / 2u) << "nothing is kept: there is nothing to test";
  // malloc empties the newer list, then takes the older one.
  for (int taken = 0; taken < kSizeClasses.max_deferred[1] + 5; ++taken) {
    objects.clear();
    for (int i = 0; i < 300; ++i) objects.push_back(larder_malloc(16));
    for (int i = 0; i < taken; ++i) objects.push_back(take<16>());
    for (void* p : objects) {
      put<16>(p);
      most = std::max(most, kept(16));
    }
  }
  EXPECT_LE(most, kSizeClasses.max_deferred[1] + 1u);
  EXPECT_EQ(in_use(), before);
  EXPECT_EQ(kept(16), 0u);
  page_heap.check();
}

TEST(Inline, SlabsThatBecomeEmptyAreNoticed) {
  put<600>(take<600>());
  size_t before = slabs();
  std::vector<void*> objects;
  for (int i = 0; i < 2000; ++i) objects.push_back(take<600>());
  ASSERT_GT(slabs(), before + 20);
  for (void* p : objects) put<600>(p);
  thread_state.heap->trim();
  EXPECT_LE(slabs(), before + 1);
}

TEST(Inline, AnUnsizedFreeServesTheNextMalloc) {
  for (int i = 0; i < 3; ++i) put<40>(take<40>());
  void* p = take<40>();
  larder_free_inline(p);
  EXPECT_EQ(take<40>(), p);
  put<40>(p);
  void* large = larder_malloc(100000);
  larder_free_inline(large);
}

TEST(Inline, AThreadThatEndsCachesNothing) {
  size_t before = in_use();
  ThreadHeap* heap = nullptr;
  on_thread([&] {
    std::vector<void*> objects;
    for (int i = 0; i < 50; ++i) objects.push_back(take<100>());
    for (void* p : objects) put<100>(p);
    EXPECT_GT(kept(100), 10u);
    heap = thread_state.heap;
    EXPECT_EQ(heap->inlined, &state());
  });
  EXPECT_EQ(heap->inlined, nullptr);
  EXPECT_EQ(in_use(), before);
}

TEST(Inline, ObjectsOfOtherThreadsComeBackToTheirSlabs) {
  size_t before = in_use();
  std::vector<void*> objects;
  std::atomic<int> stage{0};
  std::thread owner([&] {
    for (int i = 0; i < 3000; ++i) objects.push_back(take<40>());
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  for (void* p : objects) put<40>(p);
  // Another thread's objects, freed here.
  void* p = take<40>();
  EXPECT_NE(std::find(objects.begin(), objects.end(), p), objects.end());
  put<40>(p);
  larder_release_free_memory();
  EXPECT_EQ(kept(40), 0u);
  stage = 2;
  owner.join();
  EXPECT_EQ(in_use(), before);
  page_heap.check();
}

TEST(Inline, AnObjectShrunkInPlaceKeepsItsKind) {
  size_t before = in_use();
  for (int i = 0; i < 3; ++i) put<128>(take<128>());
  void* p = nullptr;
  // An address without the alignment of objects of 128 bytes.
  std::vector<void*> others;
  for (p = larder_malloc(160); uintptr_t(p) % 128 == 0; p = larder_malloc(160)) others.push_back(p);
  ASSERT_EQ(larder_realloc(p, 128), p);
  larder_free(take<128>());
  put<128>(p);
  void* aligned = larder_aligned_alloc(128, 128);
  EXPECT_EQ(uintptr_t(aligned) % 128, 0u);
  EXPECT_EQ(take<128>(), p);
  put<128>(p);
  larder_free(aligned);
  for (void* other : others) larder_free(other);
  // A span.
  void* span = larder_realloc(larder_malloc(100000), 1000);
  put<1000>(span);
  EXPECT_EQ(in_use(), before);
}

pthread_key_t late_key;
std::atomic<int> late_rounds{0};

void late_destructor(void*) {
  // Fewer than the bound on deferred frees.
  for (int i = 0; i < 4; ++i) {
    void *p = take<40>(), *q = take<40>();
    put<40>(p);
    put<40>(q);
  }
  if (++late_rounds < 4) pthread_setspecific(late_key, &late_key);
  // The heap is torn down in the first round, perhaps after this destructor, which would not run
  // again.
  if (late_rounds > 1) {
    EXPECT_EQ(kept(40), 0u);
  }
}

TEST(Inline, AfterItsTearDownAThreadCachesNothing) {
  ASSERT_EQ(pthread_key_create(&late_key, late_destructor), 0);
  on_thread([] {
    for (int i = 0; i < 3; ++i) put<40>(take<40>());
    pthread_setspecific(late_key, &late_key);
  });
  EXPECT_EQ(late_rounds, 4);
  pthread_key_delete(late_key);
}

TEST(Inline, AThreadWithoutAHeapCachesNothing) {
  put<40>(take<40>());
  set_option(Option::kMaxHeaps, heap_counts().in_use);
  on_thread([] {
    void* p = take<40>();
    EXPECT_EQ(thread_state.heap, nullptr);
    for (int i = 0; i < 100; ++i) {
      put<40>(p);
      EXPECT_EQ(kept(40), 0u);
      p = take<40>();
    }
    put<40>(p);
  });
  set_option(Option::kMaxHeaps, 0);
}

TEST(Inline, AForkedChildContinuesAlone) {
  std::vector<void*> theirs;
  std::atomic<int> stage{0};
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) theirs.push_back(take<16>());
    for (int i = 0; i < 50; ++i) put<16>(take<16>());
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  pid_t pid = fork();
  if (pid == 0) {
    alarm(900);
    for (void* p : theirs) put<16>(p);
    for (const Functions& f : kAll) f.put(memset(f.take(), 1, f.size));
    larder_release_free_memory();
    page_heap.check();
    _exit(kept(16) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  stage = 2;
  other.join();
  for (void* p : theirs) put<16>(p);
}

// Random calls of both kinds, by threads that come and go and exchange objects. Each live object is
// filled with its own pattern.
struct Object {
  char* p = nullptr;
  size_t size = 0;
  size_t function = 0;  // the function that may free it, with its size; beyond the last: none
  char mark = 0;
};

class Mix {
 public:
  explicit Mix(unsigned seed) : random_(seed) {}

  void step() {
    Object& object = objects_[random_() % std::size(objects_)];
    if (object.p == nullptr) return make(object);
    check(object);
    switch (random_() % 8) {
      case 0:
        return resize(object);
      case 1:
        return exchange(object);
      default:
        return drop(object);
    }
  }
  void drop_all() {
    for (Object& object : objects_)
      if (object.p != nullptr) drop(object);
  }
  static void drop_exchanged() {
    Mix mix(1);
    for (Object& object : exchanged) mix.exchange(object);
    mix.drop_all();
    for (Object& object : exchanged)
      if (object.p != nullptr) mix.drop(object);
  }

 private:
  static constexpr size_t kFunctionCount = std::size(kAll);

  void make(Object& object) {
    object.function = random_() % kFunctionCount;
    object.size = kAll[object.function].size;
    bool shared = random_() % 4 == 0;
    object.p =
        static_cast<char*>(shared ? larder_malloc(object.size) : kAll[object.function].take());
    fill(object);
  }

  void resize(Object& object) {
    object.function = random_() % (kFunctionCount + 1);
    object.size = object.function < kFunctionCount ? kAll[object.function].size : random_() % 3000;
    if (object.size == 0) object.function = kFunctionCount, object.size = 1;
    object.p = static_cast<char*>(larder_realloc(object.p, object.size));
    fill(object);
  }

  void exchange(Object& object) {
    std::lock_guard lock(exchange_lock);
    std::swap(object, exchanged[random_() % std::size(exchanged)]);
  }

  void drop(Object& object) {
    check(object);
    memset(object.p, 0x5A, object.size);
    unsigned way = random_() % 4;
    if (way == 0)
      larder_free(object.p);
    else if (way == 1 || object.function == kFunctionCount)
      larder_free_inline(object.p);
    else
      kAll[object.function].put(object.p);
    object.p = nullptr;
  }

  void fill(Object& object) {
    ASSERT_NE(object.p, nullptr);
    ASSERT_GE(larder_malloc_usable_size(object.p), object.size);
    ASSERT_EQ(uintptr_t(object.p) % (object.size > 8 ? 16 : 8), 0u);
    object.mark = char(random_() | 1);
    memset(object.p, object.mark, object.size);
  }

  static void check(const Object& object) {
    // All bytes equal the first.
    if (object.size == 0) return;
    ASSERT_EQ(object.p[0], object.mark) << object.size;
    ASSERT_EQ(memcmp(object.p, object.p + 1, object.size - 1), 0) << object.size;
  }

  std::mt19937 random_;
  Object objects_[200];
  static std::mutex exchange_lock;
  static Object exchanged[400];
};
std::mutex Mix::exchange_lock;
Object Mix::exchanged[400];

TEST(Inline, AnyMixOfCallsKeepsObjectsWhole) {
  size_t before = in_use();
  unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  for (int round = 0; round < 6; ++round) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i)
      threads.emplace_back([seed, i, round] {
        Mix mix(seed + unsigned(round) * 16 + i);
        for (int step = 1; step <= 10000; ++step) {
          mix.step();
          if (step % 2500 == 0) larder_release_free_memory();
        }
        mix.drop_all();
      });
    for (std::thread& thread : threads) thread.join();
    page_heap.check();
  }
  Mix::drop_exchanged();
  EXPECT_EQ(in_use(), before);
}

}  // namespace
}  // namespace larder
