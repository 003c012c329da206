// Blocks that live within one call, and blocks that only look like it.
//
// case stack: finds stack at stack
// case stack_inlined: finds stack at inlined
// case stack_sizes: finds stack at sizes
// case helper: finds reuse at helper
// case large: finds reuse at large
// case lent: finds reuse at lent
// case loop: finds reuse at loop
// case replaced: finds reuse at replaced
// case escapes: nothing
// case some_escape: nothing
// case two_held: finds reuse at two
// case few: nothing
// case handles: finds reuse at handle
// case many_handles: nothing
// case callers: finds reuse at callers
// case grown: finds stack at grown
// case grown_kept: finds reserve at outlives
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
enum { kTurns = 500 };
static volatile char sink;

static void use(char* block) { sink = block[0] = 1; }

NOINLINE static void wait_once(int fds) {
  char* set = malloc((size_t)fds * 8);  // @stack
  use(set);
  free(set);
}
static void case_stack(void) {
  for (int i = 0; i < kTurns; i++) wait_once(1 + i % 3);
}

static inline __attribute__((always_inline)) void inlined_wait(void) {
  char* set = malloc(24);  // @inlined
  use(set);
  free(set);
}
static void case_stack_inlined(void) {
  for (int i = 0; i < kTurns; i++) inlined_wait();
}

// One call in 500 needs far more than the rest.
NOINLINE static void mostly_small(int i) {
  char* text = malloc(i == 77 ? 1 << 20 : 100);  // @sizes
  use(text);
  free(text);
}
static void case_stack_sizes(void) {
  for (int i = 0; i < kTurns; i++) mostly_small(i);
}

NOINLINE static char* copy_of(const char* text) {
  char* copy = malloc(strlen(text) + 1);  // @helper
  strcpy(copy, text);
  return copy;
}
NOINLINE static void handle(int i) {
  char* name = copy_of(i % 2 ? "odd" : "even");
  use(name);
  free(name);
}
static void case_helper(void) {
  for (int i = 0; i < kTurns; i++) handle(i);
}

NOINLINE static void read_file(void) {
  char* buffer = malloc(100000);  // @large
  use(buffer);
  free(buffer);
}
static void case_large(void) {
  for (int i = 0; i < kTurns; i++) read_file();
}

// Two lines of a caller: it can lend both calls one buffer, which is gone when it returns.
NOINLINE static void copy_part(int part) {
  char* buffer = malloc(50000);  // @lent
  use(buffer + part);
  free(buffer);
}
NOINLINE static void copy_both(void) {
  copy_part(0);
  copy_part(1);
}
static void case_lent(void) {
  for (int i = 0; i < kTurns; i++) copy_both();
}

// Freed by another function, but always before the next is made.
static char* current;
NOINLINE static void begin(void) { current = malloc(48); }  // @loop
NOINLINE static void end(void) { free(current); }
static void case_loop(void) {
  for (int i = 0; i < kTurns; i++) {
    begin();
    use(current);
    end();
  }
}

// The last block goes when the next one comes: it lives on between the calls.
NOINLINE static void replace(void) {
  free(current);
  current = malloc(48);  // @replaced
  use(current);
}
static void case_replaced(void) {
  for (int i = 0; i < kTurns; i++) replace();
}

// Every block is kept.
static char* kept[kTurns];
NOINLINE static void keep(int i) {
  kept[i] = malloc(40);
  use(kept[i]);
}
static void case_escapes(void) {
  for (int i = 0; i < kTurns; i++) keep(i);
  for (int i = 0; i < kTurns; i++) free(kept[(i * 7) % kTurns]);
}

// One in ten is kept.
NOINLINE static void keep_some(int i) {
  char* block = malloc(40);
  use(block);
  if (i % 10 == 0) {
    kept[i] = block;
  } else {
    free(block);
  }
}
static void case_some_escape(void) {
  for (int i = 0; i < kTurns; i++) keep_some(i);
  for (int i = kTurns - 10; i >= 0; i -= 10) free(kept[i]);
}

// A ring of two: made and freed by one function, never within one call.
NOINLINE static void ring(int i) {
  char* block = malloc(40);  // @two
  use(block);
  free(kept[i % 2]);
  kept[i % 2] = block;
}
static void case_two_held(void) {
  for (int i = 0; i < kTurns; i++) ring(i);
  free(kept[0]);
  free(kept[1]);
}

// Too few to be worth a word.
static void case_few(void) {
  for (int i = 0; i < 5; i++) wait_once(1);
}

// Objects with lives of their own that overlap.
NOINLINE static char* open_handle(void) {
  char* handle = malloc(64);  // @handle
  use(handle);
  return handle;
}
NOINLINE static void close_handle(char* handle) { free(handle); }
static void case_handles(void) {
  char* open[8] = {0};
  for (int i = 0; i < kTurns; i++) {
    const int slot = (i * 5) % 8;
    if (open[slot]) close_handle(open[slot]);
    open[slot] = open_handle();
    use(open[slot]);
  }
  for (int slot = 0; slot < 8; slot++) close_handle(open[(slot * 3) % 8]);
}

// The same, more at once than one would keep.
static void case_many_handles(void) {
  char* open[9] = {0};
  for (int i = 0; i < kTurns; i++) {
    const int slot = (i * 5) % 9;
    if (open[slot]) close_handle(open[slot]);
    open[slot] = malloc(64);
    use(open[slot]);
  }
  for (int slot = 0; slot < 9; slot++) close_handle(open[(slot * 4) % 9]);
}

// One at a time for each of two callers, two at once for the line.
static char* held[2];
NOINLINE static char* fresh(void) {
  char* block = malloc(56);  // @callers
  use(block);
  return block;
}
NOINLINE static void first_caller(void) {
  free(held[0]);
  held[0] = fresh();
}
NOINLINE static void second_caller(void) {
  free(held[1]);
  held[1] = fresh();
}
static void case_callers(void) {
  for (int i = 0; i < kTurns; i++) {
    first_caller();
    if (i % 3 == 0) second_caller();
  }
}

// One buffer, whatever realloc makes of it.
NOINLINE static void collect(int parts) {
  char* text = malloc(16);  // @grown
  for (int part = 1; part <= parts; part++) {
    char* longer = realloc(text, (size_t)part * 64);
    if (!longer) break;
    text = longer;
    use(text);
  }
  free(text);
}
static void case_grown(void) {
  for (int i = 0; i < kTurns; i++) collect(1 + i % 2);
}

// The same, but it outlives the call.
NOINLINE static char* collected(int parts) {
  char* text = malloc(16);  // @outlives
  char* longer = realloc(text, (size_t)parts * 64);
  use(longer ? longer : text);
  return longer ? longer : text;
}
static void case_grown_kept(void) {
  for (int i = 0; i < kTurns; i++) kept[i] = collected(2 + i % 2);
  for (int i = 0; i < kTurns; i++) free(kept[(i * 7) % kTurns]);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(stack);
  CASE(stack_inlined);
  CASE(stack_sizes);
  CASE(helper);
  CASE(large);
  CASE(lent);
  CASE(loop);
  CASE(replaced);
  CASE(escapes);
  CASE(some_escape);
  CASE(two_held);
  CASE(few);
  CASE(handles);
  CASE(many_handles);
  CASE(callers);
  CASE(grown);
  CASE(grown_kept);
  return 0;
}
