// What runs when the library is loaded, in the order in which its parts need each other.
#include <stdlib.h>

#include "core/foreign.h"
#include "core/fork.h"
#include "core/purge.h"
#include "core/registry.h"
#include "core/thread_heap.h"
#include "endpoint/endpoint.h"
#include "leak/leak.h"
#include "os/backing.h"
#include "os/os.h"
#include "sample/profile.h"

namespace larder {

namespace {

// What takes more than the four system calls that a sandbox must leave us happens here.
[[gnu::constructor(101)]] void initialise() {
  os::cpu_count();
  backing::init();
  registry_init();
  start_thinning();
  profile_init();
  fork_init();
  leaks_are_asked_for() ? leak_init() : os::forget_own_mappings();
#ifndef LARDER_PREFIXED
  foreign_init();
#endif
  purge_start_background();
  // Who does not ask for it does not touch its code.
  const char* listen = secure_getenv("LARDER_LISTEN");
  if (listen != nullptr && *listen != 0) endpoint_init();
}

}  // namespace
}  // namespace larder
