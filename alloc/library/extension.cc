// Larder's own interface (include/larder/larder.h).

#include <errno.h>
#include <string.h>

#include "core/limit.h"
#include "core/pressure.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "larder/larder.h"
#include "os/options.h"
#include "sample/profile.h"
#include "statistics/statistics.h"

#define LARDER_EXPORT extern "C" __attribute__((visibility("default")))

#define LARDER_STRING_(x) #x
#define LARDER_STRING(x) LARDER_STRING_(x)

LARDER_EXPORT const char* larder_version() {
  return LARDER_STRING(LARDER_VERSION_MAJOR) "." LARDER_STRING(
      LARDER_VERSION_MINOR) "." LARDER_STRING(LARDER_VERSION_PATCH);
}

LARDER_EXPORT int larder_get_stats(larder_stats* out, size_t size) {
  if (out == nullptr || size < sizeof(uint64_t)) return -1;
  larder_stats s;
  larder::fill_statistics(&s);
  s.size = size < sizeof s ? size : sizeof s;
  memcpy(out, &s, s.size);
  return 0;
}

LARDER_EXPORT int larder_stats_json(int file) {
  auto sink = [](void* to, const char* text, size_t bytes) {
    return -larder::os::write(*static_cast<int*>(to), text, bytes);
  };
  int error = larder::write_statistics(sink, &file);
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

LARDER_EXPORT void larder_profile_set_mean(size_t bytes) { larder::set_sample_mean(bytes); }

LARDER_EXPORT int larder_profile_write(int file) {
  int error = larder::profile_write(file);
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

LARDER_EXPORT int larder_profile_mark() {
  int error = larder::profile_mark();
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

LARDER_EXPORT int larder_set_limit(larder_limit which, size_t bytes) {
  if (which != LARDER_SOFT_LIMIT && which != LARDER_HARD_LIMIT) {
    errno = EINVAL;
    return -1;
  }
  size_t mib = (bytes >> 20) + ((bytes & ((1 << 20) - 1)) != 0 ? 1 : 0);
  using larder::Option;
  larder::set_option(which == LARDER_SOFT_LIMIT ? Option::kSoftLimitMib : Option::kHeapLimitMib,
                     mib);
  larder::SlowPath path;
  if (path.entered()) larder::relieve_pressure();
  return 0;
}

LARDER_EXPORT size_t larder_get_limit(larder_limit which) {
  return which == LARDER_SOFT_LIMIT   ? larder::limit::soft()
         : which == LARDER_HARD_LIMIT ? larder::limit::hard()
                                      : 0;
}

LARDER_EXPORT int larder_set_pressure_callback(larder::PressureCallback function, void* context) {
  larder::set_pressure_callback(function, context);
  return 0;
}

LARDER_EXPORT size_t larder_release_free_memory() { return larder::release_free_memory(); }
