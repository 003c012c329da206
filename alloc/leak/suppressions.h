// Known leaks: LeakSanitizer's suppression files. LARDER_LEAK_SUPPRESSIONS=FILE or
// LSAN_OPTIONS=suppressions=FILE, with lines leak:PATTERN and # comments.
//
// Read once, in the constructor: up to kMaxSuppressionBytes, which stay in memory. Matching time is
// linear in all patterns and in the text.
#pragma once

#include <initializer_list>

#include "base/base.h"

namespace larder {

// If the leak checker is on. Reports a file that cannot be read, or a line without a pattern.
void suppressions_init();
size_t suppressions_count();
// Whether a pattern matches one of the texts. The first match counts the leak.
bool suppress(std::initializer_list<const char*> texts, size_t objects, size_t bytes);
// Reports on stderr which patterns matched since the last report.
void report_suppressions();

// A pattern matches anywhere in the text, unless ^ begins or $ ends it; * is any text.
bool pattern_matches(const char* pattern, const char* text);

}  // namespace larder
