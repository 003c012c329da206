#include "leak/suppressions.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/policy.h"
#include "os/line.h"
#include "os/os_file.h"

namespace larder {

namespace {

struct Suppression {
  const char* pattern;
  size_t objects, bytes;
};
Suppression* list = nullptr;
size_t count = 0;

// LARDER_LEAK_SUPPRESSIONS, or `suppressions` of LSAN_OPTIONS, whose items are separated by colons,
// commas or spaces and may be quoted. Sets *length. nullptr: none.
const char* path_wanted(size_t* length) {
  const char* own = secure_getenv("LARDER_LEAK_SUPPRESSIONS");
  if (own != nullptr && *own != 0) {
    *length = strlen(own);
    return own;
  }
  constexpr char kSeparators[] = ":, \t\r\n", kName[] = "suppressions=";
  const char* at = secure_getenv("LSAN_OPTIONS");
  const char* found = nullptr;
  for (; at != nullptr && *at != 0; at += strspn(at, kSeparators)) {
    bool is_it = strncmp(at, kName, sizeof kName - 1) == 0;
    const char* value = at + strcspn(at, "=:, \t\r\n");
    if (*value == '=') ++value;
    bool is_quoted = *value == '\'' || *value == '"';
    const char quote[] = {*value, 0};
    if (is_quoted) ++value;
    size_t size = strcspn(value, is_quoted ? quote : kSeparators);
    if (is_it) {
      found = value;
      *length = size;
    }
    at = value + size;
    if (is_quoted && *at != 0) ++at;
  }
  return *length != 0 ? found : nullptr;
}

// The text, terminated by a zero; or nullptr with *error.
char* read_all(const char* path, size_t* length, int* error) {
  int file = os::open(path);
  if (file < 0) {
    *error = -file;
    return nullptr;
  }
  size_t room = kMaxSuppressionBytes + os::page_size();
  auto* text = static_cast<char*>(os::map(room));
  *error = ENOMEM;
  long n = text != nullptr ? 1 : 0;
  for (*length = 0; n > 0; *length += size_t(n)) {
    n = os::read(file, text + *length, kMaxSuppressionBytes + 1 - *length);
    *error = n < 0 ? int(-n) : *length + size_t(n) > kMaxSuppressionBytes ? EFBIG : 0;
    if (*error != 0) break;
  }
  os::close(file);
  if (*error == 0) return text;
  if (text != nullptr) os::unmap(text, room);
  return nullptr;
}

// Calls visit(line) for each line that is no comment, trimmed and terminated.
template <typename Visit>
void for_each_line(char* text, char* end, Visit visit) {
  for (size_t number = 1; text < end; ++number) {
    char* next = text + strcspn(text, "\n");
    *next = 0;
    text += strspn(text, " \t\r");
    char* last = text + strlen(text);
    while (last > text && strchr(" \t\r", last[-1]) != nullptr) *--last = 0;
    if (*text != 0 && *text != '#') visit(text, number);
    text = next + 1;
  }
}

void parse(const char* path, char* text, size_t length) {
  constexpr char kLeak[] = "leak:";
  constexpr size_t kMinBytes = sizeof kLeak;  // with one character of pattern
  list = static_cast<Suppression*>(
      os::map(round_up((length / kMinBytes + 1) * sizeof(Suppression), os::page_size())));
  if (list == nullptr) return;
  size_t bad = 0, first_bad = 0;
  for_each_line(text, text + length, [&](const char* line, size_t number) {
    if (strncmp(line, kLeak, kMinBytes - 1) == 0 && line[kMinBytes - 1] != 0)
      list[count++] = {line + kMinBytes - 1, 0, 0};
    else if (bad++ == 0)
      first_bad = number;
  });
  if (bad == 0) return;
  Line()
      .put(path)
      .put(":")
      .put_number(first_bad)
      .put(": not leak:PATTERN; ")
      .put_number(bad)
      .put(" such lines are left out")
      .write();
}

}  // namespace

void suppressions_init() {
  size_t length = 0;
  const char* wanted = path_wanted(&length);
  if (wanted == nullptr) return;
  char path[PATH_MAX];
  int error = ENAMETOOLONG;
  char* text = nullptr;
  if (length < sizeof path) {
    memcpy(path, wanted, length);
    path[length] = 0;
    text = read_all(path, &length, &error);
  }
  if (text != nullptr) return parse(path, text, length);
  const char* name = os::error_text(error);
  Line()
      .put("leak suppressions ")
      .put(wanted)
      .put(": ")
      .put(name != nullptr ? name : "unreadable")
      .put("; none is used")
      .write();
}

size_t suppressions_count() { return count; }

bool suppress(std::initializer_list<const char*> texts, size_t objects, size_t bytes) {
  for (size_t i = 0; i < count; ++i) {
    for (const char* text : texts) {
      if (!pattern_matches(list[i].pattern, text)) continue;
      list[i].objects += objects;
      list[i].bytes += bytes;
      return true;
    }
  }
  return false;
}

void report_suppressions() {
  for (size_t i = 0; i < count; ++i) {
    Suppression& s = list[i];
    if (s.objects == 0) continue;
    Line()
        .put("suppressed ")
        .put_number(s.bytes)
        .put(" bytes in ")
        .put_number(s.objects)
        .put(" objects by leak:")
        .put(s.pattern)
        .write();
    s.objects = s.bytes = 0;
  }
}

bool pattern_matches(const char* pattern, const char* text) {
  if (*text == 0) return false;
  bool at_start = *pattern == '^';
  if (at_start) ++pattern;
  for (;;) {
    size_t n = strcspn(pattern, "*$"), rest = strlen(text);
    if (pattern[n] == '$') {
      if (rest < n || (at_start && rest != n)) return false;
      return memcmp(text + rest - n, pattern, n) == 0;
    }
    const void* found = memmem(text, at_start ? (rest < n ? rest : n) : rest, pattern, n);
    if (found == nullptr) return false;
    text = static_cast<const char*>(found) + n;
    pattern += n;
    if (*pattern == 0) return true;
    ++pattern;
    at_start = false;
  }
}

}  // namespace larder
