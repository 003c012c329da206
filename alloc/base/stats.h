// Process-wide counters of rare events: those that take a system call or the page heap's lock
// anyway. Frequent events are counted per heap (HeapCounters). Relaxed atomics: each counter is
// exact; together they are no snapshot.
#pragma once

#include <atomic>

#include "base/single_threaded.h"

namespace larder::stats {

enum Counter {
  kMappedBytes,       // now
  kMappedTotalBytes,  // since the start
  kMmapCalls,
  kMunmapCalls,
  kMremapCalls,
  kMadviseCalls,
  kPurgedBytes,  // by madvise, since the start
  kHugeBytes,    // of huge objects, now
  kHugePeakBytes,
  kHugeCount,
  kReallocCopiedBytes,      // of large and huge objects, since the start
  kReallocCopiedHugeBytes,  // of huge objects alone
  kEmergencyMappings,       // allocations in a signal handler that interrupted the allocator
  kLeakedInSignal,          // frees in a signal handler that could not be carried out
  kForks,
  kHeaps,             // that were made for threads
  kHeapsCachedBytes,  // cached by heaps, as each last reported
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
// For a peak: only ever raises it.
inline void raise(Counter c, int64_t to) {
  int64_t seen = counters[c].load(std::memory_order_relaxed);
  while (seen < to && !counters[c].compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
  }
}
inline int64_t get(Counter c) { return counters[c].load(std::memory_order_relaxed); }

}  // namespace larder::stats
