/* An interning table: equal texts give the same pointer, so that they are stored once and compared
 * as pointers.
 *
 *   const char* name = larder_intern_add(&names, token, token_size);
 *   if (name == keyword_if) ...
 *
 * It owns the texts, which have a zero behind them, do not move, and are freed together by
 * larder_intern_release(). One thread at a time may add to it; while none does, any number may
 * find.
 *
 * Invariant: no two entries have the same bytes.
 */
#ifndef LARDER_KIT_INTERN_H
#define LARDER_KIT_INTERN_H

#include <stddef.h>
#include <string.h>

#include "arena.h"
#include "hash.h"

/* The text is behind it, in the same allocation. */
typedef struct larder_intern_entry {
  larder_hash_node link;
  size_t size; /* bytes */
} larder_intern_entry;

typedef struct larder_intern {
  larder_hash entries;
  larder_arena memory;
  uint64_t seed;
} larder_intern;

typedef struct larder_intern_key {
  const void* bytes;
  size_t size;
} larder_intern_key;

/* Bytes of a chunk: a malloc for some hundred words. */
enum { LARDER_INTERN_CHUNK_BYTES = 16 << 10 };

/* Before all other functions. Allocates nothing. `seed`: larder_hash_bytes(). */
static inline void larder_intern_init(larder_intern* table, uint64_t seed) {
  larder_hash_init(&table->entries);
  larder_arena_init(&table->memory, LARDER_INTERN_CHUNK_BYTES);
  table->seed = seed;
}

/* Frees all texts and leaves the table empty. O(chunks). */
static inline void larder_intern_release(larder_intern* table) {
  larder_hash_release(&table->entries);
  larder_arena_release(&table->memory);
}

static inline larder_bool larder_intern_equal(const larder_hash_node* node, const void* key) {
  const larder_intern_entry* entry = LARDER_HASH_ENTRY(node, larder_intern_entry, link);
  const larder_intern_key* wanted = (const larder_intern_key*)key;
  return entry->size == wanted->size &&
         (wanted->size == 0 || memcmp(entry + 1, wanted->bytes, wanted->size) == 0);
}

static inline const char* larder_intern_look_up(const larder_intern* table, uint64_t hash,
                                                const void* bytes, size_t size_bytes) {
  larder_intern_key key = {bytes, size_bytes};
  larder_hash_node* node = larder_hash_find(&table->entries, hash, larder_intern_equal, &key);
  return node == NULL ? NULL
                      : (const char*)(LARDER_HASH_ENTRY(node, larder_intern_entry, link) + 1);
}

/* The text of these bytes, or NULL if it was not added. Allocates nothing. O(size). */
static inline const char* larder_intern_find(const larder_intern* table, const void* bytes,
                                             size_t size_bytes) {
  return larder_intern_look_up(table, larder_hash_bytes(bytes, size_bytes, table->seed), bytes,
                               size_bytes);
}

/* The text of these bytes, added if it is new. NULL if there is no memory; then no text is added.
 * O(size) amortized. */
static inline const char* larder_intern_add(larder_intern* table, const void* bytes,
                                            size_t size_bytes) {
  uint64_t hash = larder_hash_bytes(bytes, size_bytes, table->seed);
  const char* found = larder_intern_look_up(table, hash, bytes, size_bytes);
  if (found != NULL) {
    return found;
  }
  if (size_bytes >= (size_t)PTRDIFF_MAX - sizeof(larder_intern_entry) ||
      !larder_hash_reserve(&table->entries, table->entries.count + 1)) {
    return NULL;
  }
  larder_intern_entry* entry = (larder_intern_entry*)larder_arena_alloc_aligned(
      &table->memory, sizeof(larder_intern_entry) + size_bytes + 1, sizeof(void*));
  if (entry == NULL) {
    return NULL;
  }
  char* text = (char*)(entry + 1);
  entry->size = size_bytes;
  if (size_bytes > 0) {
    memcpy(text, bytes, size_bytes);
  }
  text[size_bytes] = 0;
  /* There is room in the table, so this does not fail. */
  (void)larder_hash_insert(&table->entries, &entry->link, hash);
  return text;
}

/* The size of a text that larder_intern_add() gave, in bytes. O(1). */
static inline size_t larder_intern_size(const char* text) {
  return ((const larder_intern_entry*)(const void*)text)[-1].size;
}

#endif
