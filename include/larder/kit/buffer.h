/* Counted buffers: bytes that several views share instead of copying them. The count and the bytes
 * are one allocation, freed with its last view.
 *
 *   larder_buffer in, line;
 *   larder_buffer_init(&in, LARDER_BUFFER_ONE_THREAD);
 *   ok = larder_buffer_append(&in, bytes, size);
 *   larder_buffer_split_front(&in, 80, &line);    no copy; `in` still takes appends
 *   larder_buffer_release(&line);
 *
 * A larder_buffer is a view, and owns a share of its block. What is in a view never changes: only
 * bytes are appended. One thread at a time may use a view. Views of one block may belong to
 * different threads only if it was begun with LARDER_BUFFER_THREADS: then counts are atomic, at
 * two locked instructions for each view, and more time where threads use one block at once. A
 * function that fails, for want of memory or beyond PTRDIFF_MAX bytes, changes nothing.
 *
 * Invariants: block->count == number of views with this block; data + size + room is within the
 * block; the rooms of two views do not overlap, nor does a room overlap a view. So a view may be
 * appended to in place while others are read.
 */
#ifndef LARDER_KIT_BUFFER_H
#define LARDER_KIT_BUFFER_H

#include <stddef.h>
#include <string.h>

#include "memory.h"

typedef enum larder_buffer_sharing {
  LARDER_BUFFER_ONE_THREAD,
  LARDER_BUFFER_THREADS
} larder_buffer_sharing;

/* The bytes are behind it. */
typedef struct larder_buffer_block {
  size_t count; /* atomic with LARDER_BUFFER_THREADS */
  size_t capacity;
} larder_buffer_block;

typedef struct larder_buffer {
  const char* data;
  size_t size; /* bytes */
  size_t room; /* bytes behind the last that this view alone may write */
  larder_buffer_block* block;
  larder_buffer_sharing sharing;
} larder_buffer;

/* Bytes: a line of text mostly fits, so that most need no second allocation. */
enum { LARDER_BUFFER_LEAST_CAPACITY = 112 };

/* Before all other functions: an empty view without a block. Allocates nothing. O(1). */
static inline void larder_buffer_init(larder_buffer* buffer, larder_buffer_sharing sharing) {
  buffer->data = NULL;
  buffer->size = buffer->room = 0;
  buffer->block = NULL;
  buffer->sharing = sharing;
}

static inline char* larder_buffer_memory(larder_buffer_block* block) { return (char*)(block + 1); }

/* Gives up the share, and leaves the view empty. Frees the block of the last view. O(1). */
static inline void larder_buffer_release(larder_buffer* buffer) {
  larder_buffer_block* block = buffer->block;
  if (block != NULL) {
    /* Release: all reads of this view are before the free. Acquire: so are those of the others. */
    size_t left = buffer->sharing == LARDER_BUFFER_THREADS
                      ? __atomic_sub_fetch(&block->count, 1, __ATOMIC_ACQ_REL)
                      : --block->count;
    if (left == 0) {
      LARDER_KIT_FREE(block);
    }
  }
  larder_buffer_init(buffer, buffer->sharing);
}

/* Whether this is the block's only view, or has none. O(1). */
static inline larder_bool larder_buffer_is_unique(const larder_buffer* buffer) {
  if (buffer->block == NULL) {
    return 1;
  }
  /* Acquire: the threads that gave up the other views have read them. */
  return (buffer->sharing == LARDER_BUFFER_THREADS
              ? __atomic_load_n(&buffer->block->count, __ATOMIC_ACQUIRE)
              : buffer->block->count) == 1;
}

/* `view` becomes a second view of size_bytes from byte `from` on, which must be within `buffer`. It
 * is overwritten: release first what it has. O(1). */
static inline void larder_buffer_share(const larder_buffer* buffer, size_t from, size_t size_bytes,
                                       larder_buffer* view) {
  *view = *buffer;
  view->room = 0;
  view->size = size_bytes;
  if (view->block != NULL) {
    view->data += from;
    /* Relaxed: the view that is copied keeps the block. */
    if (buffer->sharing == LARDER_BUFFER_THREADS) {
      __atomic_add_fetch(&view->block->count, 1, __ATOMIC_RELAXED);
    } else {
      view->block->count++;
    }
  }
}

/* Moves the first size_bytes, at most all, to `front`, which is overwritten. `buffer` keeps the
 * rest, and its room. O(1). */
static inline void larder_buffer_split_front(larder_buffer* buffer, size_t size_bytes,
                                             larder_buffer* front) {
  larder_buffer_share(buffer, 0, size_bytes, front);
  if (buffer->block != NULL) {
    buffer->data += size_bytes;
    buffer->size -= size_bytes;
  }
}

