// bench_decimate [MIB]: much memory in small blocks, nine tenths of them freed at random.
//
// Behaves like a cache after a flush or a server after its busiest hour, and like the fragmentation
// experiment of Robson (1977) in its random form: what is left lies all over the heap. The figure
// is the memory that is still resident two seconds later (BENCH_IDLE=2), against a tenth of the
// peak.

#include <vector>

#include "workload.h"

namespace {

// As many blocks in each doubling from 16 B to 4 KiB: most are small, most bytes are in larger
// ones.
constexpr std::size_t kMeanSize = 765;
std::size_t pick_size(bench::Random& random) {
  const std::size_t base = std::size_t{16} << random.below(8);
  return base + random.below(base);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t mib = argc > 1 ? bench::number(argc, argv, 1, "MIB") : 512;
  const std::size_t bytes = bench::work(mib * bench::kMiB);
  bench::Random random(11);
  std::vector<void*> blocks;
  // A list that grew would leave blocks of its own behind.
  blocks.reserve(bytes / kMeanSize * 11 / 10 + 1000);
  const bench::Stopwatch watch;
  for (std::size_t total = 0; total < bytes;) {
    const std::size_t size = pick_size(random);
    blocks.push_back(bench::checked(std::malloc(size)));
    std::memset(blocks.back(), 1, size);
    total += size;
  }
  for (std::size_t i = blocks.size() - 1; i > 0; --i) {
    std::swap(blocks[i], blocks[random.below(i + 1)]);
  }
  const std::size_t freed = blocks.size() / 10 * 9;
  for (std::size_t i = 0; i < freed; ++i) std::free(blocks[i]);
  watch.report(blocks.size());
  for (std::size_t i = freed; i < blocks.size(); ++i) std::free(blocks[i]);
  return 0;
}
