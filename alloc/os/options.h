// Every tunable, in one table: name, default, range, unit, reason (options.cc).
//
// Defaults are in force from the first malloc. The environment is read once, in the constructor,
// except in setuid programs and the like. A value that is no number or out of range is reported in
// a line, and the default stays. tcmalloc's options are read under TCMALLOC_ as well; LARDER_ takes
// precedence.
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
  kOnError,
  kCount
};

// LARDER_ON_ERROR.
enum class OnError : size_t { kAbort, kReport, kIgnore };

// LARDER_SKIP_SBRK when it is not set: sbrk only under LARDER_SKIP_MMAP.
inline constexpr size_t kSbrkInPlaceOfMmap = 2;

// Read on slow paths only.
size_t option(Option o);
void set_option(Option o, size_t value);
// A factor for LARDER_PURGE_*; 0: nothing is purged by itself. Clamped to [0, kMaxReleaseRate]; NaN
// is ignored.
inline constexpr double kMaxReleaseRate = 1e6;
double release_rate();
void set_release_rate(double rate);
// LARDER_PURGE_DECAY_MS / release_rate().
uint64_t purge_decay_ms();
void read_options_from_environment();

}  // namespace larder
