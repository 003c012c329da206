#include "core/registry.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/sampler.h"
#include "larder/larder_malloc.h"
#include "os/options.h"
#include "tests/clock.h"

namespace larder {
namespace {

TEST(Registry, AnEndedThreadsHeapServesTheNextThread) {
  ThreadHeap* first = nullptr;
  std::thread([&] {
    larder_free(larder_malloc(10));
    first = thread_state.heap;
  }).join();
  ASSERT_NE(first, nullptr);
  std::thread([&] {
    larder_free(larder_malloc(10));
    EXPECT_EQ(thread_state.heap, first);
  }).join();
}

// The untouched part of slabs does not count: the next thread gets the heap with its slabs.
TEST(Registry, AHeapOfManyClassesWaitsForTheNextThread) {
  auto live = [] {
    for (size_t c = 0; c < class_of(2048); ++c) larder_free(larder_malloc(kSizeClasses.size[c]));
  };
  std::thread(live).join();
  uint64_t fresh = heap_counts().fresh_slabs;
  std::thread(live).join();
  EXPECT_EQ(heap_counts().fresh_slabs, fresh);
}

// As many heaps as there were threads, not just a few.
TEST(Registry, HeapsOfManyThreadsWaitForNewThreads) {
  constexpr int kThreads = 32;
  auto wave = [] {
    pthread_barrier_t all;
    pthread_barrier_init(&all, nullptr, kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&all] {
        larder_free(larder_malloc(100));
        pthread_barrier_wait(&all);
      });
    }
    for (auto& thread : threads) thread.join();
    pthread_barrier_destroy(&all);
  };
  wave();
  uint64_t fresh = heap_counts().fresh_slabs;
  wave();
  EXPECT_EQ(heap_counts().fresh_slabs, fresh);
}

TEST(Registry, ThreadsBeyondTheBoundShare) {
  larder_free(larder_malloc(10));
  set_option(Option::kMaxHeaps, heap_counts().in_use);
  void* p = nullptr;
  std::thread([&] {
    p = larder_malloc(10);
    EXPECT_EQ(thread_state.heap, nullptr);
    EXPECT_EQ(thread_state.phase, ThreadState::kSurplus);
    EXPECT_TRUE(page_map.find(p)->owner()->shared);
    // The bound is lifted: the thread gets a heap at its next slow path.
    set_option(Option::kMaxHeaps, 0);
    larder_free(larder_malloc(20));
    EXPECT_NE(thread_state.heap, nullptr);
  }).join();
  larder_free(p);
}

pthread_key_t late_key;
std::atomic<int> late_rounds{0};

void late_destructor(void*) {
  // Before and after this thread's heap is torn down.
  for (int i = 0; i < 100; ++i) {
    void* p = larder_malloc(size_t(i) * 50);
    EXPECT_NE(p, nullptr);
    larder_free(p);
  }
  larder_free(larder_calloc(1, 5 << 20));
  // Not in the last round: ThreadSanitizer has ended the thread by then.
  if (++late_rounds < PTHREAD_DESTRUCTOR_ITERATIONS - 1) pthread_setspecific(late_key, &late_key);
}

TEST(Registry, AThreadMayAllocateAfterItsTearDown) {
  ASSERT_EQ(pthread_key_create(&late_key, late_destructor), 0);
  std::thread([] {
    larder_free(larder_malloc(10));
    pthread_setspecific(late_key, &late_key);
  }).join();
  EXPECT_EQ(late_rounds, PTHREAD_DESTRUCTOR_ITERATIONS - 1);
  pthread_key_delete(late_key);
}

void again_then_allocate(void* first) {
  if (first == &late_rounds) {
    pthread_setspecific(late_key, &late_key);
    return;
  }
  larder_free(larder_malloc(10));
  EXPECT_EQ(thread_state.heap, nullptr);
  EXPECT_EQ(thread_state.phase, ThreadState::kTornDown);
}

// Such a heap would never be given up.
TEST(Registry, AThreadBeyondTheBoundGetsNoHeapAfterItsTearDown) {
  ASSERT_EQ(pthread_key_create(&late_key, again_then_allocate), 0);
  larder_free(larder_malloc(10));
  set_option(Option::kMaxHeaps, heap_counts().in_use);
  size_t in_use = heap_counts().in_use;
  std::thread([] {
    larder_free(larder_malloc(10));
    EXPECT_EQ(thread_state.phase, ThreadState::kSurplus);
    set_option(Option::kMaxHeaps, 0);
    pthread_setspecific(late_key, &late_rounds);
  }).join();
  EXPECT_EQ(heap_counts().in_use, in_use);
  pthread_key_delete(late_key);
}

