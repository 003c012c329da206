#include "os/lock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace larder {
namespace {

TEST(Lock, ExcludesAndKnowsItsHolder) {
  Lock lock;
  long counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50000; ++i) {
        LockGuard guard(lock);
        ASSERT_TRUE(lock.held_by_me());
        ++counter;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(counter, 200000);
  EXPECT_FALSE(lock.held_by_me());
}

TEST(Lock, TheForkingThreadMayLockAgainAcrossFork) {
  Lock lock;
  ASSERT_TRUE(lock.before_fork(0));
  {
    LockGuard again(lock);
    LockGuard and_again(lock);
  }
  EXPECT_TRUE(lock.held_by_me());
  lock.after_fork_in_parent();
  EXPECT_FALSE(lock.held_by_me());
  std::thread([&] { LockGuard free_for_others(lock); }).join();
}

TEST(Lock, AForkFromASignalHandlerLeavesTheLockWithTheInterruptedCode) {
  Lock lock;
  lock.acquire();  // the interrupted code
  ASSERT_TRUE(lock.before_fork(0));
  lock.after_fork_in_child();
  EXPECT_TRUE(lock.held_by_me());
  lock.release();
  EXPECT_FALSE(lock.held_by_me());
}

TEST(Lock, AForkThatMayNotWaitGivesUp) {
  Lock lock;
  lock.acquire();
  std::thread([&] { EXPECT_FALSE(lock.before_fork(10)); }).join();
  lock.release();
  EXPECT_TRUE(lock.before_fork(10));
  EXPECT_TRUE(lock.held_for_fork());
  lock.after_fork_in_parent();
}

}  // namespace
}  // namespace larder
