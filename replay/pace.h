// Keeps threads near the order in which they were recorded. The trace is cut into laps of so many
// operations, all threads together; who begins lap n waits until laps n - 2 and n - 3 are done, and
// so all before them. A thread takes part in the laps that it has operations in, and is done with
// one when it begins another.
//
// Invariants: a wait is for operations that came earlier in the trace alone, so no circle of waits
// can form; a lap that is waited for has operations. All threads.
#pragma once

#include <stdint.h>

#include <atomic>

namespace replay {

class Pace {
 public:
  static constexpr unsigned kRing = 32;

  // `done_2` and `done_3`: how often threads had been done with a lap at the same place of the ring
  // once lap n - 2, or n - 3, was done by all.
  void begin(uint32_t lap, uint32_t done_2, uint32_t done_3);
  void finish(uint32_t lap);

 private:
  struct alignas(64) Place {
    std::atomic<uint32_t> done;
    std::atomic<uint32_t> waiting;
  };
  void await(uint32_t lap, uint32_t done);

  Place places_[kRing];
};

// Waits while the word is `value`, for somebody who wakes one of the bits; may return early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, uint32_t bits);
void futex_wake(std::atomic<uint32_t>& word, uint32_t bits);

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace replay
