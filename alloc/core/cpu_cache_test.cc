#include "core/cpu_cache.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "os/options.h"

namespace larder {
namespace {

// Runs it in threads of which none has a heap.
template <typename Run>
void without_heap(int threads, Run run) {
  larder_free(larder_malloc(10));
  set_option(Option::kMaxHeaps, heap_counts().in_use);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&run, i] {
      larder_free(larder_malloc(10));
      EXPECT_EQ(thread_state.phase, ThreadState::kSurplus);
      run(i);
    });
  }
  for (auto& thread : all) thread.join();
  set_option(Option::kMaxHeaps, 0);
}

void stay_on_first_cpu() {
  cpu_set_t mask, first;
  CPU_ZERO(&first);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
}

// Makes this CPU's cache. False: the machine or the build has none.
bool has_cache() {
  larder_free(larder_malloc(100));
  return cpu_caches.area.load() != 0 && cpu_cache_push(0, larder_malloc(8)) &&
         cpu_cache_pop(0) != nullptr;
}

TEST(CpuCache, APairNeedsNoSharedHeap) {
  without_heap(1, [](int) {
    stay_on_first_cpu();
    if (!has_cache()) return;
    larder_free(larder_malloc(100));
    // A free that went to the heap would make the next malloc refill from it.
    uint64_t refills = heap_counts().refills;
    for (int i = 0; i < 1000; ++i) larder_free(larder_malloc(100));
    EXPECT_EQ(heap_counts().refills, refills);
  });
}

TEST(CpuCache, WhatOneThreadFreesServesTheNextOnItsCpu) {
  void* freed = nullptr;
  without_heap(1, [&](int) {
    stay_on_first_cpu();
    if (!has_cache()) return;
    freed = larder_malloc(200);
    larder_free(freed);
  });
  if (freed == nullptr) return;
  without_heap(1, [&](int) {
    stay_on_first_cpu();
    void* p = larder_malloc(200);
    EXPECT_EQ(p, freed);
    EXPECT_EQ(*static_cast<uintptr_t*>(p), 0u);
    larder_free(p);
  });
}

TEST(CpuCache, IsBounded) {
  constexpr int kObjects = 10'000;
  without_heap(1, [](int) {
    stay_on_first_cpu();
    if (!has_cache()) return;
    for (size_t bytes : {16, 300, 5000, 32768}) {
      int c = int(class_of(bytes));
      std::vector<void*> objects;
      for (int i = 0; i < kObjects / 10; ++i) objects.push_back(larder_malloc(bytes));
      for (void* p : objects) larder_free(p);
      int cached = 0;
      while (cpu_cache_pop(c) != nullptr) ++cached;
      EXPECT_GT(cached, 0);
      EXPECT_LE(cached, kSizeClasses.max_deferred[c]);
    }
  });
}

TEST(CpuCache, IsEmptiedWithAllElse) {
  without_heap(1, [](int) {
    stay_on_first_cpu();
    if (!has_cache()) return;
    larder_free(larder_malloc(700));
    release_free_memory();
    for (int c = 0; c < kClasses; ++c) EXPECT_EQ(cpu_cache_pop(c), nullptr);
  });
}

// The child forgets: a thread that it does not have may have been half through a push.
TEST(CpuCache, AChildOfForkForgetsIt) {
  without_heap(1, [](int) {
    stay_on_first_cpu();
    if (!has_cache()) return;
    void* cached = larder_malloc(900);
    larder_free(cached);
    pid_t child = fork();
    if (child == 0) {
      bool empty = cpu_cache_pop(int(class_of(900))) == nullptr;
      void* p = larder_malloc(900);
      larder_free(p);
      _exit(empty && p != nullptr && p != cached ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cpu_cache_pop(int(class_of(900))), cached);
  });
}

TEST(CpuCache, ADoubleFreeIsFoundThere) {
  EXPECT_DEATH(without_heap(1,
                            [](int) {
                              void* p = larder_malloc(60);
                              larder_free(p);
                              larder_free(p);
                            }),
               "double free");
}

// What the handler allocated last, so that it leaves other counts behind than it met.
thread_local void* of_handler = nullptr;
std::atomic<long> signals{0};

void replace_in_handler(int) {
  ++signals;
  larder_free(std::exchange(of_handler, larder_malloc(40)));
}

// Each object has its owner's stamp while it is in use: two owners would meet. Threads migrate, and
// a signal handler that allocates, too, interrupts them anywhere.
TEST(CpuCache, NoObjectIsHandedOutTwice) {
  constexpr int kThreads = 8, kSlots = 60, kRounds = 3'000'000;
  struct sigaction action = {}, before = {};
  action.sa_handler = replace_in_handler;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<int> at_work{kThreads};
  std::atomic<pthread_t> who[kThreads] = {};
  std::thread disturbs([&] {
    unsigned turn = 0;
    while (at_work.load() > 0) {
      pthread_t thread = who[++turn % kThreads].load();
      if (thread != 0) pthread_kill(thread, SIGUSR1);
    }
  });
  without_heap(kThreads, [&](int me) {
    who[me] = pthread_self();
    struct Stamp {
      long owner, size;
    };
    Stamp* slots[kSlots] = {};
    unsigned long random = unsigned(me) + 1;
    auto check_and_free = [&](Stamp* p) {
      if (p == nullptr) return;
      ASSERT_EQ(p->owner, me);
      auto* last = reinterpret_cast<char*>(p) + p->size - 1;
      ASSERT_EQ(*last, char(me));
      larder_free(p);
    };
    // Without caches there is little to find.
    const int rounds = cpu_caches.area.load() != 0 ? kRounds : kRounds / 100;
    for (int round = 0; round < rounds; ++round) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      Stamp*& slot = slots[(random >> 33) % kSlots];
      check_and_free(slot);
      long size = 24 + long((random >> 40) % 24);
      slot = static_cast<Stamp*>(larder_malloc(size_t(size)));
      *slot = {me, size};
      reinterpret_cast<char*>(slot)[size - 1] = char(me);
    }
    for (Stamp* p : slots) check_and_free(p);
    // A signal to a thread that has ended is lost, or worse.
    who[me] = 0;
    --at_work;
    while (at_work.load() > 0) std::this_thread::yield();
    larder_free(std::exchange(of_handler, nullptr));
  });
  disturbs.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_GT(signals.load(), 0);
}

}  // namespace
}  // namespace larder