// ThreadSanitizer ends a thread before its last round, and lets no forked process start one.
#ifndef __SANITIZE_THREAD__

void* last_words = nullptr;

// In the fourth round the destructors of keys with lower numbers have run for the last time: the
// state of a signal handler at a thread's very end.
void allocate_in_the_last_round(void*) {
  if (++late_rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(late_key, &late_key);
    return;
  }
  last_words = larder_malloc(100);
  EXPECT_NE(thread_state.heap, nullptr);
}

// On a stack of its own. Its memory, and the thread-local storage, end with the thread.
void run_thread(void* (*function)(void*)) {
  constexpr size_t kStackBytes = 1 << 20;
  void* stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(stack, MAP_FAILED);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, kStackBytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, function, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  munmap(stack, kStackBytes);
}

TEST(Registry, ALeakedHeapStopsCounting) {
  ASSERT_EQ(pthread_key_create(&late_key, allocate_in_the_last_round), 0);
  larder_free(larder_malloc(10));
  const size_t before = heap_counts().in_use;
  set_option(Option::kMaxHeaps, before + 1);
  // Repeated, because searches for leaked heaps are kSearchMs apart.
  for (int i = 0; i < 3; ++i) {
    late_rounds = 0;
    run_thread([](void*) -> void* {
      pthread_setspecific(late_key, &late_key);
      return nullptr;
    });
    EXPECT_EQ(heap_counts().in_use, before + 1);
    larder_free(last_words);
    test_clock::pass_ms(150);
    run_thread([](void*) -> void* {
      larder_free(larder_malloc(10));
      EXPECT_EQ(thread_state.phase, ThreadState::kHasHeap);
      return nullptr;
    });
    EXPECT_EQ(heap_counts().in_use, before);
#ifdef LARDER_DEBUG
    larder_check();
#endif
  }
  set_option(Option::kMaxHeaps, 0);
  pthread_key_delete(late_key);
}

// A thread that ends frees the thread-local storage of others, when nothing gives up a heap
// anymore.
TEST(Registry, AThreadsFirstFreesTakeNoHeap) {
  void* objects[kFreesWithoutHeap + 1];
  for (void*& p : objects) p = larder_malloc(100);
  void* span = larder_malloc(100'000);
  std::thread([&] {
    larder_free(span);
    for (int i = 0; i < kFreesWithoutHeap - 1; ++i) larder_free(objects[i]);
    EXPECT_EQ(thread_state.heap, nullptr);
    for (int i = kFreesWithoutHeap - 1; i <= kFreesWithoutHeap; ++i) larder_free(objects[i]);
    EXPECT_NE(thread_state.heap, nullptr);
  }).join();
  EXPECT_NE(remote_list(page_map.find(objects[0])), nullptr);
}

TEST(Registry, NorDoThoseOfSampledObjects) {
  set_sample_mean(4096);
  std::vector<void*> objects;
  do objects.push_back(larder_malloc(3000));
  while (page_map.find(objects.back())->kind != Kind::kSampled);
  std::thread([p = objects.back()] {
    larder_free(p);
    EXPECT_EQ(thread_state.heap, nullptr);
  }).join();
  objects.pop_back();
  for (void* p : objects) larder_free(p);
  set_sample_mean(0);
#ifdef LARDER_DEBUG
  larder_check();
#endif
}

// The list heads of a leaked heap, which its thread had, are no longer mapped.
TEST(Registry, ASearchForAFreeObjectPassesOverALeakedHeap) {
  ASSERT_EQ(pthread_key_create(&late_key, allocate_in_the_last_round), 0);
  late_rounds = 0;
  run_thread([](void*) -> void* {
    pthread_setspecific(late_key, &late_key);
    return nullptr;
  });
  larder_free(last_words);
  void* looks_free = larder_malloc(100);
  link_of(looks_free) = nullptr;
  EXPECT_GE(larder_malloc_usable_size(looks_free), 100);
  larder_free(looks_free);
  pthread_key_delete(late_key);
}

// The child's number differs from that of the thread that forked.
TEST(Registry, AForkedThreadsHeapIsNotTakenForLeaked) {
  larder_free(larder_malloc(10));
  const pid_t child = fork();
  if (child == 0) {
    const size_t before = heap_counts().in_use;
    set_option(Option::kMaxHeaps, before);
    test_clock::pass_ms(150);
    run_thread([](void*) -> void* {
      larder_free(larder_malloc(10));
      return nullptr;
    });
    _exit(heap_counts().in_use == before ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace larder
