/* bench_pair_loop SIZE PAIRS: pairs of malloc and free, and nothing else, for counting their
   instructions. Built on the system's malloc, and with each of the library's two archives linked
   in (BENCH_MALLOC, BENCH_FREE name the functions). The loop itself is counted by bench_pair_floor.
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef BENCH_PREFIXED
#include <larder/larder_malloc.h>
#define BENCH_MALLOC larder_malloc
#define BENCH_FREE larder_free
#else
#define BENCH_MALLOC malloc
#define BENCH_FREE free
#endif

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: bench_pair_loop SIZE PAIRS\n");
    return 2;
  }
  const size_t size = strtoul(argv[1], NULL, 10);
  const size_t pairs = strtoul(argv[2], NULL, 10);
  for (size_t i = 0; i < pairs; ++i) {
    void* block = BENCH_MALLOC(size);
    __asm__ volatile("" : "+r"(block) : : "memory");
    BENCH_FREE(block);
  }
  return 0;
}
