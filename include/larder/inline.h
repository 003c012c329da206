/* malloc and free inlined into the program: three or four instructions each if the size is a
 * constant and an object of that size was freed just before (docs/tasks/link-statically.md).
 *
 * Only for programs, not shared libraries, that have liblarder.a or liblarder_prefixed.a of this
 * very version linked in: the names below carry the version, so that any other leaves them
 * undefined. Objects of these functions and of the library's malloc family are the same: each may
 * be freed by either. Any thread; not in signal handlers.
 *
 * LARDER_INLINE_NEW_DELETE, defined before this is included (C++, liblarder.a only): in this source
 * file, new and delete are these functions, too.
 */
#ifndef LARDER_INLINE_H
#define LARDER_INLINE_H

#include <stddef.h>
#include <stdint.h>

#include "larder.h"

#define LARDER_INLINE_JOIN_(name, a, b, c) larder_inline_##name##_of_##a##_##b##_##c
#define LARDER_INLINE_JOIN(name, a, b, c) LARDER_INLINE_JOIN_(name, a, b, c)
#define LARDER_INLINE_NAME(name) \
  LARDER_INLINE_JOIN(name, LARDER_VERSION_MAJOR, LARDER_VERSION_MINOR, LARDER_VERSION_PATCH)

#ifdef __cplusplus
#define LARDER_INLINE inline __attribute__((always_inline))
#define LARDER_INLINE_CONSTEXPR constexpr
extern "C" {
#else
#define LARDER_INLINE static inline __attribute__((always_inline))
#define LARDER_INLINE_CONSTEXPR
#endif

/* Size classes 1 to 32: 9 to 1,024 bytes. */
#define LARDER_INLINE_MAX 1024
#define LARDER_INLINE_CLASSES 33

/* A thread's deferred frees, by size class: in use for the rest of the library. */
struct larder_inline_state {
  /* One object; LARDER_INLINE_NONE: none; or NULL: none, and none may be put here. */
  void* kept[LARDER_INLINE_CLASSES];
  /* The library's: two lists of more objects, and the room that the newer one has left. */
  void* newer[LARDER_INLINE_CLASSES];
  void* older[LARDER_INLINE_CLASSES];
  signed char room[LARDER_INLINE_CLASSES];
};
#define LARDER_INLINE_NONE ((void*)1)
#define LARDER_INLINE_IS_OBJECT(p) ((uintptr_t)(p) > 1)

#if defined(__PIC__) && !defined(__PIE__)
#define LARDER_INLINE_TLS "initial-exec"
#else
#define LARDER_INLINE_TLS "local-exec"
#endif
extern __thread struct larder_inline_state LARDER_INLINE_NAME(state)
    __attribute__((tls_model(LARDER_INLINE_TLS)));

/* The calls behind the inlined part: by size class (1 to 32), and for any size. */
void* LARDER_INLINE_NAME(malloc)(size_t size_class);
void* LARDER_INLINE_NAME(malloc_any)(size_t size);
void LARDER_INLINE_NAME(free)(void* p, size_t size_class);
void LARDER_INLINE_NAME(free_any)(void* p);

/* REQUIRES: 8 < size <= LARDER_INLINE_MAX. */
LARDER_INLINE LARDER_INLINE_CONSTEXPR size_t larder_inline_class(size_t size) {
  return size <= 128 ? (size + 15) / 16
                     : ((size - 1) >> (28 - __builtin_clz((unsigned)size - 1))) +
                           8 * (size_t)(31 - __builtin_clz((unsigned)size - 1)) - 55;
}

/* The object of this size that was freed last, if it is cached here; else NULL. */
LARDER_INLINE void* larder_inline_take(size_t size) {
  void** kept = &LARDER_INLINE_NAME(state).kept[larder_inline_class(size)];
  void* p = *kept;
  if (__builtin_expect(!LARDER_INLINE_IS_OBJECT(p), 0)) return NULL;
  *kept = LARDER_INLINE_NONE;
  return p;
}

#define LARDER_INLINE_SIZE(size) \
  (__builtin_constant_p(size) && (size) > 8 && (size) <= LARDER_INLINE_MAX)

/* Like malloc. */
LARDER_INLINE void* larder_malloc_inline(size_t size) {
  if (!LARDER_INLINE_SIZE(size)) return LARDER_INLINE_NAME(malloc_any)(size);
  void* p = larder_inline_take(size);
  return __builtin_expect(p != NULL, 1) ? p : LARDER_INLINE_NAME(malloc)(larder_inline_class(size));
}

/* Like C23's free_sized: p is NULL, or from malloc, calloc or realloc with exactly this size. */
LARDER_INLINE void larder_free_sized_inline(void* p, size_t size) {
  if (!LARDER_INLINE_SIZE(size)) {
    LARDER_INLINE_NAME(free_any)(p);
    return;
  }
  size_t size_class = larder_inline_class(size);
  void** kept = &LARDER_INLINE_NAME(state).kept[size_class];
  /* This may store NULL: the next free then calls the library. */
  if (__builtin_expect(*kept == LARDER_INLINE_NONE, 1))
    *kept = p;
  else
    LARDER_INLINE_NAME(free)(p, size_class);
}

/* Like free. A call, because the size must be looked up; the next malloc of it may be inlined. */
LARDER_INLINE void larder_free_inline(void* p) { LARDER_INLINE_NAME(free_any)(p); }

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && defined(LARDER_INLINE_NEW_DELETE)
#include <new>

/* The call behind the inlined operator new. Not in liblarder_prefixed.a, beside which the C++
 * library uses another malloc. */
extern "C" void* LARDER_INLINE_NAME(new)(size_t size);

/* Never emitted: calls that are not inlined, and addresses, use the library's operators. */
#define LARDER_INLINE_OPERATOR extern inline __attribute__((gnu_inline, always_inline))
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winline-new-delete"
#endif

LARDER_INLINE_OPERATOR void* operator new(size_t size) {
  void* p = LARDER_INLINE_SIZE(size) ? larder_inline_take(size) : NULL;
  return __builtin_expect(p != NULL, 1) ? p : LARDER_INLINE_NAME(new)(size);
}
LARDER_INLINE_OPERATOR void* operator new[](size_t size) { return ::operator new(size); }
LARDER_INLINE_OPERATOR void operator delete(void* p) noexcept { larder_free_inline(p); }
LARDER_INLINE_OPERATOR void operator delete[](void* p) noexcept { larder_free_inline(p); }
LARDER_INLINE_OPERATOR void operator delete(void* p, size_t size) noexcept {
  larder_free_sized_inline(p, size);
}
LARDER_INLINE_OPERATOR void operator delete[](void* p, size_t size) noexcept {
  larder_free_sized_inline(p, size);
}

#ifdef __clang__
#pragma clang diagnostic pop
#endif
#endif

#endif
