// bench_replace THREADS: a working set of 1,024 blocks, random ones replaced, inverse-square sizes.
//
// Behaves like glibc's own bench-malloc-thread: sizes from 4 bytes to 32 KiB whose likelihood falls
// with the square of the size, each thread on its own blocks. All memory is local and warm: it
// shows the plain path over many classes at once, and whether threads that share nothing slow each
// other.

#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kBlocks = 1024;
constexpr std::size_t kSizes = 8192;
constexpr double kSmallest = 4;
constexpr double kLargest = 32768;

// Sizes are drawn beforehand: the loop measures the allocator.
std::vector<std::uint16_t> draw_sizes(std::uint64_t seed) {
  bench::Random random(seed);
  std::vector<std::uint16_t> sizes(kSizes);
  for (auto& size : sizes) {
    const double uniform = static_cast<double>(random.below(1u << 30)) / (1u << 30);
    size =
        static_cast<std::uint16_t>(1 / (1 / kSmallest + uniform * (1 / kLargest - 1 / kSmallest)));
  }
  return sizes;
}

void run(std::size_t turns, std::uint64_t seed) {
  const std::vector<std::uint16_t> sizes = draw_sizes(seed);
  bench::Random random(seed + 1000);
  std::vector<void*> blocks(kBlocks, nullptr);
  for (std::size_t i = 0; i < turns; ++i) {
    void*& block = blocks[random.below(kBlocks)];
    std::free(block);
    const std::size_t size = sizes[i % kSizes];
    block = bench::checked(std::malloc(size));
    bench::touch_ends(block, size);
  }
  for (void* block : blocks) std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t turns = bench::work(30'000'000) / threads + 1;
  const bench::Stopwatch watch;
  std::vector<std::thread> lines;
  for (std::size_t i = 0; i < threads; ++i) lines.emplace_back(run, turns, i + 1);
  for (auto& line : lines) line.join();
  watch.report(threads * turns);
  return 0;
}
