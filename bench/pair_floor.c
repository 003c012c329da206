/* bench_pair_floor list|bump|empty PAIRS: the least that a malloc and free can cost.

   list: pop from and push to a thread-local list, inlined, with the test for an empty one;
   bump: advance a pointer within a buffer and test for its end, free does nothing;
   empty: the loop alone, to be taken off each other count. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlock = 64 };

static _Thread_local void* list_head;
static _Thread_local char* bump_at;
static _Thread_local char* bump_end;
static char memory[1 << 16];

static void fail(void) {
  fprintf(stderr, "the floor has no memory left\n");
  exit(1);
}

static inline void* pop(void) {
  void* block = list_head;
  if (__builtin_expect(block == NULL, 0)) fail();
  list_head = *(void**)block;
  return block;
}

static inline void push(void* block) {
  *(void**)block = list_head;
  list_head = block;
}

static inline void* bump(void) {
  char* block = bump_at;
  if (__builtin_expect(bump_end - block < kBlock, 0)) block = memory;
  bump_at = block + kBlock;
  return block;
}

static inline void* keep(void* block) {
  __asm__ volatile("" : "+r"(block) : : "memory");
  return block;
}

/* The next iteration must read memory again, like after a call. */
static inline void end_turn(void) { __asm__ volatile("" : : : "memory"); }

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: bench_pair_floor list|bump|empty PAIRS\n");
    return 2;
  }
  const size_t pairs = strtoul(argv[2], NULL, 10);
  push(memory);
  push(memory + kBlock);
  bump_at = memory;
  bump_end = memory + sizeof(memory);
  if (strcmp(argv[1], "list") == 0) {
    for (size_t i = 0; i < pairs; ++i) {
      push(keep(pop()));
      end_turn();
    }
  } else if (strcmp(argv[1], "bump") == 0) {
    for (size_t i = 0; i < pairs; ++i) {
      keep(bump());
      end_turn();
    }
  } else if (strcmp(argv[1], "empty") == 0) {
    for (size_t i = 0; i < pairs; ++i) {
      keep(memory);
      end_turn();
    }
  } else {
    fprintf(stderr, "argument 1 must be list, bump or empty: %s\n", argv[1]);
    return 2;
  }
  return 0;
}
