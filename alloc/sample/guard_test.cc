// Every object of a test is sampled, and so guarded as long as there are slots.
#include "core/guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>
#include <vector>

#include "core/page_map.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"

namespace larder {
namespace {

class Guard : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    set_sample_mean(1);
    static const char* obstacle = guard_init();
    ASSERT_EQ(obstacle, nullptr);
  }
  void SetUp() override {
    set_option(Option::kGuard, 1);
    set_sample_mean(1);
    // The heap's countdown was drawn for another mean.
    for (size_t bytes = 16; bytes <= kSmallMax; bytes += bytes / 4)
      while (!is_guarded(keep(larder_malloc(bytes)))) {
      }
  }
  void TearDown() override {
    for (void* p : kept_) larder_free(p);
    set_sample_mean(0);
    set_option(Option::kGuard, 0);
  }
  static bool is_guarded(const void* p) { return page_map.find_any(p)->guarded; }
  // Until the test ends.
  void* keep(void* p) {
    kept_.push_back(p);
    return p;
  }
  // A loop of malloc and free reuses one slot, whose sample point is dropped at times.
  volatile char* object(size_t bytes) {
    for (;;) {
      auto* p = static_cast<char*>(larder_malloc(bytes));
      if (is_guarded(p)) return p;
      keep(p);
    }
  }
  static void drop(volatile char* p) { larder_free(const_cast<char*>(p)); }

 private:
  std::vector<void*> kept_;
};
using GuardDeathTest = Guard;

TEST_F(Guard, AnObjectIsAsLongAsItsRequestAndAligned) {
  for (size_t bytes : {0, 1, 15, 16, 17, 50, 1000, 4096, 4097, 32'000, 32'768}) {
    volatile char* p = object(bytes);
    EXPECT_EQ(larder_malloc_usable_size(const_cast<char*>(p)), bytes < 8 ? 8 : bytes);
    EXPECT_EQ(uintptr_t(p) % 16, 0u);
    for (size_t i = 0; i < bytes; ++i) p[i] = char(i);
    drop(p);
  }
  size_t guarded = 0;
  for (size_t align = 32; align <= 4096; align *= 2)
    for (size_t bytes : {size_t{1}, align - 20, align, align + 1, align * 3}) {
      void* p = keep(larder_aligned_alloc(align, bytes));
      guarded += is_guarded(p) ? 1 : 0;
      EXPECT_EQ(uintptr_t(p) % align, 0u) << align << " " << bytes;
      memset(p, 1, bytes);
    }
  EXPECT_GT(guarded, 20u);
}

TEST_F(Guard, ReallocKeepsTheContent) {
  auto* p = static_cast<char*>(larder_malloc(20));
  memset(p, 7, 20);
  for (size_t bytes = 21; bytes < 70'000; bytes += bytes / 7 + 1) {
    p = static_cast<char*>(larder_realloc(p, bytes));
    for (int i = 0; i < 20; ++i) ASSERT_EQ(p[i], 7);
    memset(p + 20, int(bytes), bytes - 20);
  }
  p = static_cast<char*>(larder_realloc(p, 30));
  for (int i = 0; i < 20; ++i) ASSERT_EQ(p[i], 7);
  larder_free(p);
}

TEST_F(GuardDeathTest, AnAccessBehindTheEndIsReportedWithTheAllocation) {
  volatile char* p = object(48);
  EXPECT_DEATH(
      p[48] = 1,
      "larder: a write at 0x[0-9a-f]+: overflow, 0 bytes behind the end of an object of 48 "
      "bytes \\(thread [0-9]+\\)\nlarder:   #0 .*\n(.*\n)*"
      "larder: the object was allocated here:\nlarder:   #0 ");
  EXPECT_DEATH((void)p[60], "larder: a read at 0x[0-9a-f]+: overflow, 12 bytes behind");
  EXPECT_DEATH(p[-5000] = 1, "underflow, 5000 bytes before an object of 48 bytes");
  drop(p);
}

