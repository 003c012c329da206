// The program that must work on a built allocator before it counts as a peer: two threads at a time
// allocate, resize and free, and pass every other block to each other. Each block has a pattern of
// its own address and size, which is checked before it is freed.
//
//   churn [FUNCTION...]
//
// FUNCTION names a `bool f(void)` of the allocator that must return true (such as "the fast caches
// are on"). Prints "ok", then waits for the end of its input, so that its maps can be read. Exit:
// 0; 1 with one line on standard error.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSlots = 512, kSteps = 12000, kRounds = 6 };

struct Block {
  unsigned char* bytes;
  size_t size;
};

struct Side {
  unsigned random;
  // Filled by this side, emptied by the other one; NULL if empty.
  _Atomic(struct Block*) handed[kSlots];
  struct Side* other;
};

static void fail(const char* what, size_t size) {
  fprintf(stderr, "churn: %s (block of %zu bytes)\n", what, size);
  exit(1);
}

static unsigned next_random(struct Side* side) {
  side->random = side->random * 1664525u + 1013904223u;
  return side->random >> 8;
}

static size_t random_size(struct Side* side) {
  const unsigned magnitude = next_random(side) % 14;
  return 1 + next_random(side) % (8u << magnitude);
}

static unsigned char pattern(const struct Block* block) {
  return (unsigned char)((uintptr_t)block >> 4 ^ block->size);
}

static void fill(struct Block* block) {
  if (malloc_usable_size(block->bytes) < block->size)
    fail("usable size below the size", block->size);
  memset(block->bytes, pattern(block), block->size);
}

static void check(const struct Block* block, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (block->bytes[i] != pattern(block)) fail("content lost", block->size);
  }
}

static struct Block* make(struct Side* side) {
  struct Block* block = malloc(sizeof *block);
  if (block == NULL) fail("malloc failed", sizeof *block);
  block->size = random_size(side);
  const unsigned kind = next_random(side) % 8;
  if (kind == 0) {
    block->bytes = calloc(1, block->size);
    for (size_t i = 0; block->bytes != NULL && i < block->size; ++i) {
      if (block->bytes[i] != 0) fail("calloc is not zero", block->size);
    }
  } else if (kind == 1) {
    void* aligned = NULL;
    if (posix_memalign(&aligned, 64, block->size) != 0) aligned = NULL;
    if ((uintptr_t)aligned % 64 != 0) fail("posix_memalign is not aligned", block->size);
    block->bytes = aligned;
  } else {
    block->bytes = malloc(block->size);
  }
  if (block->bytes == NULL) fail("no memory", block->size);
  fill(block);
  return block;
}

static void resize(struct Side* side, struct Block* block) {
  const size_t old_size = block->size;
  const unsigned char old_pattern = pattern(block);
  const size_t size = random_size(side);
  unsigned char* bytes = realloc(block->bytes, size);
  if (bytes == NULL) fail("realloc failed", size);
  for (size_t i = 0; i < old_size && i < size; ++i) {
    if (bytes[i] != old_pattern) fail("content lost by realloc", old_size);
  }
  block->bytes = bytes;
  block->size = size;
  fill(block);
}

static void finish(struct Block* block) {
  check(block, block->size);
  free(block->bytes);
  free(block);
}

static void* run(void* argument) {
  struct Side* side = argument;
  for (int step = 0; step < kSteps; ++step) {
    struct Block* block = make(side);
    if (next_random(side) % 4 == 0) resize(side, block);
    const unsigned slot = next_random(side) % kSlots;
    block = atomic_exchange(&side->handed[slot], block);
    if (block != NULL) finish(block);
    block = atomic_exchange(&side->other->handed[next_random(side) % kSlots], NULL);
    if (block != NULL) finish(block);
  }
  return NULL;
}

int main(int argc, char** argv) {
  static struct Side sides[2];
  sides[0].other = &sides[1];
  sides[1].other = &sides[0];
  for (unsigned round = 0; round < kRounds; ++round) {
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; ++i) {
      sides[i].random = 2 * round + i + 1;
      if (pthread_create(&threads[i], NULL, run, &sides[i]) != 0) fail("no thread", 0);
    }
    for (unsigned i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  }
  for (unsigned i = 0; i < 2; ++i) {
    for (unsigned slot = 0; slot < kSlots; ++slot) {
      struct Block* block = atomic_load(&sides[i].handed[slot]);
      if (block != NULL) finish(block);
    }
  }
  for (int i = 1; i < argc; ++i) {
    bool (*function)(void) = (bool (*)(void))dlsym(RTLD_DEFAULT, argv[i]);
    if (function == NULL || !function()) {
      fprintf(stderr, "churn: %s() %s\n", argv[i], function == NULL ? "is missing" : "says false");
      return 1;
    }
  }
  puts("ok");
  fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  return 0;
}
