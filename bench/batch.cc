// bench_batch lifo|fifo|random SIZE: 1,000 blocks allocated, then freed in the given order.
//
// Behaves like the allocation phase of a request or a parse: more objects than a free list's hot
// end holds. LIFO favours stacks, FIFO favours slabs, random order is what real data give.

#include <utility>

#include "workload.h"

int main(int argc, char** argv) {
  constexpr std::size_t kBatch = 1000;
  const char* order = argc > 1 ? argv[1] : "";
  const std::size_t size = bench::number(argc, argv, 2, "SIZE in bytes");
  static void* blocks[kBatch];
  static std::size_t turn[kBatch];
  bench::Random random(1);
  for (std::size_t i = 0; i < kBatch; ++i) {
    turn[i] = std::strcmp(order, "lifo") == 0 ? kBatch - 1 - i : i;
  }
  if (std::strcmp(order, "random") == 0) {
    for (std::size_t i = kBatch - 1; i > 0; --i) std::swap(turn[i], turn[random.below(i + 1)]);
  } else if (std::strcmp(order, "lifo") != 0 && std::strcmp(order, "fifo") != 0) {
    std::fprintf(stderr, "usage: bench_batch lifo|fifo|random SIZE\n");
    return 2;
  }
  const std::size_t rounds = bench::work(size > 1000 ? 600 : 20'000);
  const bench::Stopwatch watch;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (auto& block : blocks) {
      block = bench::checked(std::malloc(size));
      bench::touch_ends(block, size);
    }
    for (std::size_t i : turn) std::free(blocks[i]);
  }
  watch.report(rounds * kBatch);
  return 0;
}
