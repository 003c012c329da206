#include "core/block.h"

#include <gtest/gtest.h>

#include <random>

namespace larder {
namespace {

// The plain way, to check the bit tricks against.
int slow_longest(UnitSet set) {
  int best = 0, run = 0;
  for (int i = 0; i < kUnitsPerBlock; ++i) {
    run = (set >> i & 1) != 0 ? run + 1 : 0;
    if (run > best) best = run;
  }
  return best;
}

bool slow_starts(UnitSet set, int at, int count) {
  for (int i = at; i < at + count; ++i)
    if (i >= kUnitsPerBlock || (set >> i & 1) == 0) return false;
  return true;
}

UnitSet random_set(std::minstd_rand& random) {
  UnitSet set = 0;
  for (int at = 0; at < kUnitsPerBlock;) {
    int count = 1 + int(random() % 24);
    if (count > kUnitsPerBlock - at) count = kUnitsPerBlock - at;
    if (random() % 2 != 0) set |= unit_range(at, count);
    at += count;
  }
  return set;
}

TEST(UnitSet, LongestRunAndStartsAgreeWithTheSlowWay) {
  std::minstd_rand random(1);
  for (int round = 0; round < 2000; ++round) {
    UnitSet set = random_set(random);
    ASSERT_EQ(longest_run(set), slow_longest(set));
    int count = 1 + int(random() % kUnitsPerBlock);
    UnitSet starts = starts_of_runs(set, count);
    for (int at = 0; at < kUnitsPerBlock; ++at)
      ASSERT_EQ((starts >> at & 1) != 0, slow_starts(set, at, count)) << at << " " << count;
  }
}

TEST(UnitSet, TheExtremes) {
  EXPECT_EQ(longest_run(0), 0);
  EXPECT_EQ(longest_run(kAllUnits), kUnitsPerBlock);
  EXPECT_EQ(longest_run(kAllUnits >> 1), kUnitsPerBlock - 1);
  EXPECT_EQ(longest_run(UnitSet{1} << 127), 1);
  EXPECT_EQ(count_units(unit_range(3, 100)), 100);
  EXPECT_EQ(run_length_at(kAllUnits, 5), kUnitsPerBlock - 5);
  EXPECT_EQ(run_length_at(unit_range(64, 10), 66), 8);
  EXPECT_TRUE(unit_range(0, kUnitsPerBlock) == kAllUnits);
}

}  // namespace
}  // namespace larder
