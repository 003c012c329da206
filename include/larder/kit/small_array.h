/* An array that lives within its own structure, on the stack for instance, until it outgrows that;
 * then it moves to the heap. LARDER_SMALL_ARRAY(ints, int, 16) defines the type `ints`, which holds
 * 16 items without an allocation, and its functions:
 *
 *   ints_init(&a)                before all others; O(1)
 *   ints_release(&a)             frees what the heap has; `a` is empty again; O(1)
 *   ints_push(&a, item)          false if there is no memory; O(1) amortized
 *   ints_append(&a, items, n)    the same for n items, which are not in `a`; O(n) amortized
 *   ints_reserve(&a, n)          after that, `a` takes n items in all without failing; O(count)
 *   ints_pop(&a)                 the last item, removed; `a` must not be empty; O(1)
 *   ints_truncate(&a, n)         keeps the first n items, at most all; O(1)
 *
 * Read items as a.data[i], i < a.count. Items are copied as bytes. A function that fails leaves the
 * array as it was. The array owns its memory; one thread at a time may use it. It must not be
 * copied or moved, because data may point into it. data is invalid after a call that may grow.
 *
 * Invariants: count <= capacity; data == local if and only if capacity == the number in the
 * definition.
 */
#ifndef LARDER_KIT_SMALL_ARRAY_H
#define LARDER_KIT_SMALL_ARRAY_H

#include <stddef.h>
#include <string.h>

#include "memory.h"

/* The array's new memory, with its items, and the new capacity; NULL if there is no memory. */
static inline void* larder_small_array_grow(void* data, const void* local, size_t count,
                                            size_t item_size_bytes, size_t* capacity,
                                            size_t needed) {
  size_t grown = larder_kit_grown(*capacity, needed, item_size_bytes);
  if (grown == 0) {
    return NULL;
  }
  void* moved = data == local ? LARDER_KIT_MALLOC(grown * item_size_bytes)
                              : LARDER_KIT_REALLOC(data, grown * item_size_bytes);
  if (moved == NULL) {
    return NULL;
  }
  if (data == local) {
    memcpy(moved, local, count * item_size_bytes);
  }
  *capacity = grown;
  return moved;
}

#define LARDER_SMALL_ARRAY(name, type, local_count)                                              \
  typedef struct name {                                                                          \
    type* data;                                                                                  \
    size_t count;                                                                                \
    size_t capacity;                                                                             \
    type local[local_count];                                                                     \
  } name;                                                                                        \
                                                                                                 \
  static inline void name##_init(name* array) {                                                  \
    array->data = array->local;                                                                  \
    array->count = 0;                                                                            \
    array->capacity = (local_count);                                                             \
  }                                                                                              \
                                                                                                 \
  static inline void name##_release(name* array) {                                               \
    if (array->data != array->local) {                                                           \
      LARDER_KIT_FREE(array->data);                                                              \
    }                                                                                            \
    name##_init(array);                                                                          \
  }                                                                                              \
                                                                                                 \
  static inline larder_bool name##_reserve(name* array, size_t needed) {                         \
    if (needed <= array->capacity) {                                                             \
      return 1;                                                                                  \
    }                                                                                            \
    void* grown = larder_small_array_grow(array->data, array->local, array->count, sizeof(type), \
                                          &array->capacity, needed);                             \
    if (grown == NULL) {                                                                         \
      return 0;                                                                                  \
    }                                                                                            \
    array->data = (type*)grown;                                                                  \
    return 1;                                                                                    \
  }                                                                                              \
                                                                                                 \
  static inline larder_bool name##_push(name* array, type item) {                                \
    if (array->count == array->capacity && !name##_reserve(array, array->count + 1)) {           \
      return 0;                                                                                  \
    }                                                                                            \
    array->data[array->count++] = item;                                                          \
    return 1;                                                                                    \
  }                                                                                              \
                                                                                                 \
  static inline larder_bool name##_append(name* array, const type* items, size_t count) {        \
    if (count > SIZE_MAX - array->count || !name##_reserve(array, array->count + count)) {       \
      return 0;                                                                                  \
    }                                                                                            \
    if (count > 0) {                                                                             \
      memcpy(array->data + array->count, items, count * sizeof(type));                           \
    }                                                                                            \
    array->count += count;                                                                       \
    return 1;                                                                                    \
  }                                                                                              \
                                                                                                 \
  static inline type name##_pop(name* array) { return array->data[--array->count]; }             \
                                                                                                 \
  static inline void name##_truncate(name* array, size_t count) { array->count = count; }        \
                                                                                                 \
  /* Takes the semicolon behind the macro. */                                                    \
  struct name

#endif
