// bench_phases THREADS: one thread after the other allocates much and frees nearly all of it.
//
// Behaves like a program whose phases run on different threads of a pool: load on one, index on the
// next, and so on, with the threads alive throughout. Under glibc memory is not shared between
// arenas, and an arena shrinks only at its top, so each phase adds its own peak to the process:
// the blow-up that tcmalloc's documentation holds against it. Peak and idle memory are the figures;
// the best is one phase's worth.

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

// One block in kKeep outlives its phase, like results.
constexpr std::size_t kKeep = 2000;

std::size_t pick_size(bench::Random& random) {
  return random.below(10) < 9 ? 16 + random.below(240) : 256 + random.below(3840);
}

std::vector<void*> run_phase(std::size_t bytes, std::uint64_t seed) {
  bench::Random random(seed);
  std::vector<void*> blocks;
  std::vector<void*> kept;
  for (std::size_t total = 0; total < bytes;) {
    const std::size_t size = pick_size(random);
    blocks.push_back(bench::checked(std::malloc(size)));
    bench::touch_pages(blocks.back(), size);
    bench::touch_ends(blocks.back(), size);
    total += size;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % kKeep == 0) {
      kept.push_back(blocks[i]);
    } else {
      std::free(blocks[i]);
    }
  }
  return kept;
}

struct Turns {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t now = 0;
};

// Waits for its turn, works, and stays until all have.
void take_part(Turns& turns, std::size_t mine, std::size_t last, std::size_t bytes) {
  std::unique_lock lock(turns.mutex);
  turns.changed.wait(lock, [&] { return turns.now == mine; });
  const std::vector<void*> kept = run_phase(bytes, mine + 1);
  ++turns.now;
  turns.changed.notify_all();
  turns.changed.wait(lock, [&] { return turns.now == last; });
  for (void* block : kept) std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t bytes = bench::work(64 * bench::kMiB);
  Turns turns;
  std::vector<std::thread> lines;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < threads; ++i) {
    lines.emplace_back(take_part, std::ref(turns), i, threads + 1, bytes);
  }
  std::unique_lock lock(turns.mutex);
  turns.changed.wait(lock, [&] { return turns.now == threads; });
  // All phases are over, and all threads still run: the state of an idle pool.
  watch.report(threads * bytes / bench::kKiB);
  ++turns.now;
  lock.unlock();
  turns.changed.notify_all();
  for (auto& line : lines) line.join();
  return 0;
}
