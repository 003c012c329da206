/* A plain C program, without libstdc++ or libgcc_s in the process: the allocator brings no C++
   run time along. Single-threaded. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mapped.h"

static int failed(const char* what) {
  fprintf(stderr, "FAILED c_only: %s\n", what);
  return 1;
}

int main(void) {
  const char* expected = getenv("ALLOC_TEST_EXPECT");
  if (expected != NULL && mapped(expected) != 1) return failed("the preload did not happen");
  if (expected != NULL && strstr(expected, "liblarder") != NULL) {
    if (mapped("libstdc++")) return failed("libstdc++ was loaded into a C program");
    if (mapped("libgcc_s")) return failed("libgcc_s was loaded into a C program");
  }
  enum { kBlocks = 1000 };
  static unsigned char* blocks[kBlocks];
  unsigned seed = 1;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      seed = seed * 1103515245u + 12345u;
      size_t size = (seed >> 8) % ((i % 50) == 0 ? 200000u : 2000u) + 1;
      blocks[i] = realloc(blocks[i], size);
      if (blocks[i] == NULL) return failed("realloc returned NULL");
      memset(blocks[i], i & 0xFF, size);
    }
    for (int i = 0; i < kBlocks; ++i) {
      if (blocks[i][0] != (i & 0xFF)) return failed("a block changed");
    }
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  printf("c_only: fine, without libstdc++: %s\n", mapped("libstdc++") ? "no" : "yes");
  return 0;
}
