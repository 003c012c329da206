// glibc's statistics and settings of a heap: malloc_trim, mallopt, mallinfo, malloc_info,
// malloc_stats. Owns nothing. Cost: a heap walk (statistics/heap_walk.h), except for mallopt.
#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include "core/exported.h"
#include "core/purge.h"
#include "core/thread_heap.h"
#include "os/os.h"
#include "statistics/heap_walk.h"

using namespace larder;

LARDER_EXPORT int LARDER_NAME(malloc_trim)(size_t) noexcept {
  int saved = errno;
  size_t bytes = release_free_memory();
  errno = saved;
  return bytes != 0 ? 1 : 0;
}

// Accepts known parameters. None has an effect: arenas, bins and the top of the heap do not exist
// here.
LARDER_EXPORT int LARDER_NAME(mallopt)(int parameter, int) noexcept {
  switch (parameter) {
    case M_MXFAST:
    case M_NLBLKS:
    case M_GRAIN:
    case M_KEEP:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
      return 1;
    default:
      return 0;
  }
}

LARDER_EXPORT struct mallinfo2 LARDER_NAME(mallinfo2)() noexcept {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  size_t in_use = snapshot.small_in_use + snapshot.span_bytes,
         unused = snapshot.free_dirty() + snapshot.untouched_bytes();
  struct mallinfo2 info = {};
  info.arena = in_use + unused;
  info.ordblks = snapshot.slabs;
  info.hblks = snapshot.mappings;
  info.hblkhd = snapshot.huge_bytes;
  info.uordblks = in_use;
  info.fordblks = unused;
  info.keepcost = snapshot.free_dirty() + snapshot.part(Part::kCachedMappings);
  return info;
}

// The figures wrap beyond 2 GiB, like glibc's: mallinfo2 exists for that.
LARDER_EXPORT struct mallinfo LARDER_NAME(mallinfo)() noexcept {
  struct mallinfo2 wide = LARDER_NAME(mallinfo2)();
  struct mallinfo info = {};
  info.arena = int(wide.arena);
  info.ordblks = int(wide.ordblks);
  info.hblks = int(wide.hblks);
  info.hblkhd = int(wide.hblkhd);
  info.uordblks = int(wide.uordblks);
  info.fordblks = int(wide.fordblks);
  info.keepcost = int(wide.keepcost);
  return info;
}

LARDER_EXPORT int LARDER_NAME(malloc_info)(int options, FILE* stream) noexcept {
  if (options != 0) return EINVAL;
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  size_t in_use = snapshot.small_in_use + snapshot.span_bytes,
         unused = snapshot.free_dirty() + snapshot.untouched_bytes();
  fprintf(stream,
          "<malloc version=\"larder\">\n"
          "<heap nr=\"0\">\n"
          "<total type=\"slabs\" count=\"%zu\" size=\"%zu\"/>\n"
          "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
          "<total type=\"rest\" count=\"1\" size=\"%zu\"/>\n"
          "<system type=\"current\" size=\"%zu\"/>\n"
          "</heap>\n"
          "</malloc>\n",
          snapshot.slabs, in_use, snapshot.mappings, snapshot.huge_bytes, unused, snapshot.mapped);
  return 0;
}

LARDER_EXPORT void LARDER_NAME(malloc_stats)() noexcept {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  size_t in_use = snapshot.small_in_use + snapshot.span_bytes,
         unused = snapshot.free_dirty() + snapshot.untouched_bytes();
  char text[512];
  int n = snprintf(text, sizeof text,
                   "Larder:\n"
                   "system bytes     = %10zu\n"
                   "in use bytes     = %10zu\n"
                   "free bytes       = %10zu\n"
                   "Total (incl. mmap):\n"
                   "system bytes     = %10zu\n"
                   "in use bytes     = %10zu\n"
                   "mmap regions     = %10zu\n"
                   "max mmap bytes   = %10zu\n",
                   in_use + unused, in_use, unused, snapshot.mapped, in_use + snapshot.huge_bytes,
                   snapshot.mappings, snapshot.huge_peak);
  os::write_stderr(text, size_t(n));
}

#ifndef LARDER_PREFIXED
extern "C" {
LARDER_OWN(malloc_stats) void larder_own_malloc_stats() noexcept;
LARDER_OWN(mallopt) int larder_own_mallopt(int, int) noexcept;
LARDER_OWN(mallinfo) struct mallinfo larder_own_mallinfo() noexcept;
LARDER_OWN(mallinfo2) struct mallinfo2 larder_own_mallinfo2() noexcept;
}
#endif
