// Estimates against exact counts. Each case is repeated with new random numbers: the mean of the
// estimates must be right, and most of the intervals.
#include "core/sampler.h"

#include <gtest/gtest.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/registry.h"
#include "core/thread_heap.h"
#include "larder/larder.h"
#include "larder/larder_malloc.h"
#include "os/options.h"
#include "sample/profile.h"
#include "sample/site.h"

namespace larder {
namespace {

constexpr size_t kMean = 16 * 1024;

// The sum over the sites whose innermost frame is in the function: found by its first use there,
// the return address of its call of malloc.
struct Sum {
  double bytes = 0, variance = 0, heaviest = 0, sampled = 0, allocated = 0;
  size_t samples = 0;
};

Sum in_use_by(uintptr_t begin, uintptr_t end) {
  LockGuard guard(sample_lock());
  Sum sum;
  for (Site* site = first_site(); site != nullptr; site = site->next) {
    // The first frames are the malloc family's if it is linked into the test.
    bool inside = false;
    for (uint32_t i = 0; i < site->depth && i < 12; ++i)
      inside = inside || (site->frames[i] > begin && site->frames[i] <= end);
    if (!inside) continue;
    sum.bytes += site->in_use.bytes;
    sum.allocated += site->allocated.bytes;
    sum.variance += site->variance;
    sum.sampled += double(site->sampled_bytes);
    sum.samples += site->samples;
    if (sum.heaviest < site->heaviest) sum.heaviest = site->heaviest;
  }
  return sum;
}

// The functions that allocate. This one is in a section of its own, which identifies its frames.
__attribute__((noinline, section("test_site"))) void* kept(const std::function<void*()>& allocate) {
  void* p = allocate();
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}
__attribute__((noinline)) void* other(const std::function<void*()>& allocate) {
  void* p = allocate();
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}
extern "C" char __start_test_site[], __stop_test_site[];
Sum sum_of_kept() { return in_use_by(uintptr_t(__start_test_site), uintptr_t(__stop_test_site)); }

// The bytes that the profile counts for an object.
double counted(size_t size) {
  return size <= kSmallMax ? kSizeClasses.size[class_of(size)] : double(size);
}

struct Result {
  int covered = 0, rounds = 0;
  std::vector<double> errors;  // estimate - truth
  double truth = 0;

  void add(const Sum& sum, double bytes) {
    Interval interval = interval_of(sum.bytes, sum.variance, sum.heaviest, sum.sampled);
    if (interval.low <= bytes && bytes <= interval.high) ++covered;
    ++rounds;
    errors.push_back(sum.bytes - bytes);
    truth += bytes;
  }
  void expect_right(const std::string& what) const {
    double n = rounds;
    double mean = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
    double squares = 0;
    for (double e : errors) squares += (e - mean) * (e - mean);
    double standard_error = sqrt(squares / (n - 1) / n);
    printf("%-40s mean error %+6.2f %%, %+5.2f standard errors; %d of %d covered\n", what.c_str(),
           100 * mean * n / truth, standard_error > 0 ? mean / standard_error : 0, covered, rounds);
    // Of the twenty comparisons in a run, one exceeds 3 standard errors by chance in one run of 20.
    EXPECT_LE(fabs(mean), 4 * standard_error + 1e-5 * truth / n) << what;
    // 95 % intervals, and five standard deviations of that count: purges come by time, so two runs
    // differ in the slots that are sampled.
    EXPECT_GE(covered, 0.95 * n - 5 * sqrt(0.95 * 0.05 * n)) << what;
  }
};

class Sampled : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_capture()) GTEST_SKIP() << "no unwinder";
    set_sample_mean(kMean);
    // The same numbers each time; LARDER_TEST_SEED sets others.
    const char* seed = getenv("LARDER_TEST_SEED");
    seed_chances(seed != nullptr ? strtoull(seed, nullptr, 10) : 1);
    thread_heap()->countdown = {};
    // Allocates until the mean is checked again.
    for (int i = 0; i < 3; ++i) larder_free(larder_malloc(1536 * 1024));
  }
  void TearDown() override { set_sample_mean(0); }
};

std::function<void*()> of_size(size_t size) {
  return [size] { return larder_malloc(size); };
}

