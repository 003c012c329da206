/* An intrusive hash table: the links are a member of your structure, beside its key, so that an
 * insertion allocates nothing but, when the table grows, its array of buckets.
 *
 *   struct user { char name[16]; larder_hash_node link; };
 *   uint64_t hash = larder_hash_bytes(name, strlen(name), seed);
 *   if (larder_hash_find(&users, hash, same_name, name) == NULL)
 *     ok = larder_hash_insert(&users, &user->link, hash);
 *
 * The table owns its buckets alone: a node belongs to the caller and must stay where it is, with
 * its key unchanged, while it is linked. One thread at a time may change a table; if none does, any
 * number may read. The table does not shrink before larder_hash_release().
 *
 * Invariants: bucket_count == 0 or 2^n; count <= bucket_count; a node is in the bucket
 * larder_hash_bucket(table, node->hash).
 */
#ifndef LARDER_KIT_HASH_H
#define LARDER_KIT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "memory.h"

typedef struct larder_hash_node {
  struct larder_hash_node* next;
  uint64_t hash;
} larder_hash_node;

typedef struct larder_hash {
  larder_hash_node** buckets;
  size_t bucket_count;
  size_t count;
} larder_hash;

/* Whether the node has this key. */
typedef larder_bool (*larder_hash_equal)(const larder_hash_node* node, const void* key);

/* The structure that a node is a member of; not of a null pointer. */
#define LARDER_HASH_ENTRY(node, type, member) LARDER_KIT_ENTRY(node, type, member)

/* The first buckets; fewer would grow at once. */
enum { LARDER_HASH_LEAST_BUCKETS = 8 };

/* Before all other functions. Allocates nothing. */
static inline void larder_hash_init(larder_hash* table) {
  table->buckets = NULL;
  table->bucket_count = table->count = 0;
}

/* Frees the buckets and leaves an empty table. The nodes are the caller's, and may be freed before.
 * O(1). */
static inline void larder_hash_release(larder_hash* table) {
  LARDER_KIT_FREE((void*)table->buckets);
  larder_hash_init(table);
}

/* The high bits of a product, so that hashes that differ only in their high or low bits, like
 * addresses, spread as well. bucket_count > 0. */
static inline size_t larder_hash_bucket(const larder_hash* table, uint64_t hash) {
  uint64_t spread = (hash ^ (hash >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
  return (size_t)(spread >> 32) & (table->bucket_count - 1);
}

/* Makes room for `count` nodes, after which insertions up to that many do not fail. False if there
 * is no memory, or for more than 2^32 nodes; then the table is unchanged. O(nodes + buckets). */
static inline larder_bool larder_hash_reserve(larder_hash* table, size_t count) {
  size_t wanted = table->bucket_count;
  if (count > (size_t)1 << 32) {
    return 0;
  }
  if (wanted == 0) {
    wanted = LARDER_HASH_LEAST_BUCKETS;
  }
  while (wanted < count) {
    wanted *= 2;
  }
  if (wanted == table->bucket_count) {
    return 1;
  }
  larder_hash grown;
  grown.buckets = (larder_hash_node**)LARDER_KIT_MALLOC(wanted * sizeof(larder_hash_node*));
  if (grown.buckets == NULL) {
    return 0;
  }
  memset((void*)grown.buckets, 0, wanted * sizeof(larder_hash_node*));
  grown.bucket_count = wanted;
  grown.count = table->count;
  for (size_t bucket = 0; bucket < table->bucket_count; bucket++) {
    for (larder_hash_node *node = table->buckets[bucket], *next; node != NULL; node = next) {
      next = node->next;
      larder_hash_node** to = &grown.buckets[larder_hash_bucket(&grown, node->hash)];
      node->next = *to;
      *to = node;
    }
  }
  LARDER_KIT_FREE((void*)table->buckets);
  *table = grown;
  return 1;
}

/* Adds a node that is in no table. Does not look for others with its key: find first. False if the
 * table must grow and there is no memory; then the table is unchanged. O(1) amortized; the
 * insertion that doubles the table is O(count). */
static inline larder_bool larder_hash_insert(larder_hash* table, larder_hash_node* node,
                                             uint64_t hash) {
  if (table->count == table->bucket_count && !larder_hash_reserve(table, table->count + 1)) {
    return 0;
  }
  larder_hash_node** bucket = &table->buckets[larder_hash_bucket(table, hash)];
  node->hash = hash;
  node->next = *bucket;
  *bucket = node;
  table->count++;
  return 1;
}

/* A node with this hash and key, or NULL. O(1) on average. */
static inline larder_hash_node* larder_hash_find(const larder_hash* table, uint64_t hash,
                                                 larder_hash_equal equal, const void* key) {
  if (table->count == 0) {
    return NULL;
  }
  larder_hash_node* node = table->buckets[larder_hash_bucket(table, hash)];
  while (node != NULL && !(node->hash == hash && equal(node, key))) {
    node = node->next;
  }
  return node;
}

/* Takes out a node that is in the table. O(1) on average. */
static inline void larder_hash_remove(larder_hash* table, larder_hash_node* node) {
  larder_hash_node** link = &table->buckets[larder_hash_bucket(table, node->hash)];
  while (*link != node) {
    link = &(*link)->next;
  }
  *link = node->next;
  node->next = NULL;
  table->count--;
}

/* The node after this one in no particular order, the first one after NULL, NULL after the last. To
 * remove nodes on the way, take the next one first. Insertions change the order. All nodes:
 * O(nodes + buckets). */
static inline larder_hash_node* larder_hash_next(const larder_hash* table,
                                                 const larder_hash_node* node) {
  size_t bucket = 0;
  if (node != NULL) {
    if (node->next != NULL) {
      return node->next;
    }
    bucket = larder_hash_bucket(table, node->hash) + 1;
  }
  while (bucket < table->bucket_count && table->buckets[bucket] == NULL) {
    bucket++;
  }
  return bucket < table->bucket_count ? table->buckets[bucket] : NULL;
}

/* Of a 128-bit product both halves, so that each bit of the factors reaches the result. */
static inline uint64_t larder_hash_mix(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 wide;
  wide product = (wide)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A hash of bytes. Programs whose keys come from outside should choose a seed at random: that keeps
 * ready-made collisions out, not an attacker who can measure. O(size). */
static inline uint64_t larder_hash_bytes(const void* bytes, size_t size_bytes, uint64_t seed) {
  const unsigned char* at = (const unsigned char*)bytes;
  uint64_t hash = seed ^ (size_bytes * UINT64_C(0x8CB92BA72F3D8DD7));
  uint64_t word = 0;
  size_t left = size_bytes;
  for (; left > sizeof word; left -= sizeof word, at += sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = larder_hash_mix(hash ^ word, UINT64_C(0x9D39247E33776D41) ^ (hash >> 1));
  }
  word = 0;
  if (size_bytes >= sizeof word) {
    /* The last eight, some of which may have been taken before. */
    memcpy(&word, at + left - sizeof word, sizeof word);
  } else {
    for (size_t i = 0; i < left; i++) {
      word = word << 8 | at[i];
    }
  }
  /* Twice: after one product, a change of the highest bits changes few others. */
  hash = larder_hash_mix(hash ^ word ^ UINT64_C(0xB5026F5AA96619E9), UINT64_C(0xD1B54A32D192ED03));
  return larder_hash_mix(hash, UINT64_C(0x9E3779B97F4A7C15));
}

#endif
