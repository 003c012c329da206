// Blocks that are made and freed together, and blocks that only sometimes are.
//
// case node_and_payload: finds embed at payload
// case variable: finds embed at text
// case row: finds array at row
// case two_makers: finds embed at payload
// case object: finds embed at window
// case kept_object: finds arena at state
// case one_sweep: finds embed at payload
// case late: finds embed at late
// case two_at_once: finds reuse at request
// case far_strangers: nothing
// case set_later: nothing
// case any_number: nothing
// case outlives: nothing
// case optional: nothing
// case grown: nothing
// case strangers: nothing
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
enum { kNodes = 300 };
struct Node {
  char* data;
  long number[5];
};
static struct Node* nodes[kNodes];
static char* others[kNodes];

NOINLINE static char* payload_for(void) {
  return malloc(40);  // @payload
}
NOINLINE static struct Node* node(void) {
  struct Node* made = malloc(sizeof *made);
  made->data = payload_for();
  return made;
}
NOINLINE static void drop(struct Node* node) {
  free(node->data);
  free(node);
}
// In an order that is nobody's.
static int any(int i) { return (i * 101) % kNodes; }

// One function frees the blocks of ten lines; those of two are always side by side.
NOINLINE static void sweep(char* kinds[8]) {
  for (int i = 0; i < kNodes; i++) {
    free(nodes[any(i)]->data);
    free(nodes[any(i)]);
  }
  for (int kind = 0; kind < 8; kind++) free(kinds[kind]);
}
static void case_one_sweep(void) {
  for (int round = 0; round < 3; round++) {
    char* kinds[8];
    kinds[0] = malloc(500);
    kinds[1] = malloc(600);
    kinds[2] = malloc(700);
    kinds[3] = malloc(800);
    kinds[4] = malloc(900);
    kinds[5] = malloc(1000);
    kinds[6] = malloc(1100);
    kinds[7] = malloc(1200);
    for (int i = 0; i < kNodes; i++) nodes[any(i)] = node();
    sweep(kinds);
  }
}

