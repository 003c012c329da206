// Process-wide counters of rare events: those that take a system call or the page heap's lock
// anyway. What threads do more often they count in their own heap (HeapCounters). Relaxed atomics:
// each is exact, together they are not a snapshot.
#pragma once

#include <atomic>

#include "base/single_threaded.h"

namespace larder::stats {

enum Counter {
  kMappedBytes,       // mapped from the kernel now
  kMappedTotalBytes,  // mapped since the start
  kMmapCalls,
  kMunmapCalls,
  kMremapCalls,
  kMadviseCalls,
  kPurgedBytes,  // given back by madvise since the start
  kHugeBytes,    // mappings of their own handed out now
  kHugePeakBytes,
  kHugeCount,
  kReallocCopiedBytes,      // copied by realloc since the start, blocks beyond slabs
  kReallocCopiedHugeBytes,  // of these, from blocks beyond 1 MiB
  kEmergencyMappings,       // served by a mapping of their own from a signal handler
  kLeakedInSignal,          // frees from a signal handler that could not be carried out
  kForks,
  kHeaps,             // made for threads
  kHeapsCachedBytes,  // bytes that heaps keep, as each said when it last gave something back
  kCounters
};

extern std::atomic<int64_t> counters[kCounters];

inline void add(Counter c, int64_t n) {
  std::atomic<int64_t>& counter = counters[c];
  if (single_threaded())
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  else
    counter.fetch_add(n, std::memory_order_relaxed);
}
// For a peak: never lowers it.
inline void raise(Counter c, int64_t to) {
  int64_t seen = counters[c].load(std::memory_order_relaxed);
  while (seen < to && !counters[c].compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
  }
}
inline int64_t get(Counter c) { return counters[c].load(std::memory_order_relaxed); }

}  // namespace larder::stats
