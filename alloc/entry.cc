// The exported malloc family: checks arguments as glibc does, then forwards. Owns nothing.
//
// With LARDER_PREFIXED the same functions are larder_malloc, larder_free and so on, and nothing of
// the process's own malloc is replaced.

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing.h"
#include "endpoint.h"
#include "foreign.h"
#include "fork.h"
#include "leak.h"
#include "os.h"
#include "plant.h"
#include "profile.h"
#include "purge.h"
#include "registry.h"
#include "survey.h"
#include "thread_heap.h"

#ifdef LARDER_PREFIXED
#define LARDER_NAME(name) larder_##name
#else
#define LARDER_NAME(name) name
#endif
#define LARDER_EXPORT extern "C" __attribute__((visibility("default")))

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

LARDER_SLOW void* no_memory() {
  errno = ENOMEM;
  return nullptr;
}

void* realloc_any(void* p, size_t size) {
  if (p == nullptr) return malloc_fast(size);
  Slab* s = page_map.find(p);
  if (unlikely(s->kind == Kind::kNull)) return foreign_realloc(p, size);
  if (unlikely(size == 0)) {
    free_fast(p);
    return nullptr;
  }
  size_t kept = plant::kept_bytes(p, s, size);
  return plant::resized(resize(p, s, size), kept);
}

LARDER_FAST void free_any(void* p) {
  if (!plant::to_be_freed(p)) return;
  free_fast(p);
  plant::freed();
}

}  // namespace
}  // namespace larder

using namespace larder;

LARDER_EXPORT void* LARDER_NAME(malloc)(size_t size) noexcept {
  return plant::handed_out(malloc_fast(plant::asked_for(size)), size);
}

LARDER_EXPORT void LARDER_NAME(free)(void* p) noexcept { free_any(p); }

LARDER_EXPORT void* LARDER_NAME(calloc)(size_t count, size_t size) noexcept {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return no_memory();
  return plant::zeroed(zeroed_alloc(bytes), bytes);
}

LARDER_EXPORT void* LARDER_NAME(realloc)(void* p, size_t size) noexcept {
  return realloc_any(p, size);
}

LARDER_EXPORT void* LARDER_NAME(reallocarray)(void* p, size_t count, size_t size) noexcept {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return no_memory();
  return realloc_any(p, bytes);
}

LARDER_EXPORT void LARDER_NAME(free_sized)(void* p, size_t) noexcept { free_any(p); }

LARDER_EXPORT void LARDER_NAME(free_aligned_sized)(void* p, size_t, size_t) noexcept {
  free_any(p);
}

LARDER_EXPORT void* LARDER_NAME(aligned_alloc)(size_t align, size_t size) noexcept {
  if (unlikely(!is_pow2(align))) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned_alloc_any(size, align);
}

LARDER_EXPORT int LARDER_NAME(posix_memalign)(void** memptr, size_t align, size_t size) noexcept {
  if (!is_pow2(align) || align % sizeof(void*) != 0) return EINVAL;
  void* p = aligned_alloc_any(size, align);
  if (p == nullptr) return ENOMEM;
  *memptr = p;
  return 0;
}

// glibc rounds an alignment that is not a power of two up, and refuses one that has none.
LARDER_EXPORT void* LARDER_NAME(memalign)(size_t align, size_t size) noexcept {
  if (unlikely(align > SIZE_MAX / 2 + 1)) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned_alloc_any(size, align < 16 ? 16 : pow2_ceil(align));
}

LARDER_EXPORT void* LARDER_NAME(valloc)(size_t size) noexcept {
  return aligned_alloc_any(size, os::page_size());
}

LARDER_EXPORT void* LARDER_NAME(pvalloc)(size_t size) noexcept {
  size_t page = os::page_size();
  if (unlikely(size > kMaxSize)) return no_memory();
  return aligned_alloc_any(size == 0 ? page : round_up(size, page), page);
}

LARDER_EXPORT size_t LARDER_NAME(malloc_usable_size)(void* p) noexcept {
  if (p == nullptr) return 0;
  Slab* s = page_map.find_any(p);
  return s->kind == Kind::kNull ? foreign_usable_size(p) : plant::usable(usable_size(s));
}

