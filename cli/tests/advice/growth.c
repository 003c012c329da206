// Buffers that are made larger, and reallocs that are no growth.
//
// case doubling: finds reserve at doubling
// case by_steps: finds grow-by-factor at steps
// case by_copy: finds reserve at copy
// case elsewhere: finds reserve at begun
// case shrinking: nothing
// case replacing: nothing
// case once: nothing
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
static char* held[64];

NOINLINE static char* append(char* buffer, size_t size) {
  buffer = realloc(buffer, size);  // @doubling
  buffer[size - 1] = 1;
  return buffer;
}
static void case_doubling(void) {
  for (int i = 0; i < 64; i++) {
    for (size_t size = 32; size <= (size_t)(i % 8 == 0 ? 4096 : 1024); size *= 2) {
      held[i] = append(held[i], size);
    }
  }
  for (int i = 0; i < 64; i++) free(held[(i * 5) % 64]);
}

NOINLINE static char* append_line(char* buffer, size_t size) {
  buffer = realloc(buffer, size);  // @steps
  buffer[size - 1] = 1;
  return buffer;
}
static void case_by_steps(void) {
  for (int i = 0; i < 8; i++) {
    for (size_t size = 80; size < 80 * 100; size += 80) held[i] = append_line(held[i], size);
  }
  for (int i = 0; i < 8; i++) free(held[(i * 3) % 8]);
}

NOINLINE static char* larger(char* old, size_t from, size_t to) {
  char* grown = malloc(to);  // @copy
  memcpy(grown, old, from);
  free(old);
  return grown;
}
static void case_by_copy(void) {
  for (int i = 0; i < 64; i++) {
    held[i] = larger(0, 0, 16);
    for (size_t size = 16; size < 1024; size *= 2) held[i] = larger(held[i], size, size * 2);
  }
  for (int i = 0; i < 64; i++) free(held[(i * 5) % 64]);
}

// Another function makes it larger.
NOINLINE static char* begun(void) {
  return malloc(16);  // @begun
}
NOINLINE static char* enlarged(char* buffer, size_t size) {
  return realloc(buffer, size);  // @enlarged
}
static void case_elsewhere(void) {
  for (int i = 0; i < 64; i++) {
    held[i] = begun();
    for (size_t size = 32; size <= (size_t)(i % 8 == 0 ? 4096 : 1024); size *= 2)
      held[i] = enlarged(held[i], size);
  }
  for (int i = 0; i < 64; i++) free(held[(i * 5) % 64]);
}

// realloc gives back what was too much.
static void case_shrinking(void) {
  for (int i = 0; i < 64; i++) {
    char* buffer = malloc(4096);
    buffer[0] = 1;
    held[i] = realloc(buffer, (size_t)(100 + i));
  }
  for (int i = 0; i < 64; i++) free(held[(i * 5) % 64]);
}

// Unrelated blocks of any size: a new one, then the old one goes.
NOINLINE static void replace(int i, size_t size) {
  char* fresh = malloc(size);
  fresh[0] = 1;
  free(held[i]);
  held[i] = fresh;
}
static void case_replacing(void) {
  unsigned state = 1;
  for (int i = 0; i < 2000; i++) {
    state = state * 1103515245u + 12345u;
    replace(i % 64, 16 + (state >> 16) % 4000);
  }
  for (int i = 0; i < 64; i++) free(held[(i * 5) % 64]);
}

static void case_once(void) {
  for (int i = 0; i < 4; i++) held[i] = append(append(0, 100), 300);
  for (int i = 0; i < 4; i++) free(held[i]);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(doubling);
  CASE(by_steps);
  CASE(by_copy);
  CASE(elsewhere);
  CASE(shrinking);
  CASE(replacing);
  CASE(once);
  return 0;
}
