/* bench_pair_loop SIZE PAIRS: pairs of malloc and free, and nothing else, for counting their
   instructions. Built on the system's malloc, with each of the library's two archives linked in
   (BENCH_PREFIXED: by its other names), and with the functions of larder/inline.h, to which the
   usual sizes are constants (BENCH_INLINE). The loop itself is counted by bench_pair_floor.
 */
#include <stdio.h>
#include <stdlib.h>

#if defined(BENCH_INLINE)
#include <larder/inline.h>
#define BENCH_MALLOC larder_malloc_inline
#define BENCH_FREE larder_free_sized_inline
#elif defined(BENCH_PREFIXED)
#include <larder/larder_malloc.h>
#define BENCH_MALLOC larder_malloc
#define BENCH_FREE(block, size) larder_free(block)
#else
#define BENCH_MALLOC malloc
#define BENCH_FREE(block, size) free(block)
#endif

static inline __attribute__((always_inline)) int run(size_t size, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    void* block = BENCH_MALLOC(size);
    __asm__ volatile("" : "+r"(block) : : "memory");
    BENCH_FREE(block, size);
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: bench_pair_loop SIZE PAIRS\n");
    return 2;
  }
  const size_t size = strtoul(argv[1], NULL, 10);
  const size_t pairs = strtoul(argv[2], NULL, 10);
#ifdef BENCH_INLINE
  if (size == 16) return run(16, pairs);
  if (size == 50) return run(50, pairs);
  if (size == 200) return run(200, pairs);
  if (size == 1000) return run(1000, pairs);
#endif
  return run(size, pairs);
}
