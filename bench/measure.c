/* measure PRELOAD OUTPUT COMMAND...: runs COMMAND with PRELOAD as its LD_PRELOAD ("-": none) and
   writes wall time, CPU time and peak resident memory as JSON to the file OUTPUT.

   A program of its own because a child's ru_maxrss starts from the resident set of the process
   that forked it: from a Python runner, 15 MiB would be the least any workload could show.
   Exits with 0 if COMMAND does, else with 1 and a line that says how it ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval value) {
  return (double)value.tv_sec + (double)value.tv_usec * 1e-6;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: measure PRELOAD|- OUTPUT COMMAND...\n");
    return 2;
  }
  const double start = now();
  const pid_t child = fork();
  if (child < 0) {
    perror("measure: fork");
    return 1;
  }
  if (child == 0) {
    if (strcmp(argv[1], "-") == 0) {
      unsetenv("LD_PRELOAD");
    } else {
      setenv("LD_PRELOAD", argv[1], 1);
    }
    execvp(argv[3], argv + 3);
    fprintf(stderr, "measure: cannot run %s: %s\n", argv[3], strerror(errno));
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  while (wait4(child, &status, 0, &usage) < 0) {
    if (errno != EINTR) {
      perror("measure: wait4");
      return 1;
    }
  }
  const double wall = now() - start;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "measure: %s ended with %s %d\n", argv[3],
            WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
  }
  FILE* output = fopen(argv[2], "we");
  if (output == NULL) {
    fprintf(stderr, "measure: cannot write %s: %s\n", argv[2], strerror(errno));
    return 1;
  }
  fprintf(output, "{\"wall_seconds\": %.6f, \"cpu_seconds\": %.6f, \"peak_kib\": %ld}\n", wall,
          seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss);
  return fclose(output) == 0 ? 0 : 1;
}
