/* larder-measure PRELOAD OUTPUT LIMIT COMMAND...: runs COMMAND with PRELOAD as its LD_PRELOAD ("-":
   none), at most LIMIT seconds, and writes a JSON object to the file OUTPUT: wall and CPU time,
   peak resident memory, page faults, and how the command ended.

   A program of its own because a child's ru_maxrss starts from the resident set of the process
   that forked it: a large runner would hide the small workloads. The command leads a process group
   of its own; what is left of the group when the command has ended is killed, so that a server that
   outlives its script cannot disturb the next run.

   Exits with 0 if the command was started and OUTPUT written, else with 1 and a line on stderr. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum end { kExited, kTimedOut, kInterrupted };

/* Time for the command to clean up after SIGTERM. */
static const double kGraceSeconds = 3;

static double seconds(struct timeval value) {
  return (double)value.tv_sec + (double)value.tv_usec * 1e-6;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int fail(const char* what, const char* name) {
  fprintf(stderr, "larder-measure: %s %s: %s\n", what, name, strerror(errno));
  return 1;
}

static void start(char** argv, const sigset_t* mask) {
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, mask, NULL);
  if (strcmp(argv[1], "-") == 0) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", argv[1], 1);
  }
  execvp(argv[4], argv + 4);
  const int error = errno;
  fail("cannot run", argv[4]);
  _exit(error == ENOENT ? 127 : 126);
}

/* Waits for the child's end, up to `until`. REQUIRES: the signals are blocked. */
static enum end wait_until(const sigset_t* signals, pid_t child, double until) {
  for (;;) {
    siginfo_t ended = {0};
    if (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == child) {
      return kExited;
    }
    const double left = until - now();
    if (left <= 0) return kTimedOut;
    const struct timespec timeout = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    const int signal = sigtimedwait(signals, NULL, &timeout);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return kInterrupted;
  }
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: larder-measure PRELOAD|- OUTPUT LIMIT COMMAND...\n");
    return 1;
  }
  char* rest = NULL;
  const double limit = strtod(argv[3], &rest);
  if (*rest != '\0' || !(limit > 0)) {
    fprintf(stderr, "larder-measure: the limit %s is not a positive number of seconds\n", argv[3]);
    return 1;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t signals;
  sigset_t inherited;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGHUP);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, &inherited);

  const double begin = now();
  const pid_t child = fork();
  if (child < 0) return fail("cannot fork for", argv[4]);
  if (child == 0) start(argv, &inherited);
  setpgid(child, child);

  const enum end end = wait_until(&signals, child, begin + limit);
  if (end != kExited) {
    kill(-child, SIGTERM);
    wait_until(&signals, child, now() + kGraceSeconds);
  }
  const double wall = now() - begin;
  /* Before the child is waited for, so that its process group cannot be anybody else's. */
  kill(-child, SIGKILL);
  int status = 0;
  struct rusage usage;
  while (wait4(child, &status, 0, &usage) < 0) {
    if (errno != EINTR) return fail("cannot wait for", argv[4]);
  }

  FILE* output = fopen(argv[2], "we");
  if (output == NULL) return fail("cannot write", argv[2]);
  fprintf(output,
          "{\"wall_seconds\": %.6f, \"cpu_seconds\": %.6f, \"peak_kib\": %ld, "
          "\"page_faults\": %ld, \"timed_out\": %s, \"interrupted\": %s, \"%s\": %d}\n",
          wall, seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss,
          usage.ru_minflt + usage.ru_majflt, end == kTimedOut ? "true" : "false",
          end == kInterrupted ? "true" : "false", WIFSIGNALED(status) ? "signal" : "exit_code",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return fclose(output) == 0 ? 0 : fail("cannot write", argv[2]);
}
