// bench_ttest THREADS LARGEST: every member of the family on random bins.
//
// Behaves like Wolfram Gloger's t-test1: each thread owns bins of blocks, fills and empties random
// bins with malloc, calloc, realloc and memalign, and ends after a while so that a new one starts.

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kBinBlocks = 100;
constexpr std::size_t kBins = 30;
constexpr std::size_t kActionsPerThread = 300;

void fill(void*& block, std::size_t largest, bench::Random& random) {
  const std::size_t kind = random.below(1024);
  const std::size_t size = 1 + random.below(largest);
  if (kind < 4) {
    std::free(block);
    block = memalign(std::size_t{16} << random.below(6), size);
  } else if (kind < 20) {
    std::free(block);
    block = std::calloc(1, size);
  } else if (kind < 100) {
    block = std::realloc(block, size);
  } else {
    std::free(block);
    block = std::malloc(size);
  }
  bench::touch_ends(bench::checked(block), size);
}

void run_one(std::size_t largest, std::uint64_t seed) {
  bench::Random random(seed);
  std::vector<void*> blocks(kBins * kBinBlocks, nullptr);
  for (std::size_t action = 0; action < kActionsPerThread; ++action) {
    void** bin = &blocks[random.below(kBins) * kBinBlocks];
    for (std::size_t i = 0; i < kBinBlocks; ++i)
      fill(bin[random.below(kBinBlocks)], largest, random);
    void** emptied = &blocks[random.below(kBins) * kBinBlocks];
    for (std::size_t i = 0; i < kBinBlocks / 2; ++i) {
      std::free(emptied[i]);
      emptied[i] = nullptr;
    }
  }
  for (void* block : blocks) std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t largest = bench::number(argc, argv, 2, "LARGEST size in bytes");
  // At least one life for each thread, however small the scale: fewer would be another cell.
  const std::size_t total = std::max(threads, bench::work(250));
  std::atomic<std::size_t> started{0};
  const bench::Stopwatch watch;
  std::vector<std::thread> lines;
  for (std::size_t i = 0; i < threads; ++i) {
    lines.emplace_back([&] {
      for (std::size_t n = started++; n < total; n = started++) {
        std::thread(run_one, largest, n + 1).join();
      }
    });
  }
  for (auto& line : lines) line.join();
  watch.report(total * kActionsPerThread * kBinBlocks);
  return 0;
}
