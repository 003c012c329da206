// What a process keeps after its threads have freed all that they had, and ended: hardly more than
// before. Usage: rss_threads SIZE: bytes of each object.

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kThreads = 4;
constexpr size_t kEachBytes = 6 * kMiB;
constexpr size_t kLimitKib = 2 * 1024;

size_t size;
pthread_barrier_t at_peak;

void* allocate_and_free(void*) {
  const size_t count = kEachBytes / size;
  auto** objects = static_cast<void**>(malloc(count * sizeof(void*)));
  CHECK(objects != nullptr);
  for (size_t i = 0; i < count; ++i) {
    objects[i] = malloc(size);
    CHECK(objects[i] != nullptr);
    memset(objects[i], 1, size);
  }
  pthread_barrier_wait(&at_peak);
  pthread_barrier_wait(&at_peak);
  for (size_t i = 0; i < count; ++i) free(objects[i]);
  free(objects);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  begin("rss_threads");
  size = argument(argc, argv, 1, 100);
  CHECK(pthread_barrier_init(&at_peak, nullptr, kThreads + 1) == 0);
  free(opaque(malloc(size)));
  const size_t before = rss_bytes() / kKiB;
  pthread_t threads[kThreads];
  for (pthread_t& thread : threads)
    CHECK(pthread_create(&thread, nullptr, allocate_and_free, nullptr) == 0);
  pthread_barrier_wait(&at_peak);
  const size_t peak = rss_bytes() / kKiB;
  pthread_barrier_wait(&at_peak);
  for (const pthread_t thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  const size_t after = rss_bytes() / kKiB;
  say("%zu KiB before, %zu at most, %zu after", before, peak, after);
  CHECK(peak >= before + kThreads * kEachBytes / kKiB * 9 / 10);
  CHECK_MSG(after <= before + kLimitKib, "%zu KiB kept, at most %zu allowed", after - before,
            kLimitKib);
  return 0;
}
