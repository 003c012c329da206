// bench_transfer THREADS: arrays of pointers, kept, dropped, and swapped between threads.
//
// Behaves like mstress (Leijen, 2019): each thread allocates, drops a part of what it holds, and
// swaps a block now and then for whatever another thread left in a shared place; then all threads
// end and new ones go on with what is there. Sizes double with falling likelihood, up to 256 KiB.
// Ownership of slabs and pages moves about: remote frees, abandoned memory, adoption.

#include <atomic>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kShared = 1000;
constexpr std::size_t kTurns = 30'000;
std::atomic<std::uint64_t*> g_shared[kShared];

// An array of words that starts with its length and holds a check of it throughout.
std::uint64_t* make(bench::Random& random) {
  std::size_t words = 1 + random.below(30);
  while (words < 32 * bench::kKiB && random.below(5) == 0) words *= 4;
  auto* array = static_cast<std::uint64_t*>(bench::checked(std::malloc((words + 1) * 8)));
  array[0] = words;
  for (std::size_t i = 1; i <= words; i += 8) array[i] = words ^ i;
  return array;
}

void drop(std::uint64_t* array) {
  if (array == nullptr) return;
  for (std::size_t i = 1; i <= array[0]; i += 8) {
    if (array[i] != (array[0] ^ i)) {
      std::fprintf(stderr, "a block of %zu words changed at word %zu\n",
                   static_cast<std::size_t>(array[0]), i);
      std::abort();
    }
  }
  std::free(array);
}

void run(std::uint64_t seed) {
  bench::Random random(seed);
  std::vector<std::uint64_t*> data;
  std::vector<std::uint64_t*> retained;
  for (std::size_t i = 0; i < kTurns; ++i) {
    const std::size_t kind = random.below(100);
    if (kind < 50) {
      (kind < 10 ? retained : data).push_back(make(random));
    } else if (kind < 75 && !data.empty()) {
      std::swap(data[random.below(data.size())], data.back());
      drop(data.back());
      data.pop_back();
    } else if (!data.empty()) {
      std::uint64_t*& mine = data[random.below(data.size())];
      mine = g_shared[random.below(kShared)].exchange(mine, std::memory_order_acq_rel);
    }
  }
  for (std::uint64_t* array : data) drop(array);
  for (std::uint64_t* array : retained) drop(array);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t generations = bench::work(40);
  const bench::Stopwatch watch;
  for (std::size_t generation = 0; generation < generations; ++generation) {
    std::vector<std::thread> lines;
    for (std::size_t i = 0; i < threads; ++i) {
      lines.emplace_back(run, generation * threads + i + 1);
    }
    for (auto& line : lines) line.join();
  }
  for (auto& shared : g_shared) drop(shared.exchange(nullptr));
  watch.report(threads * generations * kTurns);
  return 0;
}
