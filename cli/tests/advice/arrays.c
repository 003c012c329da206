// Large arrays that begin at the same place of their pages, and such as do not.
//
// case aligned: finds alias at aligned
// case shifted: nothing
// case two: nothing
// case in_turn: nothing
#include <stdlib.h>
#include <string.h>

enum { kBytes = 1 << 20 };
static volatile char sink;
static char* arrays[8];

static char* array(size_t pad) {
  char* made = aligned_alloc(4096, kBytes + 4096);  // @aligned
  memset(made + pad, 1, kBytes);
  sink = made[pad];
  return made;
}

static void case_aligned(void) {
  for (int i = 0; i < 6; i++) arrays[i] = array(0);
  for (int i = 0; i < 6; i++) free(arrays[(i * 5) % 6]);
}

// The C library puts these at a place of their own each.
static void case_shifted(void) {
  for (size_t i = 0; i < 6; i++) {
    arrays[i] = malloc(100000 + i * 8048);
    memset(arrays[i], 1, 100000);
  }
  for (int i = 0; i < 6; i++) free(arrays[(i * 5) % 6]);
}

static void case_two(void) {
  for (int i = 0; i < 2; i++) arrays[i] = array(0);
  for (int i = 0; i < 2; i++) free(arrays[i]);
}

// Never two at a time.
static void case_in_turn(void) {
  for (int i = 0; i < 6; i++) free(array(0));
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(aligned);
  CASE(shifted);
  CASE(two);
  CASE(in_turn);
  return 0;
}
