// Start: what runs when the library is loaded, in dependency order.
#include <stdlib.h>

#include "core/foreign.h"
#include "core/fork.h"
#include "core/guard.h"
#include "core/purge.h"
#include "core/registry.h"
#include "core/thread_heap.h"
#include "leak/leak.h"
#include "os/backing.h"
#include "os/endpoint.h"
#include "os/line.h"
#include "os/os.h"
#include "sample/profile.h"

namespace larder {

namespace {

void report_missing_endpoint() {
  const char* place = secure_getenv("LARDER_LISTEN");
  if (place == nullptr || *place == 0 || &larder_endpoint_close != nullptr) return;
  Line()
      .put("LARDER_LISTEN: nothing is served without liblarder_endpoint.so: start the program by ")
      .put("`larder run`, or preload that library, too")
      .write();
}

void start_guard() {
  if (!guard_is_on()) return;
  const char* obstacle = guard_init();
  if (obstacle == nullptr) return;
  set_option(Option::kGuard, 0);
  Line().put("LARDER_GUARD: nothing is guarded: ").put(obstacle).write();
}

// Everything that takes more than the four system calls that a sandbox must allow.
[[gnu::constructor(101)]] void initialise() {
  os::cpu_count();
  backing::init();
  registry_init();
  start_slab_purge_clock();
  profile_init();
  fork_init();
  leaks_are_asked_for() ? leak_init() : os::forget_own_mappings();
  start_guard();
#ifdef LARDER_PREFIXED
  foreign_init(true);
#else
  foreign_init(false);
#endif
  purge_start();
  report_missing_endpoint();
}

}  // namespace
}  // namespace larder
