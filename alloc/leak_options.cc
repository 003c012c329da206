#include "leak_options.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <initializer_list>

#include "line.h"

namespace larder {

namespace {

// LARDER_NAME, or NAME; nullptr unless it is set to something.
const char* variable(const char* name) {
  char own[64] = "LARDER_";
  strncat(own, name, sizeof own - sizeof "LARDER_");
  const char* value = secure_getenv(own);
  if (value == nullptr || *value == 0) value = secure_getenv(name);
  return value == nullptr || *value == 0 ? nullptr : value;
}

void complain(const char* name, const char* value, const char* wanted) {
  Line().put(name).put("=").put(value, 60).put(" is not ").put(wanted).write();
}

void read_switch(const char* name, bool* to) {
  const char* text = variable(name);
  if (text == nullptr) return;
  for (const char* word : {"1", "t", "y", "true", "yes", "0", "f", "n", "false", "no"}) {
    if (strcasecmp(text, word) != 0) continue;
    *to = strchr("1ty", *word) != nullptr;
    return;
  }
  complain(name, text, "true or false; the default stays");
}

// False: it is not set, or no number from `low` to `high`.
bool read_number(const char* name, long low, long high, long* to) {
  const char* text = variable(name);
  if (text == nullptr) return false;
  const char* digit = text + (*text == '-' ? 1 : 0);
  long value = 0;
  bool good = *digit != 0 && strlen(digit) <= 17;
  for (; good && *digit != 0; ++digit) {
    good = *digit >= '0' && *digit <= '9';
    value = value * 10 + (*digit - '0');
  }
  if (*text == '-') value = -value;
  if (good && value >= low && value <= high) {
    *to = value;
    return true;
  }
  complain(name, text, "a number in its range; the default stays");
  return false;
}

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

void read_numbers(LeakOptions* o) {
  constexpr long kMost = 1'000'000'000;
  long value;
  if (read_number("HEAP_CHECK_MAX_LEAKS", -kMost, kMost, &value))
    o->most_leaks = value > 0 ? size_t(value) : SIZE_MAX;
  if (read_number("HEAP_CHECK_POINTER_SOURCE_ALIGNMENT", 1, 8, &value)) {
    if (is_pow2(size_t(value)))
      o->source_alignment = size_t(value);
    else
      Line().put("HEAP_CHECK_POINTER_SOURCE_ALIGNMENT is not a power of two; 8 stays").write();
  }
  if (read_number("HEAP_CHECK_MAX_POINTER_OFFSET", -1, LONG_MAX / 2, &value))
    o->most_offset = value < 0 ? SIZE_MAX : size_t(value);
  if (read_number("HEAP_CHECK_ERROR_EXIT_CODE", 0, 255, &value)) o->exit_code = int(value);
  if (read_number("PERFTOOLS_VERBOSE", -kMost, kMost, &value)) o->verbose = int(value);
  if (read_number("HEAP_CHECK_DELAY_SECONDS", 0, 86400, &value)) o->delay_seconds = size_t(value);
}

}  // namespace

void read_leak_options(LeakOptions* o) {
  const char* mode = variable("HEAPCHECK");
  if (mode == nullptr) return;
  if (!apply_mode(mode, o)) {
    complain("HEAPCHECK", mode,
             "minimal, normal, strict, draconian, as-is or local; nothing is checked");
    return;
  }
  o->on = true;
  read_switch("HEAP_CHECK_REPORT", &o->report);
  read_switch("HEAP_CHECK_IDENTIFY_LEAKS", &o->identify);
  read_switch("HEAP_CHECK_TEST_POINTER_ALIGNMENT", &o->test_alignment);
  bool strict = true;  // what it was for has no other way here
  read_switch("HEAP_CHECK_STRICT_CHECK", &strict);
  read_numbers(o);
  const char* directory = variable("HEAP_CHECK_DUMP_DIRECTORY");
  if (directory == nullptr) return;
  if (strlen(directory) < sizeof o->dump_directory)
    memcpy(o->dump_directory, directory, strlen(directory) + 1);
  else
    complain("HEAP_CHECK_DUMP_DIRECTORY", directory, "short enough; no profile is written");
}

}  // namespace larder
