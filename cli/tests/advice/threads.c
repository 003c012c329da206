// Blocks made on one thread and freed on another.
//
// case passed: finds threads at passed
// case own: nothing
// case seldom: nothing
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 1000 };
static char* blocks[kBlocks];
static int step = 1;

static void* free_some(void* context) {
  (void)context;
  for (int i = 0; i < kBlocks; i += step) {
    const int slot = (i * 7) % kBlocks;
    free(blocks[slot]);
    blocks[slot] = 0;
  }
  return 0;
}
static void make(void) {
  for (int i = 0; i < kBlocks; i++) blocks[i] = malloc((size_t)(50 + i % 9));  // @passed
}
static void elsewhere(void) {
  pthread_t thread;
  pthread_create(&thread, 0, free_some, 0);
  pthread_join(thread, 0);
}

static void case_passed(void) {
  make();
  elsewhere();
}
static void case_own(void) {
  make();
  free_some(0);
}
static void case_seldom(void) {
  make();
  step = 4;
  elsewhere();
  step = 1;
  free_some(0);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(passed);
  CASE(own);
  CASE(seldom);
  return 0;
}