static void case_node_and_payload(void) {
  for (int i = 0; i < kNodes; i++) nodes[i] = node();
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

static void case_variable(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = malloc(sizeof *nodes[i]);
    nodes[i]->data = malloc((size_t)(10 + i));  // @text
  }
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

static void case_row(void) {
  for (int i = 0; i < kNodes; i++) others[i] = malloc(32);  // @row
  for (int i = 0; i < kNodes; i++) free(others[i]);
}

NOINLINE static struct Node* first_maker(void) { return node(); }
NOINLINE static struct Node* second_maker(void) { return node(); }
static void case_two_makers(void) {
  for (int i = 0; i < kNodes; i++) nodes[i] = i % 3 ? first_maker() : second_maker();
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

// An object of several blocks: one function makes them all.
struct Stream {
  char* window;
  char* table;
};
NOINLINE static struct Stream* open_stream(void) {
  struct Stream* stream = malloc(6000);  // @state
  stream->window = malloc(40000);        // @window
  stream->table = malloc(20000);
  return stream;
}
NOINLINE static void close_stream(struct Stream* stream) {
  free(stream->table);
  free(stream->window);
  free(stream);
}
// Nobody here has a place to keep it from one call to the next.
NOINLINE static int pack(void) {
  struct Stream* stream = open_stream();
  stream->window[1] = stream->table[1] = 1;
  close_stream(stream);
  return 1;
}
NOINLINE static int other_work(void) {
  char* some = malloc(10);
  some[0] = 1;
  free(some);
  return 2;
}
static void case_object(void) {
  for (int i = 0; i < kNodes; i++) {
    if (pack() + other_work() != 3) abort();
  }
}

// Whoever makes one after the other can.
NOINLINE static void case_kept_object(void) {
  for (int i = 0; i < kNodes; i++) {
    struct Stream* stream = open_stream();
    stream->window[1] = stream->table[1] = 1;
    close_stream(stream);
  }
}

// Made together, but the payload stays.
static void case_outlives(void) {
  for (int i = 0; i < kNodes; i++) nodes[i] = node();
  for (int i = 0; i < kNodes; i++) {
    others[i] = nodes[any(i)]->data;
    free(nodes[any(i)]);
  }
  for (int i = 0; i < kNodes; i++) free(others[(i * 7) % kNodes]);
}

// Every third node has a payload.
static void case_optional(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = calloc(1, sizeof *nodes[i]);
    if (i % 3 == 0) nodes[i]->data = payload_for();
  }
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

// The payload is made larger some time later, so it cannot be a part.
static void case_grown(void) {
  for (int i = 0; i < kNodes; i++) nodes[i] = node();
  for (int i = 0; i < 20; i++) nodes[any(i)]->data = realloc(nodes[any(i)]->data, 90);
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

// Neighbours in time without anything in common.
NOINLINE static char* first(void) { return malloc(56); }
NOINLINE static char* second(void) { return malloc(72); }
static void case_strangers(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = (struct Node*)first();
    others[i] = second();
  }
  for (int i = 0; i < kNodes; i++) free(nodes[any(i)]);
  for (int i = 0; i < kNodes; i++) free(others[(i * 7) % kNodes]);
}

// Another function makes the payload, far from the first, and one frees both.
NOINLINE static struct Node* opened(void) { return calloc(1, sizeof(struct Node)); }
NOINLINE static void filled(struct Node* node) {
  node->data = malloc(40);  // @late
  node->data[0] = 1;
}
NOINLINE static void read_part(struct Node* node, int part) {
  if (node->data == NULL) filled(node);
  node->number[part]++;
}
NOINLINE static void read_some(struct Node* node) {
  read_part(node, 1);
  read_part(node, 2);
}
NOINLINE static void read_all(struct Node* node) {
  read_some(node);
  read_some(node);
}
static void case_late(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = opened();
    read_all(nodes[i]);
  }
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

// The function that frees both only happens to have made both.
static void case_far_strangers(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = opened();
    read_all(nodes[i]);
  }
  for (int i = 0; i < kNodes; i++) {
    struct Node* one = nodes[any(i)];
    free(one->data);
    free(one);
  }
}

// A text that may be set anew.
NOINLINE static void set_text(struct Node* node, size_t size) { node->data = calloc(size, 1); }
static void case_set_later(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = opened();
    set_text(nodes[i], (size_t)(10 + i));
  }
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

// A row that another function makes, which happens to be of one length.
NOINLINE static void set_row(struct Node* node, size_t count) {
  long* row = malloc(count * sizeof *row);
  row[0] = 1;
  node->data = (char*)row;
}
static void case_any_number(void) {
  for (int i = 0; i < kNodes; i++) {
    nodes[i] = opened();
    set_row(nodes[i], 3);
  }
  for (int i = 0; i < kNodes; i++) drop(nodes[any(i)]);
}

// As many answers as requests, and two of them at once: no object.
NOINLINE static char* request(void) {
  return malloc(5000);  // @request
}
NOINLINE static char* answer(size_t size) { return malloc(size); }
NOINLINE static int ask(int i) {
  char* sent = request();
  sent[0] = 1;
  if (i % 2 == 0) {
    char* answers[] = {answer(600), answer(700)};
    answers[0][0] = answers[1][0] = 1;
    free(answers[1]);
    free(answers[0]);
  }
  free(sent);
  return 1;
}
static void case_two_at_once(void) {
  for (int i = 0; i < kNodes; i++) {
    if (ask(i) != 1) abort();
  }
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (strcmp(argv[1], #name) == 0) case_##name()
  CASE(node_and_payload);
  CASE(variable);
  CASE(row);
  CASE(two_makers);
  CASE(object);
  CASE(kept_object);
  CASE(one_sweep);
  CASE(late);
  CASE(two_at_once);
  CASE(far_strangers);
  CASE(set_later);
  CASE(any_number);
  CASE(outlives);
  CASE(optional);
  CASE(grown);
  CASE(strangers);
  return 0;
}
