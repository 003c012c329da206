// bench_rotation THREADS: sizes from 16 B to 128 KiB, a quarter of all blocks freed by a neighbour.
//
// Behaves like rptest of rpmalloc (Jansson): each thread runs loops of allocations over the whole
// range of sizes, evenly over the doublings, frees most of them itself in an order that is neither
// first nor last first, and hands the rest over to the next thread. Medium sizes decide here, which
// tests of small objects never reach.

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kBlocks = 400;
constexpr std::size_t kHanded = kBlocks / 4;
// Prime to kBlocks, so that stepping by it meets each block once.
constexpr std::size_t kStride = 7;

using Parcel = std::array<void*, kHanded>;

std::size_t pick_size(bench::Random& random) {
  const std::size_t base = std::size_t{16} << random.below(13);
  return base + random.below(base);
}

void open(Parcel* parcel) {
  if (parcel == nullptr) return;
  for (void* block : *parcel) std::free(block);
  std::free(parcel);
}

void run(std::atomic<Parcel*>& mine, std::atomic<Parcel*>& next, std::size_t loops,
         std::uint64_t seed) {
  bench::Random random(seed);
  std::array<void*, kBlocks> blocks;
  for (std::size_t loop = 0; loop < loops; ++loop) {
    for (void*& block : blocks) {
      const std::size_t size = pick_size(random);
      block = bench::checked(std::malloc(size));
      bench::touch_ends(block, size);
    }
    auto* parcel = static_cast<Parcel*>(bench::checked(std::malloc(sizeof(Parcel))));
    std::size_t handed = 0;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      void* block = blocks[i * kStride % kBlocks];
      if (i % 4 == 0) {
        (*parcel)[handed++] = block;
      } else {
        std::free(block);
      }
    }
    // Blocks that the neighbour has not fetched yet return.
    open(next.exchange(parcel, std::memory_order_acq_rel));
    open(mine.exchange(nullptr, std::memory_order_acq_rel));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t loops = bench::work(8000) / threads + 1;
  std::vector<std::atomic<Parcel*>> handed(threads);
  std::vector<std::thread> lines;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < threads; ++i) {
    lines.emplace_back(run, std::ref(handed[i]), std::ref(handed[(i + 1) % threads]), loops, i + 1);
  }
  for (auto& line : lines) line.join();
  for (auto& parcel : handed) open(parcel.load());
  watch.report(threads * loops * kBlocks);
  return 0;
}
