// Cursors for queries, made and dropped, as by an editor that has one for each request.
#include <stdio.h>
#include <stdlib.h>
#include <tree_sitter/api.h>

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 1000;
  int made = 0;
  for (int round = 0; round < rounds; round++) {
    TSQueryCursor* cursor = ts_query_cursor_new();
    made += cursor != NULL;
    ts_query_cursor_delete(cursor);
  }
  printf("%d cursors\n", made);
  return 0;
}
