// bench_decimate MIB LARGEST [pulse | work]: much memory in blocks of mixed sizes, nine tenths
// freed at random.
//
// Behaves like a cache after a flush or a server after its busiest hour, and like the fragmentation
// experiment of Robson (1977) in its random form: what is left lies all over the heap. The figure
// is the memory that is still resident two seconds later (BENCH_IDLE=2), against a tenth of the
// peak. With blocks of up to 4 KiB hardly a slab becomes free, only pages within slabs; with blocks
// of up to 64 KiB most of the memory can be purged. Then nothing happens, or a thousand blocks are
// allocated and freed every 50 ms (pulse), or without a pause (work: its time is measured alone).

#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kSmallest = 16;

// As many blocks in each doubling: most are small, most bytes are in larger ones.
class Sizes {
 public:
  explicit Sizes(std::size_t largest) {
    for (std::size_t base = kSmallest; base < largest; base *= 2) {
      ++doublings_;
      sum_of_means_ += base + base / 2;
    }
  }
  std::size_t mean() const { return sum_of_means_ / doublings_; }
  std::size_t pick(bench::Random& random) const {
    const std::size_t base = kSmallest << random.below(doublings_);
    return base + random.below(base);
  }

 private:
  std::size_t doublings_ = 0;
  std::size_t sum_of_means_ = 0;
};

void beat(const Sizes& sizes, bench::Random& random) {
  void* blocks[1000];
  for (void*& block : blocks) {
    const std::size_t size = sizes.pick(random);
    block = bench::checked(std::malloc(size));
    bench::touch_ends(block, size);
  }
  for (void* block : blocks) std::free(block);
}

// Only if idle memory is measured, because it takes time.
void pulse(const Sizes& sizes, bench::Random& random) {
  const double end = bench::Stopwatch::seconds() + bench::idle_seconds();
  while (bench::Stopwatch::seconds() < end) {
    beat(sizes, random);
    usleep(50'000);
  }
}

std::size_t work(const Sizes& sizes, bench::Random& random) {
  const std::size_t beats = bench::work(50'000);
  for (std::size_t i = 0; i < beats; ++i) beat(sizes, random);
  return beats * 1000;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = bench::work(bench::number(argc, argv, 1, "MIB") * bench::kMiB);
  const std::size_t largest = bench::number(argc, argv, 2, "LARGEST size in bytes");
  const bool pulsing = argc > 3 && std::strcmp(argv[3], "pulse") == 0;
  const bool working = argc > 3 && std::strcmp(argv[3], "work") == 0;
  if (largest <= kSmallest || (argc > 3 && !pulsing && !working)) {
    std::fprintf(stderr, "usage: bench_decimate MIB LARGEST [pulse | work], LARGEST above %zu\n",
                 kSmallest);
    return 2;
  }
  const Sizes sizes(largest);
  bench::Random random(11);
  std::vector<void*> blocks;
  // A list that grew would leave blocks of its own behind.
  blocks.reserve(bytes / sizes.mean() * 11 / 10 + 1000);
  const bench::Stopwatch watch;
  for (std::size_t total = 0; total < bytes;) {
    const std::size_t size = sizes.pick(random);
    blocks.push_back(bench::checked(std::malloc(size)));
    std::memset(blocks.back(), 1, size);
    total += size;
  }
  for (std::size_t i = blocks.size() - 1; i > 0; --i) {
    std::swap(blocks[i], blocks[random.below(i + 1)]);
  }
  const std::size_t freed = blocks.size() / 10 * 9;
  for (std::size_t i = 0; i < freed; ++i) std::free(blocks[i]);
  if (pulsing) pulse(sizes, random);
  if (working) {
    const bench::Stopwatch beats;
    beats.report(work(sizes, random));
  } else {
    watch.report(blocks.size());
  }
  for (std::size_t i = freed; i < blocks.size(); ++i) std::free(blocks[i]);
  return 0;
}
