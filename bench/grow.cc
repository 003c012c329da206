// bench_grow factor|step|strings: blocks that grow by realloc.
//
// Behaves like the realloc complaint of 1999 that every growing buffer repeats: one block by
// x 1.5 to 256 MiB (factor), by + 4,096 to 64 MiB (step), or many strings by a few bytes at a
// time to some kilobytes (strings). An allocator that copies pays in time and in peak memory.

#include "workload.h"

namespace {

std::size_t grow_one(std::size_t limit, bool by_factor) {
  std::size_t steps = 0;
  std::size_t size = 64;
  void* block = bench::checked(std::malloc(size));
  while (size < limit) {
    const std::size_t larger = by_factor ? size + size / 2 : size + 4096;
    block = bench::checked(std::realloc(block, larger));
    bench::touch_pages(static_cast<char*>(block) + size, larger - size);
    size = larger;
    ++steps;
  }
  std::free(block);
  return steps;
}

std::size_t grow_strings() {
  constexpr std::size_t kStrings = 1000;
  static char* strings[kStrings];
  static std::size_t sizes[kStrings];
  bench::Random random(3);
  std::size_t steps = 0;
  for (; steps < 400'000; ++steps) {
    const std::size_t i = random.below(kStrings);
    if (sizes[i] > 8000) {
      std::free(strings[i]);
      strings[i] = nullptr;
      sizes[i] = 0;
    }
    const std::size_t more = 1 + random.below(60);
    strings[i] = static_cast<char*>(bench::checked(std::realloc(strings[i], sizes[i] + more)));
    std::memset(strings[i] + sizes[i], 's', more);
    sizes[i] += more;
  }
  for (std::size_t i = 0; i < kStrings; ++i) {
    std::free(strings[i]);
    strings[i] = nullptr;
    sizes[i] = 0;
  }
  return steps;
}

}  // namespace

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "";
  const bench::Stopwatch watch;
  std::size_t steps = 0;
  // A fraction of the work is a smaller block, not a fraction of an iteration.
  const double scale = bench::scale();
  const auto limit = [&](std::size_t usual) {
    return scale < 1 ? static_cast<std::size_t>(static_cast<double>(usual) * scale) + 8192 : usual;
  };
  if (std::strcmp(kind, "factor") == 0) {
    for (std::size_t i = bench::work(5); i > 0; --i)
      steps += grow_one(limit(256 * bench::kMiB), true);
  } else if (std::strcmp(kind, "step") == 0) {
    for (std::size_t i = bench::work(6); i > 0; --i)
      steps += grow_one(limit(64 * bench::kMiB), false);
  } else if (std::strcmp(kind, "strings") == 0) {
    for (std::size_t i = bench::work(20); i > 0; --i) steps += grow_strings();
  } else {
    std::fprintf(stderr, "usage: bench_grow factor|step|strings\n");
    return 2;
  }
  watch.report(steps);
  return 0;
}
