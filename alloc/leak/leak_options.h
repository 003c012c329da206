// The leak checker's options: gperftools' variables. The same name with LARDER_ takes precedence.
// Read once, in the constructor; not in setuid programs and the like.
#pragma once

#include <stdlib.h>

#include "base/base.h"

namespace larder {

struct LeakOptions {
  bool on = false;             // allocations are recorded
  bool whole_program = false;  // the program is checked when it ends
  bool before_constructors = true;
  bool after_destructors = false;
  bool thread_live = true;  // what threads reach is no leak
  bool global_live = true;  // what global data reach is no leak
  bool report = true;
  bool identify = false;
  bool test_alignment = false;
  size_t source_alignment = sizeof(void*);
  size_t max_offset = SIZE_MAX;
  size_t max_leaks = 20;
  int exit_code = 1;
  int verbose = 0;
  size_t delay_seconds = 0;
  char dump_directory[3072] = {};  // empty: none
  // The tool reads the whole program's leaks from the directory. Nothing is printed, and the exit
  // code stays.
  bool for_tool = false;
};

// Whether HEAPCHECK is set.
inline bool leaks_are_asked_for() {
  return secure_getenv("HEAPCHECK") != nullptr || secure_getenv("LARDER_HEAPCHECK") != nullptr;
}
// Reports each bad value in a line. A bad HEAPCHECK turns the checker off.
void read_leak_options(LeakOptions* options);

}  // namespace larder
