// Objects that a function makes for its caller, which does not know their size.
//
// case hidden: finds reuse at hidden
// case sized: finds stack at sized
// case kept: nothing
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
enum { kTurns = 500 };
struct Url {
  char* parts[5];
};
static volatile char sink;

NOINLINE struct Url* url_new(void);
NOINLINE void* url_room(size_t size);
NOINLINE void url_cleanup(struct Url* url);

NOINLINE static void parse(int i) {
  struct Url* url = url_new();  // @hidden
  sink = url->parts[i % 5] == NULL;
  url_cleanup(url);
}
static void case_hidden(void) {
  for (int i = 0; i < kTurns; i++) parse(i);
}

NOINLINE static void parse_here(int i) {
  struct Url* url = url_room(sizeof *url);  // @sized
  sink = url->parts[i % 5] == NULL;
  url_cleanup(url);
}
static void case_sized(void) {
  for (int i = 0; i < kTurns; i++) parse_here(i);
}

static struct Url* kept[kTurns];
static void case_kept(void) {
  for (int i = 0; i < kTurns; i++) kept[i] = url_new();
  for (int i = 0; i < kTurns; i++) url_cleanup(kept[(i * 7) % kTurns]);
}

// Tail calls, which leave no frame.
struct Url* url_new(void) { return calloc(1, sizeof(struct Url)); }
void* url_room(size_t size) { return calloc(1, size); }
void url_cleanup(struct Url* url) { free(url); }

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(hidden);
  CASE(sized);
  CASE(kept);
  return 0;
}
