#include "core/purge_slab.h"

#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "base/stats.h"
#include "core/check.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "os/options.h"
#include "tests/clock.h"

namespace larder {
namespace {

constexpr size_t kMib = 1 << 20;

void check_all() {
#ifdef LARDER_DEBUG
  larder_check();
#endif
}

size_t resident() {
  FILE* statm = fopen("/proc/self/statm", "r");
  long total = 0, pages = 0;
  EXPECT_EQ(fscanf(statm, "%ld %ld", &total, &pages), 2);
  fclose(statm);
  return size_t(pages) * os::page_size();
}

// Objects filled with their number.
class Objects {
 public:
  Objects(size_t count, size_t size) : size_(size) {
    for (size_t i = 0; i < count; ++i) add();
  }
  ~Objects() {
    keep_only([](size_t) { return false; });
  }
  void add() {
    all_.push_back(static_cast<char*>(larder_malloc(size_)));
    memset(all_.back(), int(all_.size() % 251), size_);
  }
  template <typename Choose>
  void keep_only(Choose choose) {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i] == nullptr || choose(i)) continue;
      larder_free(all_[i]);
      all_[i] = nullptr;
    }
  }
  void expect_intact() const {
    std::set<char*> distinct;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i] == nullptr) continue;
      EXPECT_TRUE(distinct.insert(all_[i]).second);
      EXPECT_EQ(all_[i][0], char((i + 1) % 251));
      EXPECT_EQ(memcmp(all_[i], all_[i] + 1, size_ - 1), 0);
    }
  }
  const std::vector<char*>& all() const { return all_; }

 private:
  size_t size_;
  std::vector<char*> all_;
};

class PurgeSlab : public testing::Test {
 protected:
  void SetUp() override {
    set_option(Option::kEarlyPurge, 0);
    set_option(Option::kPurgeDecayMs, 3600 * 1000);
    release_free_memory();
  }
  void TearDown() override {
    check_all();
    set_option(Option::kEarlyPurge, 1);
    set_option(Option::kPurgeDecayMs, 1000);
  }
};

TEST_F(PurgeSlab, SystemPagesBetweenObjectsInUseAreDecommittedAndComeAgain) {
  for (size_t size : {size_t{64}, size_t{1000}, size_t{3000}, size_t{4096}, size_t{20000}}) {
    size_t count = 16 * kMib / size;
    Objects objects(count, size);
    size_t per_slab = kSizeClasses.capacity[class_of(size)];
    objects.keep_only([&](size_t i) { return i % per_slab == per_slab / 2; });
    size_t before = resident();
    release_free_memory();
    check_all();
    EXPECT_LE(resident() + 8 * kMib, before) << size;
    objects.expect_intact();
    for (size_t i = 0; i < count; ++i) objects.add();
    check_all();
    objects.expect_intact();
  }
}

TEST_F(PurgeSlab, TheLastObjectOfAPurgedSlabEmptiesIt) {
  for (size_t size : {size_t{3000}, size_t{4096}, size_t{32768}}) {
    Objects objects(1000, size);
    size_t per_slab = kSizeClasses.capacity[class_of(size)];
    objects.keep_only([&](size_t i) { return i % per_slab == 0; });
    release_free_memory();
    objects.keep_only([](size_t) { return false; });
    check_all();
    for (int i = 0; i < 1000; ++i) objects.add();
    objects.expect_intact();
  }
}

// Empties every other slab, after nearly emptying the rest.
void decimate(Objects& objects) {
  size_t per_slab = kSizeClasses.capacity[class_of(3000)];
  auto sparse = [&](size_t i) { return i % (2 * per_slab) == 0; };
  objects.keep_only([&](size_t i) { return sparse(i) || i / per_slab % 2 != 0; });
  objects.keep_only(sparse);
}

TEST_F(PurgeSlab, AHeapThatFreesMuchPurgesForAShareOfTheTime) {
  constexpr size_t kCount = 64 * kMib / 3000;
  Objects objects(kCount, 3000);
  test_clock::stop(100);
  test_clock::pass_ms(600);  // 18 ms may be used: 187 reads of the clock
  size_t before = resident();
  decimate(objects);
  EXPECT_LE(resident() + 4 * kMib, before);
  objects.expect_intact();
  // Once the saved time is used, a round may read the clock 12 times; 30 MiB take more.
  for (int round = 1; round <= 8; ++round) {
    test_clock::pass_ms(40);
    int64_t purged = stats::get(stats::kPurgedBytes);
    Objects more(kCount, 3000);
    decimate(more);
    if (round > 1) {
      EXPECT_GE(stats::get(stats::kPurgedBytes) - purged, int64_t{4} << 20);
      EXPECT_LE(stats::get(stats::kPurgedBytes) - purged, int64_t{24} << 20);
    }
  }
  test_clock::go_on();
}

TEST_F(PurgeSlab, AHeapThatHasFreedMuchGoesOnToPurgeWhileItWorks) {
  constexpr size_t kCount = 64 * kMib / 3000;
  Objects objects(kCount, 3000);
  test_clock::stop(100);
  start_slab_purge_clock();
  decimate(objects);
  int64_t purged = stats::get(stats::kPurgedBytes);
  std::vector<void*> few(100);
  for (int i = 0; i < 200; ++i) {
    test_clock::pass_ms(40);
    for (void*& p : few) p = larder_malloc(3000);
    for (void* p : few) larder_free(p);
  }
  EXPECT_GE(stats::get(stats::kPurgedBytes) - purged, int64_t{16} << 20);
  objects.expect_intact();
  test_clock::go_on();
}

}  // namespace
}  // namespace larder
