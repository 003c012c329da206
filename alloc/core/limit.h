// The soft and the hard limit on memory, and the bytes that count against them.
//
// held = mapped - clean: `mapped` is everything that Larder has mapped, descriptors included;
// `clean` is free pages that were not written to since they were mapped or discarded. Larder's
// resident set <= held. Clean memory costs address space alone.
//
// A limit is checked only on the paths that take memory from the system. Without one the check
// costs two loads where clean pages are claimed or a mapping is made or grows, and one load a
// refill. Thread safety: any thread. With a limit set, a thread that takes memory holds the page
// heap's lock, so that no two threads take the last of it.
#pragma once

#include <atomic>

#include "os/options.h"

namespace larder::limit {

// Relaxed: none of these publishes other data, and a check that comes too early is repeated.
struct State {
  // Bytes of clean free pages. Written under the page heap's lock.
  std::atomic<size_t> clean_bytes{0};
  // The soft limit was crossed, and relieve_pressure() has not run yet.
  std::atomic<bool> crossed{false};
  // A limit was met, and held bytes are not yet one part in kPressedShare below it: heaps cache
  // nothing, and free memory is purged at once.
  std::atomic<bool> pressed{false};
  // The program's callback has been called for this pressure.
  std::atomic<bool> reported{false};
};
extern State state;

// Bytes; 0 means no limit.
inline size_t soft() { return option(Option::kSoftLimitMib) << 20; }
inline size_t hard() { return option(Option::kHeapLimitMib) << 20; }
inline bool any() { return (soft() | hard()) != 0; }
// The lower of the two; 0 if there is none.
size_t lowest();

size_t held_bytes();
// REQUIRES: the page heap's lock.
inline void count_clean(int64_t more_bytes) {
  size_t now = state.clean_bytes.load(std::memory_order_relaxed) + size_t(more_bytes);
  state.clean_bytes.store(now, std::memory_order_relaxed);
}

LARDER_SLOW bool allows_now(size_t more_bytes);
// Whether this many more bytes may be held. Crossing the soft limit is allowed, and recorded.
inline bool allows(size_t more_bytes) { return likely(!any()) || allows_now(more_bytes); }

inline bool crossed() { return state.crossed.load(std::memory_order_relaxed); }
inline bool pressed() { return state.pressed.load(std::memory_order_relaxed); }
void press();
void relax();

}  // namespace larder::limit
