#include "pace.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace replay {

namespace {

constexpr int kSpins = 200;

// Threads that wait on the same word for different laps are woken only for their own lap.
uint32_t bit_of(uint32_t lap) { return 1u << (lap / Pace::kRing % 32); }

}  // namespace

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, uint32_t bits) {
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, nullptr, nullptr, bits);
}

void futex_wake(std::atomic<uint32_t>& word, uint32_t bits) {
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, bits);
}

void Pace::begin(uint32_t lap, uint32_t done_2, uint32_t done_3) {
  await(lap - 2, done_2);
  await(lap - 3, done_3);
}

void Pace::finish(uint32_t lap) {
  Place& place = places_[lap % kRing];
  place.done.fetch_add(1);
  if (place.waiting.load() != 0) futex_wake(place.done, bit_of(lap));
}

void Pace::await(uint32_t lap, uint32_t done) {
  Place& place = places_[lap % kRing];
  auto reached = [&](uint32_t count) { return int32_t(count - done) >= 0; };
  for (int i = 0; i < kSpins; ++i) {
    if (reached(place.done.load())) return;
    pause_briefly();
  }
  place.waiting.fetch_add(1);
  for (uint32_t count; !reached(count = place.done.load());)
    futex_wait(place.done, count, bit_of(lap));
  place.waiting.fetch_sub(1);
}

}  // namespace replay
