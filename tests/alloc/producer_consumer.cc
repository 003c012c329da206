// Memory that changes threads: a producer that never frees with a consumer that never allocates,
// and phases of work that each run on another thread.
// Usage: producer_consumer [OBJECTS [PHASES]]
//
// Up to 1,024 objects (about 0.6 MiB) are in transit; resident memory may not depend on how many
// have passed. A finished phase's memory must be reused by the next one, whether its thread has
// ended or sleeps, and whichever thread freed it.

#include <pthread.h>
#include <semaphore.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kRing = 1024;
constexpr size_t kFlightLimit = 8 * kMiB;
constexpr size_t kPhaseBytes = 96 * kMiB;

std::atomic<void*> ring[kRing];
size_t objects_wanted;

size_t object_bytes(size_t i) { return 8 + (i * 2654435761u >> 7) % 1200; }

void* produce(void*) {
  for (size_t i = 0; i < objects_wanted; ++i) {
    const size_t size = object_bytes(i);
    void* object = malloc(size);
    CHECK(object != nullptr);
    memcpy(object, &i, sizeof i);
    static_cast<unsigned char*>(object)[size - 1] |= 0;
    auto& slot = ring[i % kRing];
    while (slot.load(std::memory_order_acquire) != nullptr) sched_yield();
    slot.store(object, std::memory_order_release);
  }
  return nullptr;
}

void* consume(void*) {
  for (size_t i = 0; i < objects_wanted; ++i) {
    auto& slot = ring[i % kRing];
    void* object = nullptr;
    while ((object = slot.load(std::memory_order_acquire)) == nullptr) sched_yield();
    size_t number;
    memcpy(&number, object, sizeof number);
    CHECK_MSG(number == i, "object %zu holds %zu", i, number);
    slot.store(nullptr, std::memory_order_release);
    free(object);
  }
  return nullptr;
}

void one_way_flow() {
  const size_t before = rss_bytes();
  pthread_t producer, consumer;
  const double start = seconds_now();
  CHECK(pthread_create(&consumer, nullptr, consume, nullptr) == 0);
  CHECK(pthread_create(&producer, nullptr, produce, nullptr) == 0);
  pthread_join(producer, nullptr);
  pthread_join(consumer, nullptr);
  const size_t peak = status_bytes("VmHWM:") - before;
  say("%zu objects one way in %.1f s: %.1f MiB at most", objects_wanted, seconds_now() - start,
      mib(peak));
  CHECK_MSG(peak <= kFlightLimit, "%.1f MiB resident for 0.6 MiB in flight", mib(peak));
}

struct Phase {
  size_t number;
  void** blocks;
  size_t count;
  bool frees_itself, stays;
  sem_t finished, may_end;
};

size_t phase_block_bytes(size_t phase, size_t i) {
  const size_t kind = (i * 40503u + phase * 13) % 100;
  if (kind == 0) return 30000 + (i * 7919) % 200000;
  if (kind < 10) return 1000 + (i * 104729) % 8000;
  return 16 + (i * 31 + phase * 16) % 400;
}

void* run_phase(void* argument) {
  auto* phase = static_cast<Phase*>(argument);
  size_t bytes = 0;
  for (phase->count = 0; bytes < kPhaseBytes; ++phase->count) {
    const size_t size = phase_block_bytes(phase->number, phase->count);
    void* block = malloc(size);
    CHECK(block != nullptr);
    memset(block, static_cast<int>(phase->number), size);
    phase->blocks[phase->count] = block;
    bytes += size;
  }
  if (phase->frees_itself) {
    for (size_t i = 0; i < phase->count; ++i) free(phase->blocks[i]);
  }
  sem_post(&phase->finished);
  if (phase->stays) {
    while (sem_wait(&phase->may_end) != 0) {
    }
  }
  return nullptr;
}

void phases_in_turn(size_t phases, bool frees_itself, bool stays) {
  in_child("phases", [&] {
    void* mapping = mmap(nullptr, 64 * kMiB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mapping != MAP_FAILED);
    Phase states[64];
    pthread_t handles[64];
    CHECK(phases <= 64);
    size_t first_peak = 0;
    for (size_t i = 0; i < phases; ++i) {
      Phase& phase = states[i];
      phase.number = i;
      phase.blocks = static_cast<void**>(mapping);
      phase.frees_itself = frees_itself;
      phase.stays = stays;
      sem_init(&phase.finished, 0, 0);
      sem_init(&phase.may_end, 0, 0);
      CHECK(pthread_create(&handles[i], nullptr, run_phase, &phase) == 0);
      while (sem_wait(&phase.finished) != 0) {
      }
      if (!frees_itself) {
        for (size_t j = 0; j < phase.count; ++j) free(phase.blocks[j]);
      }
      if (!stays) pthread_join(handles[i], nullptr);
      if (i == 0) first_peak = status_bytes("VmHWM:");
    }
    const size_t peak = status_bytes("VmHWM:");
    if (stays) {
      for (size_t i = 0; i < phases; ++i) {
        sem_post(&states[i].may_end);
        pthread_join(handles[i], nullptr);
      }
    }
    say("%zu phases of %zu MiB, freed by %s, threads %s: peak %.1f MiB after one, %.1f after all",
        phases, kPhaseBytes / kMiB, frees_itself ? "themselves" : "main",
        stays ? "sleep on" : "end", mib(first_peak), mib(peak));
    // All heaps cache 16 MiB, and each of those that sleep on 1 MiB, slabs in part free, and what
    // huge pages round up.
    CHECK_MSG(peak <= first_peak + 16 * kMiB + 3 * phases * kMiB,
              "the memory of finished phases is not used again");
  });
}

}  // namespace

int main(int argc, char** argv) {
  begin("producer_consumer");
  objects_wanted = argument(argc, argv, 1, 20'000'000);
  const size_t phases = argument(argc, argv, 2, 12);
  in_child("one way", one_way_flow);
  phases_in_turn(phases, true, false);
  phases_in_turn(phases, true, true);
  phases_in_turn(phases, false, false);
  phases_in_turn(phases, false, true);
  return 0;
}
