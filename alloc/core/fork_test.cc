#include "core/fork.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/page_heap.h"
#include "core/registry.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"

namespace larder {
namespace {

// The child's exit status; -1 if a signal killed it. An alarm ends a hang.
template <typename Body>
int in_child(Body body) {
  pid_t pid = fork();
  if (pid == 0) {
    alarm(900);
    _exit(body());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int allocate_everything() {
  for (size_t size = 1; size < (size_t{8} << 20); size += size / 2 + 1) {
    void* p = larder_malloc(size);
    if (p == nullptr) return 1;
    memset(p, 1, size);
    larder_free(p);
  }
  return 0;
}

TEST(Fork, TheChildAllocatesAndFreesItsParentsObjects) {
  std::vector<void*> objects;
  for (int i = 0; i < 1000; ++i) objects.push_back(larder_malloc(size_t(i)));
  EXPECT_EQ(in_child([&] {
              for (void* p : objects) larder_free(p);
              page_heap.check();
              return allocate_everything();
            }),
            0);
  for (void* p : objects) larder_free(p);
}

TEST(Fork, TheChildReclaimsSlabsOfAbandonedHeaps) {
  std::atomic<int> stage{0};
  std::vector<void*> theirs;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) theirs.push_back(larder_malloc(40));
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  ThreadHeap* owner = page_map.find(theirs[0])->owner();
  EXPECT_EQ(in_child([&] {
              if (!owner->registered.orphaned) return 10;
              for (void* p : theirs) larder_free(p);
              remote_flush(thread_state.heap);
              if (page_map.find(theirs[0])->owner() != thread_state.heap) return 11;
              return allocate_everything();
            }),
            0);
  EXPECT_FALSE(owner->registered.orphaned);
  stage = 2;
  other.join();
  for (void* p : theirs) larder_free(p);
}

TEST(Fork, NoChildHangsOrCrashesWhileThreadsAllocate) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&stop, t] {
      std::vector<void*> mine;
      for (unsigned i = 0; !stop; ++i) {
        mine.push_back(larder_malloc((i * 37u + unsigned(t)) % 5000));
        if (mine.size() < 100) continue;
        for (void* p : mine) larder_free(p);
        mine.clear();
        if (i % 64 == 0) larder_free(larder_malloc(100000 + i % 1000));
      }
      for (void* p : mine) larder_free(p);
    });
  for (int i = 0; i < 50; ++i) ASSERT_EQ(in_child(allocate_everything), 0);
  stop = true;
  for (auto& t : threads) t.join();
}

TEST(Fork, AChildsChildAndItsThreads) {
  EXPECT_EQ(in_child([] {
              return in_child([] {
                int result = 1;
                std::thread([&] { result = allocate_everything(); }).join();
                return result;
              });
            }),
            0);
}

}  // namespace
}  // namespace larder
