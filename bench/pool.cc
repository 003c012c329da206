// bench_pool fixed|mixed: 4 threads, 10 rounds each of 10,000 objects allocated and then freed.
//
// Is the published benchmark of a concurrent memory pool on tcmalloc's design: objects of 16 bytes,
// or of (16 + i) % 8192 + 1 bytes. The whole is repeated so that it can be timed.

#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kRounds = 10;
constexpr std::size_t kObjects = 10'000;

void run_rounds(bool fixed) {
  std::vector<void*> objects;
  objects.reserve(kObjects);
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kObjects; ++i) {
      const std::size_t size = fixed ? 16 : (16 + i) % 8192 + 1;
      objects.push_back(bench::checked(std::malloc(size)));
      bench::touch_ends(objects.back(), size);
    }
    for (void* object : objects) std::free(object);
    objects.clear();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool fixed = argc > 1 && std::strcmp(argv[1], "fixed") == 0;
  if (!fixed && (argc < 2 || std::strcmp(argv[1], "mixed") != 0)) {
    std::fprintf(stderr, "usage: bench_pool fixed|mixed\n");
    return 2;
  }
  const std::size_t repeats = bench::work(fixed ? 60 : 4);
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < repeats; ++i) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(run_rounds, fixed);
    for (auto& thread : threads) thread.join();
  }
  watch.report(repeats * kThreads * kRounds * kObjects);
  return 0;
}
