// The environment: a variable by Larder's name or by the one that this goes before, and values as
// numbers, switches and rates. What a value may not be is told in one line on stderr.
//
// Nothing is set in a program that is setuid or the like.
#pragma once

#include "base/base.h"

extern "C" char** environ;

namespace larder {

// Of LARDER_`name`, or else of `prefix``name`; nullptr unless it is set to something.
const char* variable(const char* name, const char* prefix = "");

// In decimal, of at most 18 digits. False: it is none from `low` to `high`.
bool parse_number(const char* text, int64_t low, int64_t high, int64_t* value);
// 1, t, y, true, yes, and their opposites, as tcmalloc takes them.
bool parse_switch(const char* text, bool* on);
// Digits with a point among them, or none.
bool parse_rate(const char* text, double* rate);

// The variable's value goes to `to`. False: it is not set, or no such value, which is told.
bool read_number(const char* name, int64_t low, int64_t high, int64_t* to);
bool read_switch(const char* name, bool* to);

// NAME=VALUE is not WANTED
void complain_of(const char* name, const char* value, const char* wanted);

}  // namespace larder
