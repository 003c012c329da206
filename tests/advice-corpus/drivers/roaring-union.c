// Small sets of numbers, joined by fours, the smallest first.
#include <roaring.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int unions = argc > 1 ? atoi(argv[1]) : 2000;
  enum { SETS = 4 };
  roaring_bitmap_t* sets[SETS];
  for (int set = 0; set < SETS; set++) {
    sets[set] = roaring_bitmap_create();
    for (uint32_t number = 0; number < 10; number++)
      roaring_bitmap_add(sets[set], number * 7 + (uint32_t)set);
  }
  uint64_t members = 0;
  for (int number = 0; number < unions; number++) {
    roaring_bitmap_t* joined = roaring_bitmap_or_many_heap(SETS, (const roaring_bitmap_t**)sets);
    members += roaring_bitmap_get_cardinality(joined);
    roaring_bitmap_free(joined);
  }
  for (int set = 0; set < SETS; set++) roaring_bitmap_free(sets[set]);
  printf("%llu members\n", (unsigned long long)members);
  return 0;
}
