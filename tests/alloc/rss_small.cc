// Resident bytes per requested byte with 10 million small objects live.
// Usage: rss_small SIZE PERCENT: fails above requested * PERCENT / 100 + 2 MiB.
//
// The pointer array is a populated mapping made before the first figure, so it does not count.
// 24 bytes may cost 32 (alignment 16), 100 bytes 112; the constant covers what any process has.

#include "support.h"

using namespace alloctest;

int main(int argc, char** argv) {
  begin("rss_small");
  const size_t size = argument(argc, argv, 1, 16);
  const size_t percent = argument(argc, argv, 2, 102);
  const size_t count = argument(argc, argv, 3, 10'000'000);
  constexpr size_t kConstantBytes = 2 * kMiB;

  void* mapping = mmap(nullptr, count * sizeof(void*), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(mapping != MAP_FAILED);
  auto** objects = static_cast<unsigned char**>(mapping);
  const size_t before = rss_bytes();
  for (size_t i = 0; i < count; ++i) {
    objects[i] = static_cast<unsigned char*>(malloc(size));
    CHECK_MSG(objects[i] != nullptr, "malloc(%zu) number %zu failed", size, i);
    memset(objects[i], static_cast<int>(i & 0xFF), size);
  }
  const size_t resident = rss_bytes() - before;
  const size_t requested = count * size;
  const size_t limit = requested / 100 * percent + kConstantBytes;
  say("%zu objects of %zu bytes: %.1f MiB resident for %.1f MiB, ratio %.3f (limit %.2f + 2 MiB)",
      count, size, mib(resident), mib(requested),
      static_cast<double>(resident) / static_cast<double>(requested),
      static_cast<double>(percent) / 100);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < size; ++j) CHECK(objects[i][j] == (i & 0xFF));
  }
  CHECK_MSG(resident <= limit, "%zu bytes resident, at most %zu allowed", resident, limit);
  for (size_t i = 0; i < count; ++i) free(objects[i]);
  return 0;
}
