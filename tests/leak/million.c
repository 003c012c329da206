// A million live blocks of 64 bytes, for the time that `larder record --leaks` takes at the end.
// Usage: million table|list|lost: how the blocks are led to.
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 1000000 };
struct node {
  struct node* next;
  char rest[56];
};
// Not static: the compiler drops writes to what is never read.
struct node* table[kBlocks];
struct node* head;

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "";
  for (int i = 0; i < kBlocks; i++) {
    struct node* node = calloc(1, sizeof *node);
    if (strcmp(kind, "table") == 0) table[i] = node;
    if (strcmp(kind, "list") == 0 && node) {
      node->next = head;
      head = node;
    }
  }
  return 0;
}
