// bench_threads_short: thousands of threads that live for a few hundred allocations.
//
// Behaves like thread-per-request servers: what a thread's first allocation and its end cost the
// allocator, and whether caches of threads that have ended come back.

#include <thread>
#include <vector>

#include "workload.h"

namespace {

void run_thread(std::uint64_t seed) {
  bench::Random random(seed);
  void* blocks[64] = {};
  for (int i = 0; i < 300; ++i) {
    void*& block = blocks[random.below(64)];
    std::free(block);
    const std::size_t size = 16 + random.below(2000);
    block = bench::checked(std::malloc(size));
    bench::touch_ends(block, size);
  }
  for (void* block : blocks) std::free(block);
}

}  // namespace

int main() {
  constexpr std::size_t kAtOnce = 4;
  const std::size_t rounds = bench::work(1000);
  const bench::Stopwatch watch;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kAtOnce; ++i) threads.emplace_back(run_thread, round * kAtOnce + i);
    for (auto& thread : threads) thread.join();
  }
  watch.report(rounds * kAtOnce * 300);
  return 0;
}
