// Memory of a process that hardly allocates which is due to the allocator: pages of the library,
// and anonymous pages. Usage: rss_start LIBRARY_KIB ANONYMOUS_KIB: the limit of each.
//
// Anonymous includes some 50 KiB of the program's own, libc's and the thread's.

#include <initializer_list>

#include "support.h"

using namespace alloctest;

namespace {

char text[256 * kKiB];

size_t number_after(const char* at, const char* name) {
  const char* found = strstr(at, name);
  CHECK_MSG(found != nullptr, "smaps has no line %s", name);
  return strtoul(found + strlen(name), nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  begin("rss_start");
  const size_t library_limit = argument(argc, argv, 1, 80);
  const size_t anonymous_limit = argument(argc, argv, 2, 100);
  for (const size_t size : {16, 50, 200, 1000}) free(opaque(malloc(size)));

  const int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  size_t length = 0;
  for (ssize_t n = 1; n > 0 && length < sizeof text - 1; length += static_cast<size_t>(n)) {
    n = read(fd, text + length, sizeof text - 1 - length);
    CHECK(n >= 0);
  }
  close(fd);

  size_t library = 0;
  size_t anonymous = 0;
  bool seen = false;
  for (char* at = text; (at = strstr(at, "\nSize:")) != nullptr; ++at) {
    // The previous line describes the mapping: its name follows the last blank.
    char* line = at;
    while (line > text && line[-1] != '\n') --line;
    *at = 0;
    const char* name = strrchr(line, ' ') + 1;
    const size_t rss = number_after(at + 1, "\nRss:");
    if (strstr(name, "liblarder") != nullptr) {
      library += rss;
      seen = true;
    } else if (*name == 0) {
      anonymous += rss;
    }
  }
  CHECK_MSG(seen, "liblarder is not in this process");
  say("%zu KiB of the library, %zu KiB anonymous", library, anonymous);
  CHECK_MSG(library <= library_limit, "%zu KiB of the library, at most %zu allowed", library,
            library_limit);
  CHECK_MSG(anonymous <= anonymous_limit, "%zu KiB anonymous, at most %zu allowed", anonymous,
            anonymous_limit);
  return 0;
}
