// Every tunable, in one table: name, default, range, unit, why (options.cc).
//
// Defaults are in force from the first malloc; the environment is read once, in the constructor,
// unless the program is setuid or the like. A value that is not a number, or out of range, is
// reported on stderr in one line and the default stays. What tcmalloc has under TCMALLOC_ is read
// under that name as well; LARDER_ goes before it.
#pragma once

#include "base/base.h"

namespace larder {

enum class Option {
  kMinAlign,
  kPurgeDecayMs,
  kPurgeMibPerTick,
  kMaxHeaps,
  kHeapEmptyKib,
  kHugeKeptMib,
  kColour,
  kBackgroundPurge,
  kEarlyPurge,
  kReleaseRate,
  kMaxThreadCacheBytes,
  kAggressiveDecommit,
  kHeapLimitMib,
  kSoftLimitMib,
  kLargeAllocReportThreshold,
  kSkipMmap,
  kSkipSbrk,
  kDevmemStartMib,
  kDevmemLimitMib,
  kMemfsLimitMib,
  kMemfsAbortOnFail,
  kMemfsIgnoreMmapFail,
  kMemfsMapPrivate,
  kMemfsDisableFallback,
  kProfileBytes,
  kCount
};

// LARDER_SKIP_SBRK unless it is set: sbrk serves where mmap may not.
inline constexpr size_t kSbrkInPlaceOfMmap = 2;

// A plain value: read on slow paths only.
size_t option(Option o);
void set_option(Option o, size_t value);
// How fast free memory goes back: what LARDER_PURGE_* say, times this; 0: never by itself. What is
// not a number is no change; below 0 is 0, and so many are enough.
inline constexpr double kMaxReleaseRate = 1e6;
double release_rate();
void set_release_rate(double rate);
// LARDER_PURGE_DECAY_MS at this rate.
uint64_t purge_decay_ms();
void read_options_from_environment();

}  // namespace larder
