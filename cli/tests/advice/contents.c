// What blocks hold: equal bytes in several, and zeros that calloc need not have made. Recorded with
// --contents.
//
// case names: finds duplicates at names
// case messages: finds duplicates at messages
// case templates: finds duplicates at templates
// case files: finds zeroed at files
// case pictures: finds zeroed at pictures
// case one_after_another: nothing
// case empty: nothing
// case tiny: nothing
// case few: nothing
// case alike: nothing
// case state: nothing
// case partly: nothing
// case text: nothing
// case records: nothing
// case visited: nothing
// case sieve: nothing
// case sums: nothing
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 400 };
static char* blocks[kBlocks];

// In an order that is nobody's.
static int any(int i) { return (i * 101) % kBlocks; }

static void drop_all(void) {
  for (int i = 0; i < kBlocks; i++) {
    free(blocks[(i * 7) % kBlocks]);
    blocks[(i * 7) % kBlocks] = 0;
  }
}

// Bytes of a kind that no two seeds share, one in 256 of them zero.
static void fill(char* bytes, size_t size, unsigned seed) {
  unsigned long state = seed * 2654435761ul + 1;
  for (size_t i = 0; i < size; i++) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    bytes[i] = (char)(state >> 56);
  }
  if (size > 0) bytes[size - 1] = 'x';
}

// Few names, many who have them.
static void case_names(void) {
  char name[64];
  for (int i = 0; i < kBlocks; i++) {
    snprintf(name, sizeof name, "a name that is long, number %d", i % 10);
    blocks[any(i)] = strdup(name);  // @names
  }
  drop_all();
}

// A queue that holds one message for each who is to get it.
static void case_messages(void) {
  static char message[500];
  for (int i = 0; i < 20 * kBlocks; i++) {
    if (i % 40 == 0) fill(message, sizeof message, (unsigned)i);
    const int slot = i % kBlocks;
    free(blocks[slot]);
    const size_t size = 300 + (size_t)(i / 40 % 7);
    blocks[slot] = malloc(size);  // @messages
    memcpy(blocks[slot], message, size);
  }
  drop_all();
}

// One that stays, and copies that come and go, three at a time; its bytes were first made
// elsewhere.
static void case_templates(void) {
  char* template = malloc(200);
  fill(template, 200, 1);
  for (int i = 0; i < 1000; i++) {
    const int slot = i % 3;
    free(blocks[slot]);
    blocks[slot] = malloc(200);  // @templates
    memcpy(blocks[slot], template, 200);
  }
  drop_all();
  free(template);
}

static void case_files(void) {
  for (int i = 0; i < kBlocks; i++) {
    const size_t size = 3000 + (size_t)i;
    blocks[any(i)] = calloc(size, 1);  // @files
    fill(blocks[any(i)], size, (unsigned)i);
  }
  drop_all();
}

static void case_pictures(void) {
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = calloc(1, 4096);  // @pictures
    fill(blocks[any(i)], 4096, (unsigned)i);
  }
  drop_all();
}

// Equal bytes, but the next who has them is made after the last has gone.
static void case_one_after_another(void) {
  for (int i = 0; i < 20 * kBlocks; i++) {
    const int slot = (i * 31) % kBlocks;
    free(blocks[slot]);
    blocks[slot] = malloc(100 + (size_t)(i % 7));
    fill(blocks[slot], 100 + (size_t)(i % 7), (unsigned)(i % (7 * 64)));
  }
  drop_all();
}

// Never written, or only with a filler.
static void case_empty(void) {
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = i % 2 ? calloc(1, 200) : malloc(201);
    if (i % 2 == 0) memset(blocks[any(i)], 0xee, 201);
  }
  drop_all();
}

// Numbers of which there are not many.
static void case_tiny(void) {
  for (int i = 0; i < 180; i++) {
    blocks[any(i)] = malloc(12);
    memcpy(blocks[any(i)], "1 of 2 or 3", 12);
  }
  drop_all();
}

// One in four has a twin.
static void case_few(void) {
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = malloc(100);
    fill(blocks[any(i)], 100, (unsigned)(i % 4 == 3 ? i - 1 : i));
  }
  drop_all();
}

// All bytes but one.
static void case_alike(void) {
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = malloc(1000);
    fill(blocks[any(i)], 1000, 1);
    memcpy(blocks[any(i)] + 500, &i, sizeof i);
  }
  drop_all();
}

// Objects that happen to be in one of few states.
static void case_state(void) {
  struct State {
    char* at;
    long count;
    int flags[6];
  };
  for (int i = 0; i < kBlocks; i++) {
    struct State* state = malloc(sizeof *state);
    *state = (struct State){(char*)blocks, i % 3, {1, 2, 3}};
    blocks[any(i)] = (char*)state;
  }
  drop_all();
}

// A word is left.
static void case_partly(void) {
  for (int i = 0; i < kBlocks; i++) {
    blocks[any(i)] = calloc(1, 4096);
    fill(blocks[any(i)], 4096, (unsigned)i);
    memset(blocks[any(i)] + 2048, 0, 8);
  }
  drop_all();
}

// The zero at the end is calloc's.
static void case_text(void) {
  for (int i = 0; i < kBlocks; i++) {
    const size_t length = 1000 + (size_t)i;
    blocks[any(i)] = calloc(length + 1, 1);
    fill(blocks[any(i)], length, (unsigned)i);
  }
  drop_all();
}

// Some fields stay as they were.
static void case_records(void) {
  struct Record {
    char name[200];
    long number;
    void* next;
    int flags[64];
  };
  for (int i = 0; i < kBlocks; i++) {
    struct Record* record = calloc(1, sizeof *record);
    snprintf(record->name, sizeof record->name, "record %d", i);
    record->number = i;
    record->flags[i % 64] = 1;
    blocks[any(i)] = (char*)record;
  }
  drop_all();
}

// Each byte is set in the end, but was asked for before.
static void case_visited(void) {
  for (int i = 0; i < kBlocks; i++) {
    const size_t size = 1000 + (size_t)i;
    blocks[any(i)] = calloc(size, 1);
    for (size_t k = 0, at = 0; k < 2 * size; k++, at = (at * 5 + 3) % size) blocks[any(i)][at] = 1;
    memset(blocks[any(i)], 1, size);
  }
  for (int i = 0; i < kBlocks; i++) blocks[i][0] = (char)(1 + i % 100);
  drop_all();
}

static void case_sieve(void) {
  for (int i = 0; i < kBlocks; i++) {
    const size_t size = 1001 + (size_t)(2 * i);
    char* composite = calloc(size, 1);
    composite[0] = composite[1] = 1;
    for (size_t k = 2; k < size; k++) {
      for (size_t n = 2 * k; n < size && !composite[k]; n += k) composite[n] = 1;
    }
    blocks[any(i)] = composite;
  }
  drop_all();
}

// No sum is zero in the end, and each began with it.
static void case_sums(void) {
  for (int i = 0; i < kBlocks; i++) {
    double* sums = calloc(1000, sizeof *sums);  // @sums
    for (int k = 0; k < 2000; k++) sums[k % 1000] += k + i + 0.25;
    blocks[any(i)] = (char*)sums;
  }
  drop_all();
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(names);
  CASE(messages);
  CASE(templates);
  CASE(files);
  CASE(pictures);
  CASE(one_after_another);
  CASE(empty);
  CASE(tiny);
  CASE(few);
  CASE(alike);
  CASE(state);
  CASE(partly);
  CASE(text);
  CASE(records);
  CASE(visited);
  CASE(sieve);
  CASE(sums);
  return 0;
}
