// bench_lifetimes: random sizes and lifetimes in one thread, with a long-lived part.
//
// Behaves like the synthetic traces of Wilson et al.'s survey (1995): most objects are small and
// die young, some are large, a few live on. Time shows mixed classes, peak memory shows
// fragmentation.

#include "workload.h"

namespace {

// Three populations by lifetime: one slot is replaced on average once per its table's length.
constexpr std::size_t kYoung = 500;
constexpr std::size_t kMiddle = 20'000;
constexpr std::size_t kOld = 200'000;

std::size_t pick_size(bench::Random& random) {
  const std::size_t kind = random.below(1000);
  if (kind < 700) return 8 + random.below(120);
  if (kind < 950) return 128 + random.below(900);
  if (kind < 997) return 1024 + random.below(15 * bench::kKiB);
  return 16 * bench::kKiB + random.below(240 * bench::kKiB);
}

void replace(void*& slot, bench::Random& random) {
  std::free(slot);
  const std::size_t size = pick_size(random);
  slot = bench::checked(std::malloc(size));
  bench::touch_pages(slot, size);
}

}  // namespace

int main() {
  static void* young[kYoung];
  static void* middle[kMiddle];
  static void* old[kOld];
  const std::size_t operations = bench::work(8'000'000);
  bench::Random random(7);
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i) {
    const std::size_t kind = random.below(100);
    if (kind < 80) {
      replace(young[random.below(kYoung)], random);
    } else if (kind < 97) {
      replace(middle[random.below(kMiddle)], random);
    } else {
      replace(old[random.below(kOld)], random);
    }
  }
  watch.report(operations);
  return 0;
}
