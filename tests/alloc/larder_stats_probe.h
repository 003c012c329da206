// Finds the allocator's own statistics in the running process without linking against it, so
// that the same program runs under any malloc.
#pragma once

#include "larder/larder.h"
#include "support.h"

namespace alloctest {

using GetStats = int (*)(struct larder_stats*, size_t);

// False where the allocator is not Larder; missing statistics in Larder are a failure.
inline bool read_larder_stats(struct larder_stats* stats) {
  auto get = reinterpret_cast<GetStats>(dlsym(RTLD_DEFAULT, "larder_get_stats"));
  if (get == nullptr) {
    CHECK_MSG(!expects_larder(), "liblarder.so does not export larder_get_stats");
    return false;
  }
  CHECK_MSG(get(stats, sizeof *stats) == 0, "larder_get_stats failed");
  return true;
}

}  // namespace alloctest
