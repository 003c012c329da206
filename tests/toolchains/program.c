/* Prints the version of the Larder that malloc is of. */
#include <larder/larder.h>
#include <stdio.h>
#ifdef PREFIXED
#include <larder/larder_malloc.h>
#define malloc larder_malloc
#else
#include <stdlib.h>
#endif

int main(void) {
  struct larder_stats stats;
  void* volatile kept = malloc(1 << 20);
  larder_get_stats(&stats, sizeof stats);
  puts(kept && stats.in_use >= 1 << 20 ? larder_version() : "another malloc");
}