// `work` allocates by kept() and others, and returns the objects of kept().
void repeat(const std::string& what, int rounds,
            const std::function<std::vector<void*>(double* bytes)>& work) {
  if (kChecked) rounds /= 8;  // checks walk all lists
  Result result;
  for (int round = 0; round < rounds; ++round) {
    double bytes = 0;
    std::vector<void*> objects = work(&bytes);
    result.add(sum_of_kept(), bytes);
    for (void* p : objects) larder_free(p);
    ASSERT_EQ(sum_of_kept().samples, 0u) << what;
    ASSERT_EQ(sum_of_kept().bytes, 0) << what;
    // The next round must not use only what this one leaves in lists.
    larder_release_free_memory();
  }
  result.expect_right(what);
}

TEST_F(Sampled, EverySize) {
  for (size_t size : {8u, 24u, 100u, 1000u, 5000u, 20000u, 50000u, 65536u, 300000u, 4194304u}) {
    size_t count = 24 * kMean / size + 3;
    repeat(std::to_string(size) + " bytes", 200, [&](double* bytes) {
      std::vector<void*> objects;
      for (size_t i = 0; i < count; ++i) objects.push_back(kept(of_size(size)));
      *bytes = double(count) * counted(size);
      return objects;
    });
  }
}

// Two sites in turn: each sees every other object of each slab.
TEST_F(Sampled, AlternatingSites) {
  for (size_t size : {32u, 1024u}) {
    size_t count = 32 * kMean / size;
    repeat("alternating, " + std::to_string(size), 200, [&](double* bytes) {
      std::vector<void*> objects;
      for (size_t i = 0; i < count; ++i) {
        objects.push_back(kept(of_size(size)));
        objects.push_back(other(of_size(size)));
      }
      *bytes = double(count) * counted(size);
      return objects;
    });
  }
}

// The temporary object always ends a list; the next kept one gets its slot.
TEST_F(Sampled, KeptAmongTemporary) {
  for (int temporary : {1, 10, 100}) {
    size_t count = 24 * kMean / 48;
    repeat("1 kept to " + std::to_string(temporary), 200, [&](double* bytes) {
      std::vector<void*> objects;
      for (size_t i = 0; i < count; ++i) {
        objects.push_back(kept(of_size(40)));
        for (int t = 0; t < temporary; ++t) larder_free(other(of_size(40)));
      }
      *bytes = double(count) * counted(40);
      return objects;
    });
  }
}

// Objects that come and go in random order: full slabs and deferred frees.
TEST_F(Sampled, Replaced) {
  unsigned random = 1;
  repeat("replaced at random", 100, [&](double* bytes) {
    std::vector<void*> objects;
    std::set<size_t> replaced;
    for (size_t i = 0; i < 16 * 1024; ++i) objects.push_back(other(of_size(64)));
    for (size_t i = 0; i < 64 * 1024; ++i) {
      random = random * 1664525 + 1013904223;
      size_t at = (random >> 8) % objects.size();
      larder_free(objects[at]);
      objects[at] = kept(of_size(64));
      replaced.insert(at);
    }
    *bytes = double(replaced.size()) * counted(64);
    return objects;
  });
}

TEST_F(Sampled, ManyThreadsAndFreedByOthers) {
  size_t each = 8 * kMean / 48;
  repeat("four threads", 100, [&](double* bytes) {
    std::vector<std::vector<void*>> made(4);
    std::vector<std::thread> threads;
    for (auto& objects : made)
      threads.emplace_back([&objects, each] {
        for (size_t i = 0; i < each; ++i) objects.push_back(kept(of_size(48)));
      });
    for (auto& thread : threads) thread.join();
    // Other threads free half of them, and allocate.
    threads.clear();
    std::vector<std::vector<void*>> later(4);
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        std::vector<void*>& objects = made[(t + 1) % 4];
        for (size_t i = 0; i < each / 2; ++i) {
          larder_free(objects[i * 2]);
          objects[i * 2] = nullptr;
          later[t].push_back(kept(of_size(48)));
        }
      });
    for (auto& thread : threads) thread.join();
    std::vector<void*> objects;
    for (auto* lists : {&made, &later})
      for (auto& list : *lists)
        for (void* p : list)
          if (p != nullptr) objects.push_back(p);
    *bytes = double(objects.size()) * counted(48);
    return objects;
  });
}

