// The leak checker's report on stderr, in gperftools' words.
#pragma once

#include "leak/leak.h"

namespace larder {

void report_leaks(const char* name, const LeakList& list, const LeakOptions& options);
void report_no_leaks(const char* name, const LeakList& list);

}  // namespace larder
