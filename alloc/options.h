// Every tunable, in one table: name, default, range, unit, why (options.cc).
//
// Defaults are in force from the first malloc; the environment is read once, in the constructor,
// with secure_getenv, so a setuid program reads none of it. A value that is not a number, or out
// of range, is reported on stderr in one line and the default stays.
#pragma once

#include "base.h"

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
  kCount
};

// A plain value: read on slow paths only.
size_t option(Option o);
void set_option(Option o, size_t value);
void read_options_from_environment();

}  // namespace larder
