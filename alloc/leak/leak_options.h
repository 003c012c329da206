// What the environment says of the leak checker: gperftools' variables, which LARDER_ goes before.
// The environment is read once, in the constructor; not of programs that are setuid or the like.
#pragma once

#include <stdlib.h>

#include "base/base.h"

namespace larder {

struct LeakOptions {
  bool on = false;             // anything is recorded
  bool whole_program = false;  // and checked when the program ends
  bool before_constructors = true;
  bool after_destructors = false;
  bool thread_live = true;  // what threads can reach is no leak
  bool global_live = true;  // nor is what lies in data
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
  // The tool reads the whole program's leaks there: nothing is said, and the program ends as it
  // would.
  bool for_tool = false;
};

// Whether there is anything to read.
inline bool leaks_are_asked_for() {
  return secure_getenv("HEAPCHECK") != nullptr || secure_getenv("LARDER_HEAPCHECK") != nullptr;
}
// Bad values are told in one line each; one of HEAPCHECK itself means no checking.
void read_leak_options(LeakOptions* options);

}  // namespace larder
