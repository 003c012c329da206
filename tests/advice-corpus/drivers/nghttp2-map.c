// The streams of long connections, by number: 2,000 entered and removed in each ROUND.
#include <config.h>
#include <nghttp2_map.h>
#include <stdio.h>
#include <stdlib.h>

enum { kStreams = 2000 };

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  int found = 0;
  for (int round = 0; round < rounds; round++) {
    nghttp2_map map;
    if (nghttp2_map_init(&map, nghttp2_mem_default()) != 0) return 1;
#ifdef BEFORE
    static nghttp2_map_entry streams[kStreams];
#else
    static int streams[kStreams];
#endif
    for (int number = 0; number < kStreams; number++) {
#ifdef BEFORE
      nghttp2_map_entry_init(&streams[number], 2 * number + 1);
      if (nghttp2_map_insert(&map, &streams[number]) != 0) return 1;
#else
      if (nghttp2_map_insert(&map, 2 * number + 1, &streams[number]) != 0) return 1;
#endif
    }
    for (int number = 0; number < kStreams; number++) {
      found += nghttp2_map_find(&map, 2 * number + 1) == (void*)&streams[number];
      nghttp2_map_remove(&map, 2 * number + 1);
    }
    nghttp2_map_free(&map);
  }
  printf("%d streams\n", found);
  return 0;
}
