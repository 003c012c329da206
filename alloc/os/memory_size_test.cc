#include "os/memory_size.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace larder {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

// A machine's /proc and /sys, as far as they are read.
class Machine : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/memory_size_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        1 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  size_t size() const { return memory_size(root_.c_str()); }

  std::string root_;
};

TEST_F(Machine, WithoutAGroupItIsAllThereIs) {
  EXPECT_EQ(size(), 16 * kGiB);
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(size(), 16 * kGiB);
}

TEST_F(Machine, TheLeastLimitOfAGroupAndThoseAboveCounts) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "3221225472\n");
  EXPECT_EQ(size(), 3 * kGiB);
  put("sys/fs/cgroup/a/memory.max", "1073741824\n");
  EXPECT_EQ(size(), kGiB);
  put("sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(size(), kGiB / 2);
}

// In a container without a cgroup namespace, which sees only its own root.
TEST_F(Machine, AGroupThatIsNotSeenLeavesThoseAbove) {
  put("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/0123\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(size(), 2 * kGiB);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(size(), 16 * kGiB);
}

TEST_F(Machine, OnlyTheMemoryControllersGroupCounts) {
  put("proc/self/cgroup", "4:memoryx,hugememory:/a\n3:cpu,memory:/b\n");
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1\n");
  put("sys/fs/cgroup/memory/b/memory.limit_in_bytes", "4294967296\n");
  EXPECT_EQ(size(), 4 * kGiB);
}

TEST_F(Machine, WhatCannotBeUnderstoodIsNoLimit) {
  for (const char* text :
       {"", "\n", ":", "::", "0:", "0::\n\n\n", "4:memory", "\xff\xff", "0::////"}) {
    put("proc/self/cgroup", text);
    EXPECT_EQ(size(), 16 * kGiB) << text;
  }
  put("proc/self/cgroup", "0::/" + std::string(9000, 'x') + "\n");
  EXPECT_EQ(size(), 16 * kGiB);
  put("proc/self/cgroup", "0::/a\n");
  for (const char* text : {"", "-1", "banana", "99999999999999999999999999"}) {
    put("sys/fs/cgroup/a/memory.max", text);
    EXPECT_EQ(size(), 16 * kGiB) << text;
  }
  put("proc/meminfo", "nothing");
  EXPECT_EQ(size(), 0u);
}

TEST(MemorySize, ThisMachineHasSome) { EXPECT_GT(memory_size(), size_t{1} << 20); }

}  // namespace
}  // namespace larder
