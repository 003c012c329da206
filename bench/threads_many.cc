// bench_threads_many THREADS: a thousand threads alive at once, each allocating now and then.
//
// Behaves like a thread-per-connection server. What a thread costs before it has done much, and
// whether the allocator's work or memory grows faster than the threads: caches of a fixed size for
// each thread do.

#include <barrier>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kSlots = 50;
constexpr std::size_t kReplacements = 100;

void serve(std::barrier<>& all, std::size_t requests, std::uint64_t seed) {
  bench::Random random(seed);
  void* slots[kSlots] = {};
  all.arrive_and_wait();
  for (std::size_t request = 0; request < requests; ++request) {
    for (std::size_t i = 0; i < kReplacements; ++i) {
      void*& slot = slots[random.below(kSlots)];
      std::free(slot);
      const std::size_t size = 16 + random.below(random.below(8) == 0 ? 4000 : 200);
      slot = bench::checked(std::malloc(size));
      bench::touch_ends(slot, size);
    }
    // Lets the others run, like a wait for the next request.
    std::this_thread::yield();
  }
  // No thread ends before the last one has allocated.
  all.arrive_and_wait();
  for (void* slot : slots) std::free(slot);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t requests = bench::work(60);
  std::barrier<> all(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::thread> lines;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < threads; ++i) {
    lines.emplace_back(serve, std::ref(all), requests, i + 1);
  }
  for (auto& line : lines) line.join();
  watch.report(threads * requests * kReplacements);
  return 0;
}
