// bench_pair SIZE: malloc and free of one block, repeatedly.
//
// Behaves like the NetBSD experiment of 1999 (`foo = malloc(size); free(foo)` from 50 B to
// 50 MB). The cost should not grow with the size; where it does, the allocator goes to the system.

#include "workload.h"

namespace {

// About a second on a usual allocator; beyond its largest cached size each pair may be an mmap and
// a munmap.
std::size_t usual_pairs(std::size_t size) {
  if (size > 32 * bench::kMiB) return 60'000;
  return size > bench::kMiB ? 2'000'000 : 40'000'000;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = bench::number(argc, argv, 1, "SIZE in bytes");
  const std::size_t pairs = bench::work(usual_pairs(size));
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < pairs; ++i) {
    void* block = bench::opaque(bench::checked(std::malloc(size)));
    bench::touch_ends(block, size);
    std::free(block);
  }
  watch.report(pairs);
  return 0;
}
