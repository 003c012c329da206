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
  kHugePages,
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
  kGuard,
  kOnError,
  kDeepbind,
  kCount
};

// LARDER_ON_ERROR.
enum class OnError : size_t { kAbort, kReport, kIgnore };

// LARDER_SKIP_SBRK when it is not set: sbrk only under LARDER_SKIP_MMAP.
inline constexpr size_t kSbrkInPlaceOfMmap = 2;

struct OptionValues {
  size_t of[size_t(Option::kCount)];
  constexpr OptionValues();
};
extern OptionValues option_values __attribute__((visibility("hidden")));

// Relaxed: each is a number by itself, and a thread may follow a new one late.
inline size_t option(Option o) {
  return __atomic_load_n(&option_values.of[size_t(o)], __ATOMIC_RELAXED);
}
void set_option(Option o, size_t value);
// A factor for LARDER_PURGE_*; 0: nothing is purged by itself. Clamped to [0, kMaxReleaseRate]; NaN
// is ignored.
inline double release_rate() { return __builtin_bit_cast(double, option(Option::kReleaseRate)); }
void set_release_rate(double rate);
// At another rate than 1.
uint64_t scaled_purge_decay_ms(double rate);
// LARDER_PURGE_DECAY_MS / release_rate().
inline uint64_t purge_decay_ms() {
  if (option(Option::kAggressiveDecommit) != 0) return 0;
  double rate = release_rate();
  return likely(rate == 1) ? option(Option::kPurgeDecayMs) : scaled_purge_decay_ms(rate);
}
void read_options_from_environment();

}  // namespace larder
