/* A pool of objects of one size: a freed object is handed out again next.
 *
 *   larder_pool_init(&nodes, sizeof(struct node));
 *   struct node* node = larder_pool_get(&nodes);
 *   larder_pool_put(&nodes, node);
 *   larder_pool_release(&nodes);
 *
 * It owns its chunks, and frees them all at once in larder_pool_release(), with objects that were
 * not put back. One thread at a time may use it. Objects are aligned as by malloc, and not cleared.
 * Under AddressSanitizer, objects that are not handed out are poisoned.
 *
 * Invariant: of the newest chunk the first `carved` of `objects` were handed out before, of all
 * others all objects; those that are not in use are in the free list.
 */
#ifndef LARDER_KIT_POOL_H
#define LARDER_KIT_POOL_H

#include <stddef.h>

#include "memory.h"

/* Its objects begin behind it, at malloc's alignment. */
typedef struct larder_pool_chunk {
  struct larder_pool_chunk* next;
  size_t objects; /* count, of this chunk */
} larder_pool_chunk;

/* What an object holds while it is free. */
typedef struct larder_pool_free {
  struct larder_pool_free* next;
} larder_pool_free;

typedef struct larder_pool {
  larder_pool_chunk* newest;
  larder_pool_free* free;
  size_t carved; /* count, of the newest chunk */
  size_t object_size;
} larder_pool;

/* The first chunk has so many objects, each later one twice as many as the one before, up to so
 * many bytes: few mallocs for a large pool, little waste in a small one. */
enum { LARDER_POOL_FIRST_OBJECTS = 16, LARDER_POOL_CHUNK_BYTES = 64 << 10 };

/* Before all other functions. Allocates nothing. The size of the objects is at most
 * PTRDIFF_MAX / 32. */
static inline void larder_pool_init(larder_pool* pool, size_t object_size_bytes) {
  size_t step = sizeof(larder_pool_free);
  /* A type's size is a multiple of its alignment, so each object is aligned like the first. */
  pool->object_size = (object_size_bytes + step - 1) / step * step;
  if (pool->object_size == 0) {
    pool->object_size = step;
  }
  pool->newest = NULL;
  pool->free = NULL;
  pool->carved = 0;
}

/* Frees all chunks, with all objects, and leaves the pool empty. O(chunks). */
static inline void larder_pool_release(larder_pool* pool) {
  for (larder_pool_chunk *chunk = pool->newest, *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    LARDER_KIT_UNPOISON(chunk + 1, chunk->objects * pool->object_size);
    LARDER_KIT_FREE(chunk);
  }
  larder_pool_init(pool, pool->object_size);
}

static inline larder_bool larder_pool_add_chunk(larder_pool* pool) {
  size_t objects = LARDER_POOL_FIRST_OBJECTS;
  if (pool->newest != NULL) {
    objects = pool->newest->objects;
    if (objects * pool->object_size <= LARDER_POOL_CHUNK_BYTES / 2) {
      objects *= 2;
    }
  }
  size_t size_bytes = objects * pool->object_size;
  larder_pool_chunk* chunk =
      (larder_pool_chunk*)LARDER_KIT_MALLOC(sizeof(larder_pool_chunk) + size_bytes);
  if (chunk == NULL) {
    return 0;
  }
  LARDER_KIT_POISON(chunk + 1, size_bytes);
  chunk->next = pool->newest;
  chunk->objects = objects;
  pool->newest = chunk;
  pool->carved = 0;
  return 1;
}

/* An object; NULL if there is no memory, and then the pool is unchanged. O(1), and a malloc for
 * each new chunk. */
static inline void* larder_pool_get(larder_pool* pool) {
  larder_pool_free* object = pool->free;
  if (object != NULL) {
    LARDER_KIT_UNPOISON(object, pool->object_size);
    pool->free = object->next;
    return object;
  }
  if ((pool->newest == NULL || pool->carved == pool->newest->objects) &&
      !larder_pool_add_chunk(pool)) {
    return NULL;
  }
  char* memory = (char*)(pool->newest + 1) + pool->carved * pool->object_size;
  pool->carved++;
  LARDER_KIT_UNPOISON(memory, pool->object_size);
  return memory;
}

/* Gives an object of this pool back, once; not NULL. O(1). */
static inline void larder_pool_put(larder_pool* pool, void* object) {
  larder_pool_free* freed = (larder_pool_free*)object;
  freed->next = pool->free;
  pool->free = freed;
  LARDER_KIT_POISON(object, pool->object_size);
}

#endif
