// bench_large malloc|calloc THREADS: blocks of 64 KiB to 8 MiB, few alive, replaced at random.
//
// Behaves like image, video and database buffers, and like the large end of mimalloc-bench's
// malloc-large. All pages are used, so an allocator that unmaps memory at each free pays for every
// page again, and one that caches all of it pays in resident memory. calloc adds the cost of
// clearing: memory that is known to be zero needs none.

#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kSmallest = 64 * bench::kKiB;
constexpr unsigned kDoublings = 7;
constexpr std::size_t kAlive = 16;

// As many blocks between 64 and 128 KiB as between 4 and 8 MiB.
std::size_t pick_size(bench::Random& random) {
  const std::size_t base = kSmallest << random.below(kDoublings);
  return base + random.below(base);
}

void run(bool zeroed, std::size_t turns, std::uint64_t seed) {
  bench::Random random(seed);
  void* blocks[kAlive] = {};
  for (std::size_t i = 0; i < turns; ++i) {
    void*& block = blocks[random.below(kAlive)];
    std::free(block);
    const std::size_t size = pick_size(random);
    block = bench::checked(zeroed ? std::calloc(1, size) : std::malloc(size));
    bench::touch_pages(block, size);
  }
  for (void* block : blocks) std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  const bool zeroed = argc > 1 && std::strcmp(argv[1], "calloc") == 0;
  if (!zeroed && (argc < 2 || std::strcmp(argv[1], "malloc") != 0)) {
    std::fprintf(stderr, "usage: bench_large malloc|calloc THREADS\n");
    return 2;
  }
  const std::size_t threads = bench::number(argc, argv, 2, "THREADS");
  const std::size_t turns = bench::work(6000) / threads + 1;
  const bench::Stopwatch watch;
  std::vector<std::thread> lines;
  for (std::size_t i = 0; i < threads; ++i) lines.emplace_back(run, zeroed, turns, i + 1);
  for (auto& line : lines) line.join();
  watch.report(threads * turns);
  return 0;
}
