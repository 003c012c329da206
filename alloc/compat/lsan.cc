// LeakSanitizer's functions, as <sanitizer/lsan_interface.h> declares them. Weak: a program's own
// take precedence. Without HEAPCHECK they do nothing.
#include "leak/leak.h"

using namespace larder;

#define LARDER_LSAN(type) extern "C" [[gnu::weak, gnu::visibility("default")]] type

// NOLINTBEGIN(misc-use-internal-linkage)
LARDER_LSAN(void) __lsan_disable() { leak_disable(1); }
LARDER_LSAN(void) __lsan_enable() { leak_disable(-1); }

LARDER_LSAN(void) __lsan_ignore_object(const void* p) {
  if (leak_is_active()) leak_ignore(p, true);
}

// Not 0 if leaks were reported.
LARDER_LSAN(int) __lsan_do_recoverable_leak_check() {
  if (!leak_is_active()) return 0;
  __builtin_unwind_init();  // spills the caller's registers to this frame
  LeakList list;
  return leak_check("_main_", 0, &list) ? 0 : 1;
}

// Replaces the check at the end of the program.
LARDER_LSAN(void) __lsan_do_leak_check() {
  if (!leak_is_active() || !leak_cancel()) return;
  __builtin_unwind_init();
  LeakList list;
  if (!leak_check("_main_", 0, &list)) leak_exit();
}
// NOLINTEND(misc-use-internal-linkage)
