// LeakSanitizer's calls, as the compiler's <sanitizer/lsan_interface.h> declares them. Weak: a
// program that has its own keeps it. Without HEAPCHECK they do nothing.
#include "leak/leak.h"

using namespace larder;

#define LARDER_LSAN(type) extern "C" [[gnu::weak, gnu::visibility("default")]] type

// NOLINTBEGIN(misc-use-internal-linkage)
LARDER_LSAN(void) __lsan_disable() { leak_disable(1); }
LARDER_LSAN(void) __lsan_enable() { leak_disable(-1); }

LARDER_LSAN(void) __lsan_ignore_object(const void* p) {
  if (leak_is_active()) leak_ignore(p, true);
}

// There are leaks, which have been told: not 0.
LARDER_LSAN(int) __lsan_do_recoverable_leak_check() {
  if (!leak_is_active()) return 0;
  __builtin_unwind_init();  // the caller's registers are looked at on this frame
  LeakList list;
  return leak_check("_main_", 0, &list) ? 0 : 1;
}

// Instead of the check when the program ends.
LARDER_LSAN(void) __lsan_do_leak_check() {
  if (!leak_is_active() || !leak_cancel()) return;
  __builtin_unwind_init();
  LeakList list;
  if (!leak_check("_main_", 0, &list)) leak_exit();
}
// NOLINTEND(misc-use-internal-linkage)
