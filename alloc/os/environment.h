// The environment: variables with Larder's prefix or another, and their values as numbers, switches
// and rates. A bad value is reported in a line.
//
// In setuid programs and the like nothing is set.
#pragma once

#include "base/base.h"

extern "C" char** environ;

namespace larder {

// The value of LARDER_`name`, else of `prefix``name`; nullptr if neither is set or both are empty.
const char* variable(const char* name, const char* prefix = "");

// Decimal, up to 18 digits. False: no number from `low` to `high`.
bool parse_number(const char* text, int64_t low, int64_t high, int64_t* value);
// tcmalloc's words: 1, t, y, true, yes, and their opposites.
bool parse_switch(const char* text, bool* on);
// Digits with an optional decimal point.
bool parse_rate(const char* text, double* rate);

// Stores the variable's value in *to. False: it is not set, or bad, which is reported.
bool read_number(const char* name, int64_t low, int64_t high, int64_t* to);
bool read_switch(const char* name, bool* to);

// Reports: NAME=VALUE is not WANTED
void complain_of(const char* name, const char* value, const char* wanted);

}  // namespace larder
