// Ten thousand threads that each allocate, free what a neighbour allocated, and wait.
// Usage: threads_many [THREADS]
//
// The same program with threads that allocate nothing is run first, in a child, so that the
// difference is the allocator's: stacks, thread blocks and kernel memory cancel out. Limits: a
// cache of one 16 KiB page a thread would be 160 MiB. Thread heaps are bounded by the processors (4
// each), so the surplus may not depend on the threads: 25 % over what is live, plus 24 MiB for the
// bounded heaps; once all is freed and trimmed, 24 MiB.

#include <pthread.h>
#include <sched.h>

#include <initializer_list>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kObjects = 24;
constexpr size_t kStackBytes = 64 * kKiB;
constexpr size_t kHeapsBytes = 24 * kMiB;

struct Figures {
  size_t started, live, freed, trimmed;
};

struct Shared {
  size_t threads = 0;
  bool allocate = false;
  pthread_barrier_t allocated, measured, freed, done;
  void*** slots = nullptr;
};

Shared shared;

size_t object_bytes(size_t thread, size_t i) { return 16 + (thread * 37 + i * 101) % 496; }

void* run_thread(void* argument) {
  const size_t self = reinterpret_cast<uintptr_t>(argument);
  if (shared.allocate) {
    auto** objects = static_cast<void**>(malloc(kObjects * sizeof(void*)));
    CHECK(objects != nullptr);
    for (size_t i = 0; i < kObjects; ++i) {
      objects[i] = malloc(object_bytes(self, i));
      CHECK(objects[i] != nullptr);
      memset(objects[i], static_cast<int>(self), object_bytes(self, i));
    }
    shared.slots[self] = objects;
  }
  pthread_barrier_wait(&shared.allocated);
  pthread_barrier_wait(&shared.measured);
  if (shared.allocate) {
    const size_t other = (self + shared.threads / 2 + 1) % shared.threads;
    void** objects = shared.slots[other];
    for (size_t i = 0; i < kObjects; ++i) {
      CHECK(*static_cast<unsigned char*>(objects[i]) == (other & 0xFF));
      free(objects[i]);
    }
    free(objects);
  }
  pthread_barrier_wait(&shared.freed);
  pthread_barrier_wait(&shared.done);
  return nullptr;
}

Figures run_all(size_t threads, bool allocate) {
  shared.threads = threads;
  shared.allocate = allocate;
  void* slots = mmap(nullptr, threads * sizeof(void**), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  void* ids = mmap(nullptr, threads * sizeof(pthread_t), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(slots != MAP_FAILED && ids != MAP_FAILED);
  shared.slots = static_cast<void***>(slots);
  auto* handles = static_cast<pthread_t*>(ids);
  const auto parties = static_cast<unsigned>(threads + 1);
  for (auto* barrier : {&shared.allocated, &shared.measured, &shared.freed, &shared.done}) {
    CHECK(pthread_barrier_init(barrier, nullptr, parties) == 0);
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  Figures figures;
  figures.started = rss_bytes();
  for (size_t i = 0; i < threads; ++i) {
    const int code =
        pthread_create(&handles[i], &attributes, run_thread, reinterpret_cast<void*>(i));
    CHECK_MSG(code == 0, "thread %zu of %zu could not be made: error %d", i, threads, code);
  }
  pthread_barrier_wait(&shared.allocated);
  figures.live = rss_bytes();
  pthread_barrier_wait(&shared.measured);
  pthread_barrier_wait(&shared.freed);
  figures.freed = rss_bytes();
  if (allocate) malloc_trim(0);
  figures.trimmed = rss_bytes();
  pthread_barrier_wait(&shared.done);
  for (size_t i = 0; i < threads; ++i) CHECK(pthread_join(handles[i], nullptr) == 0);
  return figures;
}

double above(size_t value, size_t base) { return mib(value) - mib(base); }

}  // namespace

int main(int argc, char** argv) {
  begin("threads_many");
  const size_t threads = argument(argc, argv, 1, 10000);
  void* shared_page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared_page != MAP_FAILED);
  auto* figures = static_cast<Figures*>(shared_page);
  in_child("idle threads", [&] { figures[0] = run_all(threads, false); });
  in_child("allocating threads", [&] { figures[1] = run_all(threads, true); });

  size_t requested = threads * kObjects * sizeof(void*);
  for (size_t t = 0; t < threads; ++t) {
    for (size_t i = 0; i < kObjects; ++i) requested += object_bytes(t, i);
  }
  const double idle = above(figures[0].live, figures[0].started);
  const double live = above(figures[1].live, figures[1].started) - idle;
  const double freed = above(figures[1].freed, figures[1].started) - idle;
  const double trimmed = above(figures[1].trimmed, figures[1].started) - idle;
  say("%zu threads: %.1f MiB without allocating; above that %.1f MiB with %.1f MiB live, %.1f "
      "after "
      "the frees, %.1f after malloc_trim",
      threads, idle, live, mib(requested), freed, trimmed);
  const double heaps = mib(kHeapsBytes);
  CHECK_MSG(live <= mib(requested) * 1.25 + heaps, "caches grow with the threads: %.1f MiB", live);
  CHECK_MSG(freed <= mib(requested) * 1.25 + heaps, "frees made it grow: %.1f MiB", freed);
  if (expects_larder()) {
    CHECK_MSG(trimmed <= heaps, "%.1f MiB stay in caches of waiting threads", trimmed);
  }
  return 0;
}
