// bench_aligned: blocks aligned to cache lines and pages, among ordinary ones.
//
// Behaves like numeric, video and database code: vectors for SIMD at 32 and 64 bytes, buffers for
// direct I/O at 4,096, objects over-aligned against false sharing. An allocator that aligns by
// allocating more and cutting pays in memory, one with a slow path of its own in time.

#include "workload.h"

namespace {

constexpr std::size_t kSlots = 1000;

void* make(bench::Random& random) {
  const std::size_t kind = random.below(100);
  void* block = nullptr;
  std::size_t size;
  if (kind < 40) {
    size = 8 + random.below(250);
    block = std::malloc(size);
  } else if (kind < 90) {
    const std::size_t alignment = kind < 65 ? 32 : 64;
    size = (1 + random.below(16)) * alignment;
    block = std::aligned_alloc(alignment, size);
  } else {
    size = (1 + random.below(4)) * 4096;
    if (posix_memalign(&block, 4096, size) != 0) block = nullptr;
  }
  bench::touch_ends(bench::checked(block), size);
  return block;
}

}  // namespace

int main() {
  static void* slots[kSlots];
  const std::size_t turns = bench::work(3'000'000);
  bench::Random random(13);
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < turns; ++i) {
    void*& slot = slots[random.below(kSlots)];
    std::free(slot);
    slot = make(random);
  }
  watch.report(turns);
  return 0;
}
