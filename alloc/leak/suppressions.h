// Leaks that are known: LeakSanitizer's suppression files, LARDER_LEAK_SUPPRESSIONS=FILE or
// LSAN_OPTIONS=suppressions=FILE, with lines leak:PATTERN and comments from # on.
//
// The file is read once, in the constructor; at most kMaxSuppressionBytes of it, and as much is
// kept. Matching takes time in proportion to all patterns and the text.
#pragma once

#include <initializer_list>

#include "base/base.h"

namespace larder {

inline constexpr size_t kMaxSuppressionBytes = size_t{1} << 20;

// If the leak checker is on. What cannot be read, or is no pattern, is told in a line.
void suppressions_init();
size_t suppressions_count();
// Whether a pattern matches one of the texts; what leaked is counted for the first one that does.
bool suppress(std::initializer_list<const char*> texts, size_t objects, size_t bytes);
// Says on stderr which were used since the last time.
void report_suppressions();

// The pattern is found anywhere in the text, unless it begins with ^ or ends with $; * is anything.
bool pattern_matches(const char* pattern, const char* text);

}  // namespace larder
