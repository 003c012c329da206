/* A growing array of bytes, for text or data that is put together piece by piece.
 *
 *   larder_bytes line;
 *   larder_bytes_init(&line);
 *   ok = larder_bytes_append(&line, "key: ", 5) && larder_bytes_append(&line, value, size);
 *   puts(larder_bytes_c_string(&line));
 *   larder_bytes_release(&line);
 *
 * It owns its memory, which it may hand over by larder_bytes_take(). One thread at a time may use
 * it. `data` is invalid after any call that may grow it. A function that fails, for want of memory
 * or beyond PTRDIFF_MAX bytes, leaves it as it was.
 *
 * Invariants: data == NULL if and only if capacity == 0; else size < capacity and data[size] == 0.
 */
#ifndef LARDER_KIT_BYTES_H
#define LARDER_KIT_BYTES_H

#include <stddef.h>
#include <string.h>

#include "memory.h"

typedef struct larder_bytes {
  char* data;
  size_t size;     /* bytes */
  size_t capacity; /* bytes, with one for the zero behind the last */
} larder_bytes;

/* Bytes: a line of text mostly fits, so that most need no second allocation. */
enum { LARDER_BYTES_LEAST_CAPACITY = 64 };

/* Before all other functions. Allocates nothing. O(1). */
static inline void larder_bytes_init(larder_bytes* bytes) {
  bytes->data = NULL;
  bytes->size = bytes->capacity = 0;
}

/* Frees the memory and leaves it empty. O(1). */
static inline void larder_bytes_release(larder_bytes* bytes) {
  LARDER_KIT_FREE(bytes->data);
  larder_bytes_init(bytes);
}

/* Makes room for `more` bytes, after which so many can be appended without failing. False if there
 * is no memory. O(1), or O(size) when it grows. */
static inline larder_bool larder_bytes_reserve(larder_bytes* bytes, size_t more) {
  if (more < bytes->capacity - bytes->size) {
    return 1;
  }
  if (more >= SIZE_MAX - bytes->size) {
    return 0;
  }
  size_t needed = bytes->size + more + 1;
  size_t grown = larder_kit_grown(bytes->capacity, needed, 1);
  if (grown == 0) {
    return 0;
  }
  if (grown < LARDER_BYTES_LEAST_CAPACITY) {
    grown = LARDER_BYTES_LEAST_CAPACITY;
  }
  char* data = (char*)LARDER_KIT_REALLOC(bytes->data, grown);
  if (data == NULL) {
    return 0;
  }
  data[bytes->size] = 0;
  bytes->data = data;
  bytes->capacity = grown;
  return 1;
}

/* Where at least `more` bytes can be written, for read() or a function that formats; then call
 * larder_bytes_commit(). NULL if there is no memory. As larder_bytes_reserve(). */
static inline char* larder_bytes_prepare(larder_bytes* bytes, size_t more) {
  return larder_bytes_reserve(bytes, more) ? bytes->data + bytes->size : NULL;
}

/* Adds `written` bytes of those that larder_bytes_prepare() gave. O(1). */
static inline void larder_bytes_commit(larder_bytes* bytes, size_t written) {
  if (written > 0) {
    bytes->size += written;
    bytes->data[bytes->size] = 0;
  }
}

/* Copies bytes to the end; they may be bytes of this array. False if there is no memory. O(size of
 * the piece) amortized. */
static inline larder_bool larder_bytes_append(larder_bytes* bytes, const void* piece,
                                              size_t size_bytes) {
  size_t inside = (size_t)((uintptr_t)piece - (uintptr_t)bytes->data);
  larder_bool own = bytes->data != NULL && inside < bytes->capacity;
  if (size_bytes == 0) {
    return 1;
  }
  char* to = larder_bytes_prepare(bytes, size_bytes);
  if (to == NULL) {
    return 0;
  }
  memcpy(to, own ? bytes->data + inside : (const char*)piece, size_bytes);
  larder_bytes_commit(bytes, size_bytes);
  return 1;
}

/* The same for one byte. */
static inline larder_bool larder_bytes_append_byte(larder_bytes* bytes, char byte) {
  if (!larder_bytes_reserve(bytes, 1)) {
    return 0;
  }
  bytes->data[bytes->size++] = byte;
  bytes->data[bytes->size] = 0;
  return 1;
}

/* Keeps the first size_bytes, at most all, and the capacity. O(1). */
static inline void larder_bytes_truncate(larder_bytes* bytes, size_t size_bytes) {
  bytes->size = size_bytes;
  if (bytes->data != NULL) {
    bytes->data[size_bytes] = 0;
  }
}

/* With a zero behind the last byte; never NULL. O(1). */
static inline const char* larder_bytes_c_string(const larder_bytes* bytes) {
  return bytes->data != NULL ? bytes->data : "";
}

/* Hands the memory over: the caller frees it, by free() unless LARDER_KIT_FREE is another. NULL if
 * nothing was ever reserved. Leaves it empty. O(1). */
static inline char* larder_bytes_take(larder_bytes* bytes) {
  char* data = bytes->data;
  larder_bytes_init(bytes);
  return data;
}

#endif
