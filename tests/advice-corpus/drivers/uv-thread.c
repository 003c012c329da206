// Short threads, one after another.
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

static void count(void* total) { ++*(int*)total; }

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1000;
  int total = 0;
  for (int number = 0; number < threads; number++) {
    uv_thread_t thread;
    if (uv_thread_create(&thread, count, &total) != 0 || uv_thread_join(&thread) != 0) return 1;
  }
  printf("%d threads\n", total);
  return 0;
}
