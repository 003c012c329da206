// Keeps threads near the recorded order. The trace is cut into laps of a number of operations, of
// all threads together; a thread that begins lap n waits until laps n - 2 and n - 3, and so all
// before them, are done. A thread takes part in the laps in which it has operations, and is done
// with one when it begins another.
//
// Invariants: a wait is only for operations that are earlier in the trace, so there is no cycle of
// waits; a lap that is waited for has operations. All threads.
#pragma once

#include <stdint.h>

#include <atomic>

namespace replay {

class Pace {
 public:
  static constexpr unsigned kRing = 32;

  // `done_2` and `done_3`: how often threads have been done with a lap at the same entry of the
  // ring once all are done with lap n - 2, or n - 3.
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

// Waits while the word is `value`, until a thread wakes one of the bits; may return early.
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
