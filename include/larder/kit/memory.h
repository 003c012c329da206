/* What the parts of the kit share: where their memory comes from, and arithmetic on sizes.
 *
 * Owns nothing. A program may define LARDER_KIT_MALLOC, LARDER_KIT_REALLOC and LARDER_KIT_FREE, all
 * three, before it includes any part; all files that use one structure need the same definitions.
 * They are called like malloc, realloc and free, with null pointers, too, and return memory of the
 * same alignment.
 */
#ifndef LARDER_KIT_MEMORY_H
#define LARDER_KIT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX != UINT64_MAX
#error "larder/kit needs a 64-bit system"
#endif

/* Not <stdbool.h>, which would change the meaning of a program's own `bool` behind it. */
#ifdef __cplusplus
typedef bool larder_bool;
#else
typedef _Bool larder_bool;
#endif

#ifndef LARDER_KIT_MALLOC
#include <stdlib.h>
#define LARDER_KIT_MALLOC malloc
#define LARDER_KIT_REALLOC realloc
#define LARDER_KIT_FREE free
#endif

/* A structure from a pointer to one of its members; not of a null pointer. */
#define LARDER_KIT_ENTRY(pointer, type, member) \
  ((type*)(void*)((char*)(pointer) - offsetof(type, member)))

/* Under AddressSanitizer a pool and an arena poison what is not handed out, so that its use is
 * reported like that of freed memory. */
#if defined(__SANITIZE_ADDRESS__)
#define LARDER_KIT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LARDER_KIT_ASAN 1
#endif
#endif
#ifdef LARDER_KIT_ASAN
#include <sanitizer/asan_interface.h>
#define LARDER_KIT_POISON(p, size_bytes) __asan_poison_memory_region((p), (size_bytes))
#define LARDER_KIT_UNPOISON(p, size_bytes) __asan_unpoison_memory_region((p), (size_bytes))
#else
#define LARDER_KIT_POISON(p, size_bytes) ((void)(p), (void)(size_bytes))
#define LARDER_KIT_UNPOISON(p, size_bytes) ((void)(p), (void)(size_bytes))
#endif

/* malloc's alignment on every 64-bit Linux. */
enum { LARDER_KIT_ALIGNMENT = 16 };

/* The next capacity of an array that must hold `needed` items of item_size_bytes: twice the present
 * one, so that each item is copied less than twice on average, or more if that is not enough.
 * 0 if the array were larger than PTRDIFF_MAX. */
static inline size_t larder_kit_grown(size_t capacity, size_t needed, size_t item_size_bytes) {
  size_t most = (size_t)PTRDIFF_MAX / item_size_bytes;
  if (needed > most) {
    return 0;
  }
  if (capacity > most / 2) {
    return most;
  }
  return needed > 2 * capacity ? needed : 2 * capacity;
}

#endif