/* Drops the first size_bytes, at most all. O(1). */
static inline void larder_buffer_drop_front(larder_buffer* buffer, size_t size_bytes) {
  if (buffer->block != NULL) {
    buffer->data += size_bytes;
    buffer->size -= size_bytes;
  }
}

/* Keeps the first size_bytes, at most all. O(1). */
static inline void larder_buffer_truncate(larder_buffer* buffer, size_t size_bytes) {
  /* The bytes may be in other views, so they are no room. */
  buffer->room = size_bytes == buffer->size ? buffer->room : 0;
  buffer->size = size_bytes;
}

/* Gives the view a block with so much capacity, of its own, at whose start its bytes are. */
static inline larder_bool larder_buffer_move(larder_buffer* buffer, size_t capacity) {
  larder_buffer_block* old = buffer->block;
  larder_bool whole =
      old != NULL && buffer->data == larder_buffer_memory(old) && larder_buffer_is_unique(buffer);
  larder_buffer_block* block = (larder_buffer_block*)LARDER_KIT_REALLOC(
      whole ? (void*)old : NULL, sizeof(larder_buffer_block) + capacity);
  if (block == NULL) {
    return 0;
  }
  if (!whole) {
    size_t size = buffer->size;
    if (size > 0) {
      memcpy(larder_buffer_memory(block), buffer->data, size);
    }
    larder_buffer_release(buffer);
    buffer->size = size;
    block->count = 1;
  }
  block->capacity = capacity;
  buffer->block = block;
  buffer->data = larder_buffer_memory(block);
  buffer->room = capacity - buffer->size;
  return 1;
}

/* Makes room for `more` bytes: by moving this view's bytes to the start of its block, if it is the
 * only view and at least as many were dropped, or by a larger block. False if there is no memory.
 * O(1), or O(size) when bytes move. */
static inline larder_bool larder_buffer_reserve(larder_buffer* buffer, size_t more) {
  if (more <= buffer->room && buffer->block != NULL) {
    return 1;
  }
  if (more > (size_t)PTRDIFF_MAX - sizeof(larder_buffer_block) - buffer->size) {
    return 0;
  }
  size_t needed = buffer->size + more;
  if (buffer->block != NULL && larder_buffer_is_unique(buffer)) {
    char* start = larder_buffer_memory(buffer->block);
    size_t dropped = (size_t)(buffer->data - start);
    /* What other views had is room again. */
    buffer->room = buffer->block->capacity - dropped - buffer->size;
    if (more <= buffer->room) {
      return 1;
    }
    if (needed <= buffer->block->capacity && dropped >= buffer->size) {
      /* Not beyond what was dropped, so nothing overlaps. */
      memcpy(start, buffer->data, buffer->size);
      buffer->data = start;
      buffer->room = buffer->block->capacity - buffer->size;
      return 1;
    }
  }
  size_t grown = larder_kit_grown(buffer->size, needed, 1);
  if (grown < LARDER_BUFFER_LEAST_CAPACITY) {
    grown = LARDER_BUFFER_LEAST_CAPACITY;
  }
  if (grown > (size_t)PTRDIFF_MAX - sizeof(larder_buffer_block)) {
    grown = needed;
  }
  return larder_buffer_move(buffer, grown);
}

/* Where at least `more` bytes can be written, for read() for instance; then call
 * larder_buffer_commit(). NULL if there is no memory. As larder_buffer_reserve(). */
static inline char* larder_buffer_prepare(larder_buffer* buffer, size_t more) {
  if (!larder_buffer_reserve(buffer, more)) {
    return NULL;
  }
  char* memory = larder_buffer_memory(buffer->block);
  return memory + (size_t)(buffer->data - memory) + buffer->size;
}

/* Adds `written` bytes of those that larder_buffer_prepare() gave. O(1). */
static inline void larder_buffer_commit(larder_buffer* buffer, size_t written) {
  buffer->size += written;
  buffer->room -= written;
}

/* Copies bytes, which are not in this view, to the end. False if there is no memory. O(size of the
 * piece) amortized. */
static inline larder_bool larder_buffer_append(larder_buffer* buffer, const void* piece,
                                               size_t size_bytes) {
  if (size_bytes == 0) {
    return 1;
  }
  char* to = larder_buffer_prepare(buffer, size_bytes);
  if (to == NULL) {
    return 0;
  }
  memcpy(to, piece, size_bytes);
  larder_buffer_commit(buffer, size_bytes);
  return 1;
}

#endif
