// fork in a loop while other threads use the allocator; each child allocates, frees other threads'
// blocks, and exits.
// Usage: fork_storm busy|sleepy [FORKS [THREADS]]
//
// Threads publish filled blocks in shared slots; a block in a slot is always complete, so a child
// may verify and free it. A child has ten seconds.

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kSlots = 1024;

struct Block {
  size_t size;
  uint64_t key;
  unsigned char bytes[];
};

std::atomic<Block*> slots[kSlots];
std::atomic<bool> stop{false};
std::atomic<uint64_t> operations{0};
bool sleepy = false;

size_t pick_size(Random& random) {
  const size_t kind = random.below(1000);
  if (kind < 2) return random.below(3 * kMiB);
  if (kind < 40) return random.below(100 * kKiB);
  return random.below(700);
}

Block* make_block(Random& random) {
  const size_t size = pick_size(random);
  auto* block = static_cast<Block*>(malloc(sizeof(Block) + size));
  CHECK(block != nullptr);
  block->size = size;
  block->key = pattern_key(block, size);
  fill_pattern(block->bytes, size, block->key);
  return block;
}

void verify_and_free(Block* block) {
  if (block == nullptr) return;
  CHECK(block->key == pattern_key(block, block->size));
  check_pattern(block->bytes, block->size, block->size, block->key);
  free(block);
}

void* run_thread(void* argument) {
  Random random(reinterpret_cast<uintptr_t>(argument) + 1);
  uint64_t done = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    verify_and_free(slots[random.below(kSlots)].exchange(make_block(random)));
    free(realloc(malloc(random.below(2000)), random.below(4000) + 1));
    if (++done % 64 == 0) operations.fetch_add(64, std::memory_order_relaxed);
    if (sleepy) sleep_ms(5 + static_cast<long>(random.below(20)));
  }
  return nullptr;
}

[[noreturn]] void child_body(uint64_t number) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  watchdog();
  Random random(number * 77 + 5);
  Block* mine[64];
  for (auto& block : mine) block = make_block(random);
  for (int i = 0; i < 48; ++i) {
    verify_and_free(slots[random.below(kSlots)].exchange(nullptr));
  }
  for (auto& block : mine) verify_and_free(block);
  void* zeroed = calloc(1, 5000);
  check_zero(zeroed, 5000);
  void* grown = realloc(zeroed, 300 * kKiB);
  CHECK(grown != nullptr);
  check_zero(grown, 5000);
  free(grown);
  if (number % 16 == 0) exit(0);  // exit handlers and stdio run in some of them
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  begin("fork_storm");
  CHECK_MSG(argc >= 2, "usage: fork_storm busy|sleepy [FORKS [THREADS]]");
  sleepy = strcmp(argv[1], "sleepy") == 0;
  const size_t forks = argument(argc, argv, 2, sleepy ? 100000 : 2000);
  const size_t threads = argument(argc, argv, 3, 16);
  pthread_t handles[64];
  CHECK(threads <= 64);
  for (size_t i = 0; i < threads; ++i) {
    CHECK(pthread_create(&handles[i], nullptr, run_thread, reinterpret_cast<void*>(i)) == 0);
  }
  const double start = seconds_now();
  double slowest_fork = 0;
  double fork_time = 0;
  for (size_t i = 0; i < forks; ++i) {
    const double before = seconds_now();
    const pid_t child = fork();
    if (child == 0) child_body(i);
    CHECK_MSG(child > 0, "fork %zu failed", i);
    const double took = seconds_now() - before;
    fork_time += took;
    if (took > slowest_fork) slowest_fork = took;
    int status = 0;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "child %zu ended with status %#x (signal %d)", i, status, WTERMSIG(status));
  }
  const double elapsed = seconds_now() - start;
  stop.store(true);
  for (size_t i = 0; i < threads; ++i) CHECK(pthread_join(handles[i], nullptr) == 0);
  for (auto& slot : slots) verify_and_free(slot.exchange(nullptr));
  say("%s: %zu forks with %zu threads in %.1f s; fork %.2f ms on average, %.1f ms at most; %lu "
      "operations meanwhile",
      argv[1], forks, threads, elapsed, fork_time * 1e3 / static_cast<double>(forks),
      slowest_fork * 1e3, static_cast<unsigned long>(operations.load()));
  return 0;
}