// Threads that share a heap: their samples end like all others.
TEST_F(Sampled, ThreadsWithoutAHeapLeaveNothing) {
  set_sample_mean(512);
  set_option(Option::kMaxHeaps, 1);
  auto live = [] {
    std::vector<void*> objects;
    for (size_t i = 0; i < 4000; ++i) objects.push_back(larder_malloc(8 + i % 2000));
    for (void* p : objects) larder_free(p);
  };
  auto in_use = [&live] {
    for (int i = 0; i < 40; ++i) std::thread(live).join();
    larder_stats stats = {};
    larder_get_stats(&stats, sizeof stats);
    return stats.in_use;
  };
  uint64_t before = in_use();
  EXPECT_LE(in_use(), before + 1024 * 1024);
  set_option(Option::kMaxHeaps, 0);
}

TEST_F(Sampled, GrownByRealloc) {
  set_sample_mean(1024 * 1024);
  larder_free(larder_malloc(1536 * 1024));
  repeat("grown to 2 MiB", 200, [&](double* bytes) {
    std::vector<void*> objects;
    for (int i = 0; i < 2; ++i) {
      size_t size = 40;
      void* p = kept(of_size(size));
      while (size < 2 * 1024 * 1024) {
        size += size / 4;
        p = kept([&] { return larder_realloc(p, size); });
      }
      objects.push_back(p);
      *bytes += double(size);
    }
    return objects;
  });
}

// An object that realloc moves gets extra room to grow.
TEST_F(Sampled, MovedByReallocCountsWhatWasAskedFor) {
  set_sample_mean(1024);
  for (int i = 0; i < 3; ++i) larder_free(larder_malloc(1536 * 1024));
  void* p = kept(of_size(20000));
  p = kept([&] { return larder_realloc(p, 100000); });
  EXPECT_GE(larder_malloc_usable_size(p), 110000u);
  EXPECT_EQ(sum_of_kept().samples, 1u);
  EXPECT_NEAR(sum_of_kept().bytes, 100000, 1);
  larder_free(p);
}

TEST_F(Sampled, ZeroedAndAligned) {
  repeat("calloc and aligned_alloc", 100, [&](double* bytes) {
    std::vector<void*> objects;
    for (int i = 0; i < 1000; ++i) {
      objects.push_back(kept([] { return larder_calloc(3, 100); }));
      objects.push_back(kept([] { return larder_aligned_alloc(256, 256); }));
      EXPECT_EQ(uintptr_t(objects.back()) % 256, 0u);
      *bytes += counted(300) + counted(256);
    }
    for (int i = 0; i < 4; ++i) {
      objects.push_back(kept([] { return larder_calloc(1, 100000); }));
      objects.push_back(kept([] { return larder_aligned_alloc(65536, 65536); }));
      *bytes += 100000 + 65536;
    }
    return objects;
  });
}

// A loop over one large block, which the one-entry caches serve: all of it is counted, also once
// the budget is spent and few of its turns are sampled.
TEST_F(Sampled, OneLargeBlockAgainAndAgain) {
  set_sample_mean(512 * 1024);
  const double turns = kChecked ? 2'000'000 : 16'000'000;
  for (size_t size : {100'000u, 900'000u, 3'000'000u}) {
    double before = sample_totals().allocated;
    for (int i = 0; i < int(turns); ++i) larder_free(other([size] { return larder_malloc(size); }));
    double counted = sample_totals().allocated - before;
    printf("%zu bytes: %.3f of what was allocated\n", size, counted / turns / double(size));
    // Some 4 samples a millisecond that stand for most of it: 5 to 10 % each way.
    EXPECT_NEAR(counted / turns / double(size), 1, 0.45);
  }
}

// A span that is freed and reused must not keep the sample point of its first object.
TEST_F(Sampled, LargeReused) {
  for (size_t size : {100000u, 200000u, 3000000u}) {
    // Of the smallest some are not sampled.
    set_sample_mean(size == 100000 ? 4 * kMean : kMean);
    repeat("reused, " + std::to_string(size), 300, [&](double* bytes) {
      for (int i = 0; i < 20; ++i) larder_free(other(of_size(size)));
      *bytes = double(size);
      return std::vector<void*>{kept(of_size(size))};
    });
  }
}

}  // namespace
}  // namespace larder
