// The types that lines allocate: `type FUNCTION: NAME, SIZE`, or none.
//
// type of_variable: struct entry, 48
// type of_type: vector_t, 12
// type of_members: struct entry, 48
// type of_cast: struct entry, 48
// type of_assignment: vector_t, 12
// type of_pointers: struct entry*, 8
// type of_inlined: struct list, 32
// type of_cast_bytes: none
// type of_assigned_bytes: none
// type with_a_tail: none
// type misfit: none
// type of_bytes: none
// type of_two: none
// type unsaid: none
#include <stdlib.h>

struct entry {
  long a[6];
};
typedef struct {
  int x, y, z;
} vector_t;
struct list {
  struct list* next;
  struct {
    struct entry* items;
    vector_t* vectors;
  } in;
  int n;
};

__attribute__((noinline)) static void use(void* p) { __asm__ volatile("" ::"r"(p) : "memory"); }

__attribute__((noinline)) void of_variable(void) {
  struct entry* p = malloc(sizeof(*p));
  use(p);
  free(p);
}
__attribute__((noinline)) void of_type(void) {
  void* p = calloc(12, sizeof(vector_t));
  use(p);
  free(p);
}
__attribute__((noinline)) void of_members(struct list* list, int n) {
  list->in.items = malloc(n * /* not sizeof(struct list) */
                          sizeof(*list->in.items));
  use(list);
  free(list->in.items);
}
__attribute__((noinline)) void of_cast(int n) {
  void* p = (struct entry*)malloc(n + 40);
  use(p);
  free(p);
}
__attribute__((noinline)) void of_assignment(struct list* list, int n) {
  list->in.vectors = malloc(n + 4);
  use(list);
  free(list->in.vectors);
}
__attribute__((noinline)) void of_pointers(int n) {
  struct entry** p = malloc(n * sizeof *p);
  use(p);
  free(p);
}
static inline void* inlined(void) {
  struct list* p = malloc(sizeof *p);
  use(p);
  return p;
}
__attribute__((noinline)) void of_inlined(void) { free(inlined()); }
__attribute__((noinline)) void of_cast_bytes(int n) {
  void* p = (struct entry*)malloc(n * 48);
  use(p);
  free(p);
}
__attribute__((noinline)) void of_assigned_bytes(struct list* list, int n) {
  list->in.vectors = malloc(n * 12);
  use(list);
  free(list->in.vectors);
}
__attribute__((noinline)) void with_a_tail(int n) {
  struct list* p = malloc(sizeof(struct list) + n * 32);
  use(p);
  free(p);
}
__attribute__((noinline)) void misfit(int n) {
  struct entry* p = malloc(40 + n);
  use(p);
  free(p);
}
__attribute__((noinline)) void of_bytes(int n) {
  char* p = malloc(n);
  use(p);
  free(p);
}
__attribute__((noinline)) void of_two(void) {
  void* p = malloc(sizeof(struct entry) + sizeof(struct list) + 64);
  use(p);
  free(p);
}
__attribute__((noinline)) void unsaid(void) {
  void* p = malloc(48);
  use(p);
  free(p);
}

int main(void) {
  struct list list;
  for (int i = 0; i < 200; i++) {
    of_variable();
    of_type();
    of_members(&list, i % 9 + 1);
    of_cast(8);
    of_assignment(&list, 8);
    of_cast_bytes(i % 5 + 1);
    of_assigned_bytes(&list, i % 7 + 1);
    of_pointers(i % 7 + 1);
    of_inlined();
    with_a_tail(i % 5 + 1);
    misfit(i);
    of_bytes(i + 1);
    of_two();
    unsaid();
  }
  return 0;
}
