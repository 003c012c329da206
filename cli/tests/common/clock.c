// A clock for the program that this is preloaded into, which a test moves from outside (clock.rs):
// time stands still, and poll, nanosleep and clock_nanosleep wait, until the test passes some.
//
// The state is in the file that TEST_CLOCK names. The test writes what has passed, and reads who
// waits. The clocks of processors' time go on, and whatever is not called by these names.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kWaits = 255 };
static struct {
  _Atomic uint64_t passed_ns;
  // How much has passed when each wait ends; 0: none.
  _Atomic uint64_t until_ns[kWaits];
}* state;

// When the program started, by CLOCK_REALTIME and CLOCK_MONOTONIC.
static uint64_t start_ns[2];

static uint64_t in_ns(const struct timespec* time) {
  return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec;
}

static struct timespec of_ns(uint64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

// Of start_ns; -1: a clock that goes on.
static int stopped(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      return 0;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
      return 1;
    default:
      return -1;
  }
}

__attribute__((constructor)) static void start(void) {
  for (int clock = 0; clock < 2; ++clock) {
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    start_ns[clock] = in_ns(&now);
  }
  int file = open(getenv("TEST_CLOCK"), O_RDWR | O_CLOEXEC);
  void* mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) abort();
  close(file);
  state = mapped;
}

int clock_gettime(clockid_t clock, struct timespec* to) {
  int which = stopped(clock);
  if (state == NULL || which < 0) return (int)syscall(SYS_clock_gettime, clock, to);
  *to = of_ns(start_ns[which] + state->passed_ns);
  return 0;
}

// As poll, but until so much has passed.
static int wait_until(uint64_t until, struct pollfd* files, nfds_t count) {
  const struct timespec at_once = {0, 0}, look_again = {0, 1000000};
  int ready = ppoll(files, count, &at_once, NULL);
  if (ready != 0 || until <= state->passed_ns) return ready;
  int wait = 0;
  for (uint64_t none = 0; !atomic_compare_exchange_strong(&state->until_ns[wait], &none, until);
       none = 0)
    if (++wait == kWaits) abort();
  do ready = ppoll(files, count, &look_again, NULL);
  while (ready == 0 && state->passed_ns < until);
  int error = errno;
  state->until_ns[wait] = 0;
  errno = error;
  return ready;
}

int poll(struct pollfd* files, nfds_t count, int ms) {
  if (ms < 0) return ppoll(files, count, NULL, NULL);
  return wait_until(state->passed_ns + (uint64_t)ms * 1000000, files, count);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec* wanted,
                    struct timespec* left) {
  int which = stopped(clock);
  if (which < 0) return ENOTSUP;
  uint64_t until = in_ns(wanted);
  until = flags & TIMER_ABSTIME ? until - start_ns[which] : until + state->passed_ns;
  if (wait_until(until, NULL, 0) == 0) return 0;
  uint64_t passed = state->passed_ns;
  if (left != NULL) *left = of_ns(until > passed ? until - passed : 0);
  return EINTR;
}

int nanosleep(const struct timespec* wanted, struct timespec* left) {
  errno = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
  return errno == 0 ? 0 : -1;
}
