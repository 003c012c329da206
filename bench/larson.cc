// bench_larson THREADS: a server whose worker threads pass their objects on when they end.
//
// Behaves like Larson and Krishnan's server simulation (1998): each worker replaces random ones of
// its 1,000 objects of 8 to 512 bytes; after a while a new thread takes over the same objects, so
// most frees are of memory that another thread, long ended, has allocated.

#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kObjects = 1000;
constexpr std::size_t kReplacements = 30'000;

struct Worker {
  void* objects[kObjects];
  bench::Random random{1};
};

std::size_t pick_size(bench::Random& random) { return 8 + random.below(505); }

void serve(Worker& worker) {
  for (std::size_t i = 0; i < kReplacements; ++i) {
    void*& object = worker.objects[worker.random.below(kObjects)];
    std::free(object);
    const std::size_t size = pick_size(worker.random);
    object = bench::checked(std::malloc(size));
    bench::touch_ends(object, size);
  }
}

// Each generation is a thread of its own and inherits the worker's objects.
void run_generations(Worker& worker, std::size_t generations) {
  for (std::size_t i = 0; i < generations; ++i) std::thread(serve, std::ref(worker)).join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = bench::number(argc, argv, 1, "THREADS");
  const std::size_t generations = bench::work(200);
  std::vector<Worker> workers(threads);
  // The first objects are all allocated here and shuffled over the workers.
  for (std::size_t w = 0; w < threads; ++w) workers[w].random = bench::Random(w + 1);
  for (std::size_t i = 0; i < threads * kObjects; ++i) {
    const std::size_t size = pick_size(workers[0].random);
    void* object = bench::checked(std::malloc(size));
    bench::touch_ends(object, size);
    workers[i % threads].objects[i / threads] = object;
  }
  const bench::Stopwatch watch;
  std::vector<std::thread> lines;
  for (auto& worker : workers) lines.emplace_back(run_generations, std::ref(worker), generations);
  for (auto& line : lines) line.join();
  watch.report(threads * generations * kReplacements);
  for (auto& worker : workers) {
    for (void* object : worker.objects) std::free(object);
  }
  return 0;
}
