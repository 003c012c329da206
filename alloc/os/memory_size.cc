#include "os/memory_size.h"

#include <limits.h>
#include <string.h>

#include "base/text.h"
#include "os/os.h"

namespace larder {

namespace {

// Reads text, terminated and cut to `room`. False: the file cannot be read.
bool read_file(const char* path, char* to, size_t room) {
  int file = os::open(path);
  if (file < 0) return false;
  size_t length = 0;
  for (long n; length + 1 < room && (n = os::read(file, to + length, room - 1 - length)) > 0;)
    length += size_t(n);
  os::close(file);
  to[length] = 0;
  return true;
}

// The number that begins the text, after blanks; 0: none, or too large.
size_t number_at(const char* text) {
  while (*text == ' ') ++text;
  size_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    if (value > SIZE_MAX / 10 - 1) return 0;
    value = value * 10 + size_t(*text - '0');
  }
  return value;
}

size_t least(size_t a, size_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

// The minimum over the group and its ancestors.
size_t limit_of(const char* root, const char* mount, char* group, const char* name) {
  size_t limit = 0;
  for (;;) {
    char path[PATH_MAX], text[32];
    TextBuffer whole(path, sizeof path);
    whole.put(root).put(mount).put(group).put("/").put(name);
    if (whole.fits() && read_file(path, text, sizeof text)) limit = least(limit, number_at(text));
    char* end = strrchr(group, '/');
    if (end == nullptr) return limit;
    *end = 0;
  }
}

// Whether "memory" is in this list, separated by commas.
bool has_memory(const char* controllers) {
  static constexpr char kMemory[] = "memory";
  constexpr size_t kLength = sizeof kMemory - 1;
  for (const char* at = controllers; (at = strstr(at, kMemory)) != nullptr; at += kLength)
    if ((at == controllers || at[-1] == ',') && (at[kLength] == 0 || at[kLength] == ','))
      return true;
  return false;
}

size_t limit_of_groups(const char* root) {
  char path[PATH_MAX], text[PATH_MAX];
  TextBuffer(path, sizeof path).put(root).put("/proc/self/cgroup");
  if (!read_file(path, text, sizeof text)) return 0;
  size_t limit = 0;
  // NUMBER:CONTROLLERS:GROUP; version 2 has no controllers.
  for (char* line = text; *line != 0;) {
    char* end = line + strcspn(line, "\n");
    char* next = *end != 0 ? end + 1 : end;
    *end = 0;
    char* controllers = strchr(line, ':');
    char* group = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    line = next;
    if (group == nullptr) continue;
    *group++ = 0;
    if (controllers[1] == 0)
      limit = least(limit, limit_of(root, "/sys/fs/cgroup", group, "memory.max"));
    else if (has_memory(controllers + 1))
      limit = least(limit, limit_of(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return limit;
}

size_t machine_bytes(const char* root) {
  static constexpr char kTotal[] = "MemTotal:";
  char path[PATH_MAX], text[512];
  TextBuffer(path, sizeof path).put(root).put("/proc/meminfo");
  if (!read_file(path, text, sizeof text)) return 0;
  const char* total = strstr(text, kTotal);
  return total == nullptr ? 0 : number_at(total + sizeof kTotal - 1) << 10;
}

}  // namespace

size_t memory_size(const char* root) { return least(machine_bytes(root), limit_of_groups(root)); }

}  // namespace larder