TEST_F(GuardDeathTest, AnAccessAfterFreeIsReportedWithBothStacks) {
  volatile char* p = object(1000);
  std::thread([p] { drop(p); }).join();
  EXPECT_DEATH(
      (void)p[7],
      "a read at 0x[0-9a-f]+: use after free, 7 bytes into an object of 1000 bytes(.*\n)+.*"
      "the object was allocated here:\n(.*\n)+.*"
      "and freed here, by thread [0-9]+:\nlarder:   #0 ");
  EXPECT_DEATH(drop(p), "double free, an object of 1000 bytes(.*\n)+.*and freed here, by thread");
  EXPECT_DEATH((void)!larder_realloc(const_cast<char*>(p), 2000), "the object is free");
}

TEST_F(GuardDeathTest, WhatWasWrittenBesideTheObjectIsReportedByFree) {
  volatile char* p = object(50);
  EXPECT_DEATH(
      {
        p[50] = 0;
        drop(p);
      },
      "free\\(0x[0-9a-f]+\\): bytes beside the object were overwritten, an object of 50 bytes");
  EXPECT_DEATH(
      {
        p[-1] = 1;
        drop(p);
      },
      "bytes beside the object were overwritten");
  // Also where the size of the class divides the distance.
  for (size_t bytes : {50, 64, 4096}) {
    volatile char* object_of = object(bytes);
    for (int at : {-64, -16, 16, 32})
      EXPECT_DEATH(drop(object_of + at), "no object begins there, within or before an object of ");
    drop(object_of);
  }
  drop(p);
}

TEST_F(Guard, TheProgramGoesOnIfItMayGoOn) {
  set_option(Option::kOnError, size_t(OnError::kIgnore));
  for (int i = 0; i < 2 * int(kGuardedFreed); ++i) {
    volatile char* p = object(100);
    p[112] = 1;
    drop(p);
    EXPECT_EQ(p[5], 0);
    p[-1] = 2;
  }
  set_option(Option::kOnError, size_t(OnError::kAbort));
  // The slots serve again, and are clean.
  for (int i = 0; i < 2 * int(kGuardedFreed); ++i) drop(object(100));
}

TEST_F(Guard, AFreedSlotWaitsForItsTurn) {
  std::set<volatile char*> seen;
  for (uint32_t i = 0; i < kGuardedFreed; ++i) {
    volatile char* p = object(64);
    EXPECT_TRUE(seen.insert(p).second);
    drop(p);
  }
  for (uint32_t i = 0; i < kGuardedFreed * 2; ++i) {
    volatile char* p = object(64);
    seen.insert(p);
    drop(p);
  }
  EXPECT_LE(seen.size(), kGuardedFreed * 2 + 1);
}

TEST_F(Guard, WithoutASlotObjectsAreSampledAsEver) {
  std::vector<void*> objects;
  for (uint32_t i = 0; i < kMaxGuarded + 100; ++i) {
    objects.push_back(larder_malloc(32));
    memset(objects.back(), 1, 32);
  }
  EXPECT_EQ(page_map.find_any(objects.back())->kind, Kind::kSampled);
  EXPECT_FALSE(is_guarded(objects.back()));
  for (void* p : objects) larder_free(p);
  drop(object(32));
}

TEST_F(Guard, ThreadsShareTheSlots) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::vector<char*> objects;
      for (int i = 0; i < 2000; ++i) {
        size_t bytes = size_t(16 + (i * 37 + t) % 3000);
        objects.push_back(static_cast<char*>(larder_malloc(bytes)));
        memset(objects.back(), t, bytes);
        if (i % 3 != 2) continue;
        EXPECT_EQ(*objects.front(), t);
        larder_free(objects.front());
        objects.erase(objects.begin());
      }
      for (char* p : objects) larder_free(p);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Guard, AChildOfForkHasItsOwn) {
  volatile char* p = object(40);
  p[0] = 'p';
  pid_t child = fork();
  if (child == 0) {
    bool sound = p[0] == 'p';
    p[0] = 'c';
    drop(p);
    volatile char* more = object(40);
    more[39] = 1;
    drop(more);
    _exit(sound ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(p[0], 'p');
  drop(p);
}

// What faults elsewhere is the program's: its handler from before runs.
TEST_F(GuardDeathTest, OtherFaultsAreTheProgramsOwn) {
  EXPECT_EXIT(*static_cast<volatile char*>(nullptr) = 1, testing::KilledBySignal(SIGSEGV), "^$");
  EXPECT_EXIT(raise(SIGSEGV), testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace larder
