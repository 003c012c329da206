// bench_cycles THREADS: cycles of mixed sizes, freed partly in and partly against the order made.
//
// Behaves like sh6bench and sh8bench (MicroQuill's SmartHeap tests): each cycle allocates objects
// of 1 to 1,000 bytes, small ones far more often, in runs of equal size; a part is freed at once
// from the newest, a part from the oldest, and the rest lives into the next cycle. With more
// threads a neighbour frees what is left over.

#include <mutex>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kObjects = 5000;

// Blocks that a thread leaves for the next one in the ring.
struct Leftovers {
  std::mutex mutex;
  std::vector<void*> objects;
};

void allocate(std::vector<void*>& objects, bench::Random& random) {
  while (objects.size() < kObjects) {
    const std::size_t size = 1 + random.below(1 + random.below(1 + random.below(1000)));
    for (std::size_t run = 1 + random.below(40); run > 0 && objects.size() < kObjects; --run) {
      objects.push_back(bench::checked(std::malloc(size)));
      bench::touch_ends(objects.back(), size);
    }
  }
}

void free_all(const std::vector<void*>& objects) {
  for (void* object : objects) std::free(object);
}

void run(Leftovers& mine, Leftovers& next, std::size_t cycles, std::uint64_t seed) {
  bench::Random random(seed);
  std::vector<void*> objects;
  std::vector<void*> taken;
  objects.reserve(kObjects);
  for (std::size_t cycle = 0; cycle < cycles; ++cycle) {
    allocate(objects, random);
    for (std::size_t i = 0; i < kObjects / 3; ++i) {
      std::free(objects.back());
      objects.pop_back();
    }
    for (std::size_t i = 0; i < kObjects / 3; ++i) std::free(objects[i]);
    objects.erase(objects.begin(), objects.begin() + kObjects / 3);
    {
      // Blocks that the neighbour has not fetched yet return, so that they do not accumulate.
      const std::scoped_lock lock(next.mutex);
      taken.swap(next.objects);
      next.objects.assign(objects.begin() + kObjects / 6, objects.end());
    }
    objects.resize(kObjects / 6);
    free_all(taken);
    taken.clear();
    {
      const std::scoped_lock lock(mine.mutex);
      taken.swap(mine.objects);
    }
    free_all(taken);
    taken.clear();
  }
  free_all(objects);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t cycles = bench::work(8000) / threads + 1;
  std::vector<Leftovers> leftovers(threads);
  std::vector<std::thread> lines;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < threads; ++i) {
    lines.emplace_back(run, std::ref(leftovers[i]), std::ref(leftovers[(i + 1) % threads]), cycles,
                       i + 1);
  }
  for (auto& line : lines) line.join();
  for (auto& left : leftovers) free_all(left.objects);
  watch.report(threads * cycles * kObjects * 5 / 6);
  return 0;
}
