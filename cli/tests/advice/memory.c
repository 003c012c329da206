// Memory that is wasted, kept or lost, and memory that is used.
//
// case tiny: finds tiny at tiny
// case growing: finds growing at growing
// case forgotten: finds leak at forgotten
// case small: nothing
// case filled_once: nothing
// case breathing: finds arena at filled
// case one_is_replaced: nothing
// case dropped_one_by_one: nothing
// case dropped_inline: nothing
// case all_freed: nothing
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 4000 };
static char* blocks[kBlocks];

static int any(int i) { return (i * 1201) % kBlocks; }

static void fill_some(size_t size, int begin, int end) {
  for (int i = begin; i < end; i++) {
    blocks[any(i)] = malloc(size + (size_t)(i % 7));  // @filled
    blocks[any(i)][0] = 1;
  }
}
static void fill(size_t size, int count) { fill_some(size, 0, count); }
static void drop_all(void) {
  for (int i = 0; i < kBlocks; i++) {
    free(blocks[(i * 7) % kBlocks]);
    blocks[(i * 7) % kBlocks] = 0;
  }
}

static void case_tiny(void) {
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = malloc((size_t)(1 + i % 8));  // @tiny
    blocks[any(i)][0] = 1;
  }
  drop_all();
}

// A cache without a bound: more goes in than out.
static void case_growing(void) {
  int used = 0;
  for (int i = 0; i < 2 * kBlocks - 16; i++) {
    char* entry = malloc(200);  // @growing
    entry[0] = 1;
    if (i % 2 == 0) {
      blocks[used++] = entry;
    } else {
      const int out = (i * 31) % used;
      free(blocks[out]);
      blocks[out] = entry;
      if (i % 8 == 3) free(blocks[--used]);
    }
  }
}

// One in six is not freed.
static void case_forgotten(void) {
  fill(30, kBlocks);
  for (int i = 0; i < kBlocks; i++) free(blocks[(i * 7) % kBlocks]);
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = malloc(100 + (size_t)(i % 7));  // @forgotten
    blocks[any(i)][0] = 1;
  }
  for (int i = 0; i < kBlocks; i++) {
    if (i % 6 != 0) free(blocks[(i * 7) % kBlocks]);
  }
}

static void case_small(void) {
  fill(48, kBlocks);
  drop_all();
}

// A table that is filled at the start, and then only used.
static void case_filled_once(void) {
  fill(100, kBlocks);
  for (int i = 0; i < 20000; i++) {
    const int slot = (i * 31) % kBlocks;
    free(blocks[slot]);
    blocks[slot] = malloc(100 + (size_t)(i % 7));
    blocks[slot][0] = 1;
  }
  drop_all();
}

// Rises and falls.
static void case_breathing(void) {
  for (int round = 0; round < 5; round++) {
    fill(100, kBlocks);
    drop_all();
  }
}

// One is freed before the last is allocated.
static void case_one_is_replaced(void) {
  for (int round = 0; round < 5; round++) {
    fill(100, kBlocks / 2);
    free(blocks[any(0)]);
    fill_some(100, 0, 1);
    fill_some(100, kBlocks / 2, kBlocks);
    drop_all();
  }
}

// A function frees one, and could do so alone.
__attribute__((noinline)) static void drop_one(int i) {
  free(blocks[i]);
  blocks[i] = 0;
}
static void case_dropped_one_by_one(void) {
  for (int round = 0; round < 5; round++) {
    fill(100, kBlocks);
    for (int i = 0; i < kBlocks; i++) drop_one((i * 7) % kBlocks);
  }
}

// The same, where the compiler inlines it.
__attribute__((always_inline)) static inline void drop_inline(int i) {
  free(blocks[i]);
  blocks[i] = 0;
}
static void case_dropped_inline(void) {
  for (int round = 0; round < 5; round++) {
    fill(100, kBlocks);
    for (int i = 0; i < kBlocks; i++) drop_inline((i * 7) % kBlocks);
  }
}

static void case_all_freed(void) {
  fill(64, kBlocks);
  drop_all();
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(tiny);
  CASE(growing);
  CASE(forgotten);
  CASE(small);
  CASE(filled_once);
  CASE(breathing);
  CASE(one_is_replaced);
  CASE(dropped_one_by_one);
  CASE(dropped_inline);
  CASE(all_freed);
  return 0;
}
