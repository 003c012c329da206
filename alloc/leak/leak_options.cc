#include "leak/leak_options.h"

#include <stdlib.h>
#include <string.h>

#include "os/environment.h"
#include "os/line.h"

namespace larder {

namespace {

// False: there is no such mode.
bool apply_mode(const char* mode, LeakOptions* o) {
  o->whole_program = strcmp(mode, "local") != 0;
  if (!o->whole_program || strcmp(mode, "normal") == 0) return true;
  if (strcmp(mode, "minimal") == 0) {
    o->before_constructors = false;
  } else if (strcmp(mode, "strict") == 0) {
    o->after_destructors = true;
  } else if (strcmp(mode, "draconian") == 0) {
    o->after_destructors = true;
    o->thread_live = o->global_live = false;
  } else if (strcmp(mode, "as-is") == 0) {
    read_switch("HEAP_CHECK_AFTER_DESTRUCTORS", &o->after_destructors);
    read_switch("HEAP_CHECK_BEFORE_CONSTRUCTORS", &o->before_constructors);
    read_switch("HEAP_CHECK_IGNORE_THREAD_LIVE", &o->thread_live);
    read_switch("HEAP_CHECK_IGNORE_GLOBAL_LIVE", &o->global_live);
  } else {
    return false;
  }
  return true;
}

template <typename T>
void read_into(T* to, const char* name, int64_t low, int64_t high) {
  auto value = int64_t(*to);
  if (read_number(name, low, high, &value)) *to = T(value);
}

void read_numbers(LeakOptions* o) {
  constexpr int64_t kMaxLeakOption = 1'000'000'000;
  auto max_leaks = int64_t(o->max_leaks);
  read_into(&max_leaks, "HEAP_CHECK_MAX_LEAKS", -kMaxLeakOption, kMaxLeakOption);
  o->max_leaks = max_leaks > 0 ? size_t(max_leaks) : SIZE_MAX;
  size_t alignment = o->source_alignment;
  read_into(&alignment, "HEAP_CHECK_POINTER_SOURCE_ALIGNMENT", 1, 8);
  if (is_pow2(alignment))
    o->source_alignment = alignment;
  else
    Line().put("HEAP_CHECK_POINTER_SOURCE_ALIGNMENT is not a power of two; 8 stays").write();
  read_into(&o->max_offset, "HEAP_CHECK_MAX_POINTER_OFFSET", -1, INT64_MAX / 2);
  read_into(&o->exit_code, "HEAP_CHECK_ERROR_EXIT_CODE", 0, 255);
  read_into(&o->verbose, "PERFTOOLS_VERBOSE", -kMaxLeakOption, kMaxLeakOption);
  read_into(&o->delay_seconds, "HEAP_CHECK_DELAY_SECONDS", 0, 86400);
}

}  // namespace

void read_leak_options(LeakOptions* o) {
  const char* mode = variable("HEAPCHECK");
  if (mode == nullptr) return;
  if (!apply_mode(mode, o)) {
    complain_of("HEAPCHECK", mode,
                "minimal, normal, strict, draconian, as-is or local; nothing is checked");
    return;
  }
  o->on = true;
  read_switch("HEAP_CHECK_REPORT", &o->report);
  read_switch("HEAP_CHECK_IDENTIFY_LEAKS", &o->identify);
  read_switch("HEAP_CHECK_TEST_POINTER_ALIGNMENT", &o->test_alignment);
  bool strict = true;  // such modes have no other effect here
  read_switch("HEAP_CHECK_STRICT_CHECK", &strict);
  read_numbers(o);
  const char* directory = secure_getenv("LARDER_LEAK_REPORTS");
  o->for_tool = directory != nullptr && *directory != 0;
  if (!o->for_tool) directory = variable("HEAP_CHECK_DUMP_DIRECTORY");
  if (directory == nullptr) return;
  if (strlen(directory) < sizeof o->dump_directory)
    memcpy(o->dump_directory, directory, strlen(directory) + 1);
  else
    complain_of("HEAP_CHECK_DUMP_DIRECTORY", directory, "short enough; no profile is written");
}

}  // namespace larder
