// Whether the process has one thread: what only other threads could see then needs no atomic
// read-modify-write. glibc (2.32 on) tells; where nobody does, false. Owns nothing; any thread.
#pragma once

#include "base/base.h"

extern "C" [[gnu::weak]] char __libc_single_threaded;

namespace larder {

LARDER_FAST bool single_threaded() {
  return &__libc_single_threaded != nullptr && __libc_single_threaded != 0;
}

}  // namespace larder
