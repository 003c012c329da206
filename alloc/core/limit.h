// The soft and the hard limit on memory, and how much of it is held.
//
// *Held* is what may be backed by memory: all that is mapped, descriptors included, less the free
// pages that nothing was written to since they were mapped or discarded. What of the resident set
// is Larder's is no more than that. What is mapped and not held costs address space alone.
//
// Nobody looks at a limit who takes no memory from the system: without one it costs two loads where
// pages are claimed that hold nothing yet, or a mapping is made or grows, and one a refill.
// Thread safety: any thread. Who takes memory holds the page heap's lock if a limit is set, so
// that no two threads take the last of it.
#pragma once

#include <atomic>

#include "os/options.h"

namespace larder::limit {

struct State {
  // Of free pages that hold nothing. Written under the page heap's lock.
  std::atomic<size_t> clean_bytes{0};
  // More was held than soft() says, and nobody has seen to it yet.
  std::atomic<bool> crossed{false};
  // A limit was met, until a sixteenth less is held than it says: heaps keep nothing, and what is
  // free goes back at once.
  std::atomic<bool> pressed{false};
  // The program has been told of this pressure.
  std::atomic<bool> reported{false};
};
extern State state;

// Bytes; 0: none.
inline size_t soft() { return option(Option::kSoftLimitMib) << 20; }
inline size_t hard() { return option(Option::kHeapLimitMib) << 20; }
inline bool any() { return (soft() | hard()) != 0; }
// The lower of the two.
size_t lowest();

size_t held_bytes();
// Bytes of free pages that hold nothing have come, or gone. REQUIRES: the page heap's lock
inline void count_clean(int64_t more_bytes) {
  size_t now = state.clean_bytes.load(std::memory_order_relaxed) + size_t(more_bytes);
  state.clean_bytes.store(now, std::memory_order_relaxed);
}

LARDER_SLOW bool allows_now(size_t more_bytes);
// Whether so much more may be held. What goes beyond the soft limit may, and is noted.
inline bool allows(size_t more_bytes) { return likely(!any()) || allows_now(more_bytes); }

inline bool crossed() { return state.crossed.load(std::memory_order_relaxed); }
inline bool pressed() { return state.pressed.load(std::memory_order_relaxed); }
void press();
void relax();

}  // namespace larder::limit
