// bench_sweep SIZE untouched|touched: time of one malloc and free of SIZE bytes, in steady state.
//
// The NetBSD experiment of 1999 (`foo = malloc(size); free(foo)`, 50 B to 50 MB), for `larder
// sweep`. The number of pairs is chosen by the time they take, BENCH_SCALE times 50 ms. Pairs
// before the measured batch warm caches and the thresholds that some allocators adapt.

#include <algorithm>

#include "workload.h"

namespace {

constexpr double kBudgetSeconds = 0.05;

double now() {
  std::timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <bool kTouched>
double seconds_of(std::size_t size, std::size_t pairs) {
  const double start = now();
  for (std::size_t i = 0; i < pairs; ++i) {
    void* block = bench::opaque(bench::checked(std::malloc(size)));
    if constexpr (kTouched) bench::touch_pages(block, size);
    std::free(block);
  }
  return now() - start;
}

struct Result {
  std::size_t pairs;
  double seconds;
};

template <bool kTouched>
Result measure(std::size_t size) {
  const double budget = kBudgetSeconds * bench::scale();
  // Batches grow until one takes a tenth of the budget; from that the number that fills it is
  // computed.
  std::size_t pairs = 4;
  double seconds = seconds_of<kTouched>(size, pairs);
  while (seconds < budget / 10) {
    pairs *= 4;
    seconds = seconds_of<kTouched>(size, pairs);
  }
  const double fitting = static_cast<double>(pairs) * budget / seconds;
  pairs = std::max(pairs, static_cast<std::size_t>(fitting));
  return {pairs, seconds_of<kTouched>(size, pairs)};
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = bench::number(argc, argv, 1, "SIZE in bytes");
  const char* mode = argc > 2 ? argv[2] : "";
  Result result;
  if (std::strcmp(mode, "untouched") == 0) {
    result = measure<false>(size);
  } else if (std::strcmp(mode, "touched") == 0) {
    result = measure<true>(size);
  } else {
    std::fprintf(stderr, "argument 2 must be untouched or touched\n");
    return 2;
  }
  std::printf("{\"operations\": %zu, \"seconds\": %.6f, \"ns_per_operation\": %.3f}\n",
              result.pairs, result.seconds,
              result.seconds * 1e9 / static_cast<double>(result.pairs));
  return 0;
}