LARDER_EXPORT int LARDER_NAME(malloc_trim)(size_t) noexcept {
  int saved = errno;
  size_t bytes = release_free_memory();
  errno = saved;
  return bytes != 0 ? 1 : 0;
}

// Known parameters are accepted. None of them tunes anything here: what they describe (arenas,
// bins, the top of the heap) does not exist.
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
  Survey survey;
  survey_heap(&survey);
  size_t in_use = survey.small_in_use + survey.run_bytes,
         unused = survey.free_dirty() + survey.untouched_bytes();
  struct mallinfo2 info = {};
  info.arena = in_use + unused;
  info.ordblks = survey.slabs;
  info.hblks = survey.mappings;
  info.hblkhd = survey.huge_bytes;
  info.uordblks = in_use;
  info.fordblks = unused;
  info.keepcost = survey.free_dirty() + survey.part(Part::kKeptMappings);
  return info;
}

// As glibc's, whose figures wrap beyond 2 GiB: that is why mallinfo2 exists.
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
  Survey survey;
  survey_heap(&survey);
  size_t in_use = survey.small_in_use + survey.run_bytes,
         unused = survey.free_dirty() + survey.untouched_bytes();
  fprintf(stream,
          "<malloc version=\"larder\">\n"
          "<heap nr=\"0\">\n"
          "<total type=\"slabs\" count=\"%zu\" size=\"%zu\"/>\n"
          "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
          "<total type=\"rest\" count=\"1\" size=\"%zu\"/>\n"
          "<system type=\"current\" size=\"%zu\"/>\n"
          "</heap>\n"
          "</malloc>\n",
          survey.slabs, in_use, survey.mappings, survey.huge_bytes, unused, survey.mapped);
  return 0;
}

LARDER_EXPORT void LARDER_NAME(malloc_stats)() noexcept {
  Survey survey;
  survey_heap(&survey);
  size_t in_use = survey.small_in_use + survey.run_bytes,
         unused = survey.free_dirty() + survey.untouched_bytes();
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
                   in_use + unused, in_use, unused, survey.mapped, in_use + survey.huge_bytes,
                   survey.mappings, survey.huge_peak);
  os::write_stderr(text, size_t(n));
}

#ifndef LARDER_PREFIXED

// glibc's other names for the same, which some programs and libraries call.
#define LARDER_ALIAS(name) __attribute__((visibility("default"), alias(#name), copy(name)))
extern "C" {
LARDER_ALIAS(malloc) void* __libc_malloc(size_t) noexcept;
LARDER_ALIAS(calloc) void* __libc_calloc(size_t, size_t) noexcept;
LARDER_ALIAS(realloc) void* __libc_realloc(void*, size_t) noexcept;
LARDER_ALIAS(free) void __libc_free(void*) noexcept;
LARDER_ALIAS(free) void cfree(void*) noexcept;
LARDER_ALIAS(memalign) void* __libc_memalign(size_t, size_t) noexcept;
LARDER_ALIAS(valloc) void* __libc_valloc(size_t) noexcept;
LARDER_ALIAS(pvalloc) void* __libc_pvalloc(size_t) noexcept;
}

#define LARDER_OWN(name) __attribute__((visibility("hidden"), alias(#name), copy(name)))
extern "C" {
LARDER_OWN(calloc) void* larder_own_calloc(size_t, size_t) noexcept;
LARDER_OWN(realloc) void* larder_own_realloc(void*, size_t) noexcept;
LARDER_OWN(memalign) void* larder_own_memalign(size_t, size_t) noexcept;
LARDER_OWN(posix_memalign) int larder_own_posix_memalign(void**, size_t, size_t) noexcept;
LARDER_OWN(valloc) void* larder_own_valloc(size_t) noexcept;
LARDER_OWN(pvalloc) void* larder_own_pvalloc(size_t) noexcept;
LARDER_OWN(malloc_usable_size) size_t larder_own_malloc_usable_size(void*) noexcept;
LARDER_OWN(malloc_stats) void larder_own_malloc_stats() noexcept;
LARDER_OWN(mallopt) int larder_own_mallopt(int, int) noexcept;
LARDER_OWN(mallinfo) struct mallinfo larder_own_mallinfo() noexcept;
LARDER_OWN(mallinfo2) struct mallinfo2 larder_own_mallinfo2() noexcept;
}

#endif  // LARDER_PREFIXED
