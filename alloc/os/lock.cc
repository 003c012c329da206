#include "os/lock.h"

#include "base/policy.h"

namespace larder {

void Lock::acquire_slow() {
  uint32_t me = thread_id();
  if (held_by_me() && for_fork_) {
    ++recursion_;
    return;
  }
  // Not on one CPU, where the holder cannot be running.
  if (os::cpu_count() > 1) {
    for (int i = 0; i < kLockSpins; ++i) {
      uint32_t expected = kFree;
      if (word_.load(std::memory_order_relaxed) == kFree &&
          word_.compare_exchange_weak(expected, me, std::memory_order_acquire))
        return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }
  for (;;) {
    uint32_t word = word_.load(std::memory_order_relaxed);
    if (word == kFree) {
      // Other threads may still sleep: a thread that has waited takes the lock as contended.
      if (word_.compare_exchange_weak(word, me | kContended, std::memory_order_acquire)) return;
    } else if ((word & kContended) != 0 ||
               word_.compare_exchange_weak(word, word | kContended, std::memory_order_relaxed)) {
      os::wait(reinterpret_cast<uint32_t*>(&word_), word | kContended);
    }
  }
}

bool Lock::try_acquire(unsigned tries) {
  for (; tries > 0; --tries) {
    uint32_t expected = kFree;
    if (word_.compare_exchange_strong(expected, thread_id(), std::memory_order_acquire))
      return true;
    os::yield();
  }
  return false;
}

void Lock::wake() { os::wake_one(reinterpret_cast<uint32_t*>(&word_)); }

}  // namespace larder
