// Replaces malloc and libc's locks for the torture program: mappings, a lock, random numbers. Does
// not call the allocator under test. Any thread.
#pragma once

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>

namespace torture {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;

// Zero pages that live until the end of the process, or nullptr.
inline void* map_pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

inline void sleep_us(long us) {
  timespec wait = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&wait, nullptr);
}

inline uint64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000 + uint64_t(now.tv_nsec) / 1000000;
}

// Made of atomics, so that ThreadSanitizer sees the order, and a forked child may unlock what its
// parent has locked. Not for signal handlers.
class Lock {
 public:
  void lock() {
    for (int tries = 0; held_.exchange(true, std::memory_order_acquire); ++tries)
      tries < 64 ? (void)sched_yield() : sleep_us(50);
  }
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_;
};

class Guard {
 public:
  explicit Guard(Lock& lock) : lock_(lock) { lock_.lock(); }
  ~Guard() { lock_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
};

// The finaliser of splitmix64: every bit of the result depends on every bit of x.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

class Random {
 public:
  Random() = default;
  explicit Random(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15); }
  // 0 … n - 1; n > 0. The bias is below n / 2^64.
  uint64_t below(uint64_t n) { return uint64_t((unsigned __int128)(next())*n >> 64); }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t state_ = 0;
};

}  // namespace torture
