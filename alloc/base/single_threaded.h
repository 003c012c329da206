// Whether the process has one thread, so that no atomic read-modify-write is needed. glibc 2.32 and
// later say so; elsewhere the answer is false. Owns nothing; any thread.
#pragma once

#include "base/base.h"

extern "C" [[gnu::weak]] char __libc_single_threaded;

namespace larder {

LARDER_FAST bool single_threaded() {
  return &__libc_single_threaded != nullptr && __libc_single_threaded != 0;
}

}  // namespace larder
