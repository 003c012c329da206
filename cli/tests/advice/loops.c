// Lines that allocate in loops, and lines that come again without one.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline)) static

static void* volatile kept;
static volatile int zero;
static void* blocks[4000];

// case itself: made at itself_made, loop of case_itself at itself_made, 2000 calls, 2000 turns
void case_itself(void) {
  for (int i = 0; i < 2000; i++) blocks[i] = malloc(40);  // @itself_made
}

APART void* make(int size) {
  char* made = malloc(size);  // @make
  made[0] = 1;
  return made;
}

// case caller: made at make, loop of case_caller at caller_turn, 2000 calls, 2000 turns
void case_caller(void) {
  for (int i = 0; i < 2000; i++) blocks[i] = make(40);  // @caller_turn
  kept = make(10);
}

#define PAIR(i) (blocks[i] = make(40), blocks[2000 + (i)] = make(50))

// case twice: made at make, loop of case_twice at twice_turn, 4000 calls, 2000 turns
void case_twice(void) {
  for (int i = 0; i < 2000; i++) PAIR(i);  // @twice_turn
}

// case nested: made at make, loop of case_nested at nested_turn, 2000 calls, 2000 turns
void case_nested(void) {
  for (int i = 0; i < 50; i++) {
    for (int j = 0; j < 40; j++) blocks[i * 40 + j] = make(40);  // @nested_turn
    puts("row");
  }
}

// A block for every tenth turn; each turn writes.
// case sometimes: made at make, loop of case_sometimes at sometimes_turn, 2000 calls, 20000 turns
void case_sometimes(void) {
  for (int i = 0; i < 20000; i++) {
    if (write(1, "x", 1) != 1) abort();
    if (i % 10 == 3) blocks[i / 10] = make(40);  // @sometimes_turn
  }
}

// The search goes on in a loop, but makes one block in each call.
APART void* search(int wanted) {
  void* found = NULL;
  for (int i = 0; i < 100; i++) {
    kept = &i;
    if (i == wanted % 100) found = malloc(40);  // @search_made
  }
  return found;
}

// case search: made at search_made, loop of case_search at search_turn, 2000 calls, 2000 turns
void case_search(void) {
  for (int i = 0; i < 2000; i++) {
    void* found = search(i);  // @search_turn
    free(found);
  }
}

// A loop that ends with the block that it makes.
APART void* first_fit(int size) {
  for (int i = 0;; i++)
    if (i * 3 > size) {
      kept = malloc(i);  // @fit_made
      return kept;
    }
}

// case fit: made at fit_made, loop of case_fit at fit_turn, 2000 calls, 2000 turns
void case_fit(void) {
  for (int i = 0; i < 2000; i++) blocks[i] = first_fit(100);  // @fit_turn
}

APART void* retry(int size) {
  void* made;
  while ((made = malloc(size)) == NULL) puts("no memory");  // @retry_made
  return made;
}

// case retry: made at retry_made, loop of case_retry at retry_turn, 2000 calls, 2000 turns
void case_retry(void) {
  for (int i = 0; i < 2000; i++) blocks[i] = retry(40);  // @retry_turn
}

APART void* try_make(int size) {
  char* made = malloc(size);
  if (made) made[0] = 1;
  return made;
}

APART void* retry_outside(int size) {
  void* made;
  while ((made = try_make(size)) == NULL) puts("no memory");
  return made;
}

// Whether the loop around a call that is not malloc's ends by success cannot be reported.
// case retry_outside: nothing
void case_retry_outside(void) {
  for (int i = 0; i < 2000; i++) blocks[i] = retry_outside(40);
}

static inline __attribute__((always_inline)) void fill(int count) {
  for (int i = 0; i < count; i++) blocks[i] = make(40);  // @fill_turn
}

// case inlined: made at make, loop of fill at fill_turn, 2000 calls, 2000 turns
void case_inlined(void) { fill(2000); }

APART void* step(int kind) {
  switch (kind) {
    case 0:
      kept = &kind;
      return NULL;
    case 1:
      return make(41);
    case 2:
      kept = &step;
      return NULL;
    case 3:
      return strdup("three");
    case 4:
      return calloc(1, 44);
    case 5:
      return make(30);
    default:
      abort();
  }
}

// case stepped: made at make, loop of case_stepped at stepped_turn, 2000 calls, 2000 turns
void case_stepped(void) {
  for (int i = 0; i < 2000; i++) blocks[i] = step(5);  // @stepped_turn
}

APART void* in_thread(void* from) {
  for (int i = 0; i < 1000; i++) ((void**)from)[i] = make(40);  // @thread_turn
  return NULL;
}

// case threads: made at make, loop of in_thread at thread_turn, 2000 calls, 2000 turns
void case_threads(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, in_thread, blocks + i * 1000);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

APART int descend(int depth) {
  blocks[depth] = malloc(40);
  return depth == 0 ? 0 : descend(depth - 1) + zero + 1;
}

// case recursion: nothing
void case_recursion(void) { kept = (void*)(long)descend(1999); }

APART void* tree(int depth, int* made) {
  if (depth == 0) return NULL;
  void** node = malloc(2 * sizeof(void*));
  (*made)++;
  node[0] = tree(depth - 1, made);
  node[1] = tree(depth - 1, made);
  return node;
}

// case tree: nothing
void case_tree(void) {
  int made = 0;
  kept = tree(11, &made);
}

// Many calls, each from a place of its own.
#define TEN(x) x x x x x x x x x x
// case apart: nothing
void case_apart(void) {
  int i = 0;
  TEN(TEN(TEN(blocks[i++] = make(40);)))
}

static int compare(const void* a, const void* b) {
  free(make(40));
  return *(const int*)a - *(const int*)b;
}

// The loop is in a library's function without a symbol.
// case callback: nothing
void case_callback(void) {
  static int numbers[1000];
  for (int i = 0; i < 1000; i++) numbers[i] = (i * 7919) % 1000;
  qsort(numbers, 1000, sizeof *numbers, compare);
}

static void on_signal(int number) { blocks[number] = malloc(40); }

// The interrupted function's loop makes no block.
// case signal: nothing
void case_signal(void) {
  signal(SIGUSR1, on_signal);
  for (int i = 0; i < 2000; i++) raise(SIGUSR1);
}

int main(int argc, char** argv) {
  (void)argc;
#define RUN(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  RUN(itself);
  RUN(caller);
  RUN(twice);
  RUN(nested);
  RUN(sometimes);
  RUN(search);
  RUN(fit);
  RUN(retry);
  RUN(retry_outside);
  RUN(inlined);
  RUN(stepped);
  RUN(threads);
  RUN(recursion);
  RUN(tree);
  RUN(apart);
  RUN(callback);
  RUN(signal);
  return 0;
}
