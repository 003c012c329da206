/* An arena: allocations are freed together, back to a mark or all at once.
 *
 *   larder_arena_mark mark = larder_arena_get_mark(&arena);
 *   struct node* node = larder_arena_alloc(&arena, sizeof *node);
 *   larder_arena_reset(&arena, mark);
 *
 * It owns its chunks, which it keeps for later allocations until larder_arena_release(). One thread
 * at a time may use it. What it hands out is not cleared. Under AddressSanitizer, memory that is
 * not handed out is poisoned.
 *
 * Invariants: all bytes before `used` in the current chunk, and in all chunks before it, may be in
 * use; all others are free. current == NULL: nothing was allocated since the last reset to the
 * start.
 */
#ifndef LARDER_KIT_ARENA_H
#define LARDER_KIT_ARENA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "memory.h"

/* Its memory begins behind it, at malloc's alignment. */
typedef struct larder_arena_chunk {
  struct larder_arena_chunk* next;
  size_t size; /* bytes */
} larder_arena_chunk;

typedef struct larder_arena {
  larder_arena_chunk* first;
  larder_arena_chunk* current;
  size_t used; /* bytes, of the current chunk */
  size_t chunk_size;
} larder_arena;

typedef struct larder_arena_mark {
  larder_arena_chunk* chunk;
  size_t used;
} larder_arena_mark;

static inline char* larder_arena_memory(larder_arena_chunk* chunk) { return (char*)(chunk + 1); }

/* Before all other functions. Allocates nothing. chunk_size_bytes: of each chunk, but of one for a
 * larger allocation; a few pages suit most. */
static inline void larder_arena_init(larder_arena* arena, size_t chunk_size_bytes) {
  arena->first = arena->current = NULL;
  arena->used = 0;
  arena->chunk_size = chunk_size_bytes;
}

/* Frees all chunks and leaves the arena empty. O(chunks). */
static inline void larder_arena_release(larder_arena* arena) {
  for (larder_arena_chunk *chunk = arena->first, *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    LARDER_KIT_UNPOISON(larder_arena_memory(chunk), chunk->size);
    LARDER_KIT_FREE(chunk);
  }
  larder_arena_init(arena, arena->chunk_size);
}

/* Makes a chunk that has size_bytes the current one: the next one, if it was kept and is large
 * enough, or a new one. False if there is no memory. */
static inline larder_bool larder_arena_advance(larder_arena* arena, size_t size_bytes) {
  larder_arena_chunk** link = arena->current != NULL ? &arena->current->next : &arena->first;
  if (*link == NULL || (*link)->size < size_bytes) {
    size_t size = size_bytes > arena->chunk_size ? size_bytes : arena->chunk_size;
    if (size > (size_t)PTRDIFF_MAX - sizeof(larder_arena_chunk)) {
      return 0;
    }
    larder_arena_chunk* chunk =
        (larder_arena_chunk*)LARDER_KIT_MALLOC(sizeof(larder_arena_chunk) + size);
    if (chunk == NULL) {
      return 0;
    }
    LARDER_KIT_POISON(larder_arena_memory(chunk), size);
    chunk->size = size;
    chunk->next = *link;
    *link = chunk;
  }
  arena->current = *link;
  arena->used = 0;
  return 1;
}

/* alignment: a power of two. NULL if there is no memory; then the arena is unchanged. Valid until
 * the arena is released or reset to an earlier mark. O(1), and a malloc for each new chunk. */
static inline void* larder_arena_alloc_aligned(larder_arena* arena, size_t size_bytes,
                                               size_t alignment) {
  if (size_bytes > (size_t)PTRDIFF_MAX - alignment) {
    return NULL;
  }
  for (;;) {
    if (arena->current != NULL) {
      uintptr_t free = (uintptr_t)larder_arena_memory(arena->current) + arena->used;
      size_t padding = (size_t)(-free & (alignment - 1));
      size_t left = arena->current->size - arena->used;
      if (padding <= left && size_bytes <= left - padding) {
        char* memory = larder_arena_memory(arena->current) + arena->used + padding;
        arena->used += padding + size_bytes;
        LARDER_KIT_UNPOISON(memory, size_bytes);
        return memory;
      }
    }
    size_t padded = alignment > LARDER_KIT_ALIGNMENT ? alignment : 0;
    if (!larder_arena_advance(arena, size_bytes + padded)) {
      return NULL;
    }
  }
}

/* The same at malloc's alignment. */
static inline void* larder_arena_alloc(larder_arena* arena, size_t size_bytes) {
  return larder_arena_alloc_aligned(arena, size_bytes, LARDER_KIT_ALIGNMENT);
}

/* A copy of text or bytes, with a zero behind the last. NULL if there is no memory. O(size). */
static inline char* larder_arena_copy(larder_arena* arena, const void* bytes, size_t size_bytes) {
  char* copy = size_bytes < (size_t)PTRDIFF_MAX
                   ? (char*)larder_arena_alloc_aligned(arena, size_bytes + 1, 1)
                   : NULL;
  if (copy != NULL) {
    if (size_bytes > 0) {
      memcpy(copy, bytes, size_bytes);
    }
    copy[size_bytes] = 0;
  }
  return copy;
}

/* The present state, for larder_arena_reset(). O(1). */
static inline larder_arena_mark larder_arena_get_mark(const larder_arena* arena) {
  larder_arena_mark mark = {arena->current, arena->used};
  return mark;
}

/* Frees all that was allocated since the mark was taken. Marks that were taken since are invalid;
 * this one stays valid. O(1). */
static inline void larder_arena_reset(larder_arena* arena, larder_arena_mark mark) {
#ifdef LARDER_KIT_ASAN
  for (larder_arena_chunk* chunk = mark.chunk != NULL ? mark.chunk->next : arena->first;
       chunk != NULL; chunk = chunk->next) {
    LARDER_KIT_POISON(larder_arena_memory(chunk), chunk->size);
  }
  if (mark.chunk != NULL) {
    LARDER_KIT_POISON(larder_arena_memory(mark.chunk) + mark.used, mark.chunk->size - mark.used);
  }
#endif
  arena->current = mark.chunk;
  arena->used = mark.used;
}

/* Frees all that was allocated, and keeps the chunks. O(1). */
static inline void larder_arena_reset_all(larder_arena* arena) {
  larder_arena_mark start = {NULL, 0};
  larder_arena_reset(arena, start);
}

#endif
