/* gperftools' heap profiler from a C program. What is written is looked at by heap_profiler.py.
 * Usage: heap_profiler PREFIX        starts and stops it by calls
 *        heap_profiler ""            leaves it to the variables
 *        heap_profiler signal        likewise, and raises SIGUSR2
 *        heap_profiler fork          likewise, and forks a child that ends by itself */
#include <gperftools/heap-profiler.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBlocks = 400, kBytes = 100000 };

static void* blocks[kBlocks];

__attribute__((noinline)) static void allocate_and_free(void) {
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kBytes);
    memset(blocks[i], 1, 100);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}

static int fail(const char* what) {
  fprintf(stderr, "FAILED heap_profiler: %s\n", what);
  return 1;
}

static int by_calls(const char* prefix) {
  char* text = GetHeapProfile();
  if (IsHeapProfilerRunning() || text == NULL || *text != '\0')
    return fail("it runs before the start");
  free(text);
  HeapProfilerDump("not running");
  HeapProfilerStart(prefix);
  HeapProfilerStart("/nowhere/else");
  if (!IsHeapProfilerRunning()) return fail("it does not run");
  allocate_and_free();
  text = GetHeapProfile();
  if (text == NULL || strncmp(text, "heap profile: ", 14) != 0 ||
      strstr(text, "MAPPED_LIBRARIES") == NULL)
    return fail("GetHeapProfile");
  free(text);
  HeapProfilerDump("by hand");
  HeapProfilerStop();
  HeapProfilerDump("stopped");
  return IsHeapProfilerRunning() ? fail("it runs after the stop") : 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage");
  if (argv[1][0] == '/') return by_calls(argv[1]);
  allocate_and_free();
  if (strcmp(argv[1], "signal") == 0) return raise(SIGUSR2);
  if (argv[1][0] == '\0') return 0;
  pid_t child = fork();
  if (child == 0) return 0;
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return fail("the child");
  return 0;
}
