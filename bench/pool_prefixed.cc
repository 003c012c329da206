// bench_pool_prefixed fixed|mixed: the pool's benchmark on malloc and on larder_malloc, in turns.
//
// Is the published comparison of a concurrent memory pool: the same rounds as bench_pool's, once by
// malloc and once by the pool's own names, in one process. Here the pool is liblarder_prefixed.a,
// linked in; malloc is the system's, or what LD_PRELOAD puts in its place. The two sides alternate,
// with a new order each time, so that neither always finds the machine as the other left it.

#include <larder/larder_malloc.h>

#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kRounds = 10;
constexpr std::size_t kObjects = 10'000;

struct System {
  static void* allocate(std::size_t size) { return std::malloc(size); }
  static void release(void* block) { std::free(block); }
};

struct Prefixed {
  static void* allocate(std::size_t size) { return larder_malloc(size); }
  static void release(void* block) { larder_free(block); }
};

// The list of the objects is the system's on both sides, and made once.
template <typename Side>
void run_rounds(std::vector<void*>& objects, bool fixed) {
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kObjects; ++i) {
      const std::size_t size = fixed ? 16 : (16 + i) % 8192 + 1;
      objects[i] = bench::checked(Side::allocate(size));
      bench::touch_ends(objects[i], size);
    }
    for (void* object : objects) Side::release(object);
  }
}

template <typename Side>
double run_threads(std::vector<std::vector<void*>>& lists, bool fixed) {
  const double start = bench::Stopwatch::seconds();
  std::vector<std::thread> threads;
  for (auto& list : lists) threads.emplace_back(run_rounds<Side>, std::ref(list), fixed);
  for (auto& thread : threads) thread.join();
  return bench::Stopwatch::seconds() - start;
}

}  // namespace

int main(int argc, char** argv) {
  const bool fixed = argc > 1 && std::strcmp(argv[1], "fixed") == 0;
  if (!fixed && (argc < 2 || std::strcmp(argv[1], "mixed") != 0)) {
    std::fprintf(stderr, "usage: bench_pool_prefixed fixed|mixed\n");
    return 2;
  }
  const std::size_t repeats = bench::work(fixed ? 60 : 4);
  std::vector<std::vector<void*>> lists(kThreads, std::vector<void*>(kObjects));
  bench::Random random(17);
  double system_seconds = 0;
  double prefixed_seconds = 0;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < repeats; ++i) {
    const bool system_first = random.below(2) == 0;
    if (system_first) system_seconds += run_threads<System>(lists, fixed);
    prefixed_seconds += run_threads<Prefixed>(lists, fixed);
    if (!system_first) system_seconds += run_threads<System>(lists, fixed);
  }
  char extra[128];
  std::snprintf(extra, sizeof(extra),
                "\"malloc_seconds\": %.6f, \"prefixed_seconds\": %.6f, \"speedup\": %.3f, ",
                system_seconds, prefixed_seconds, system_seconds / prefixed_seconds);
  watch.report(2 * repeats * kThreads * kRounds * kObjects, extra);
  return 0;
}
