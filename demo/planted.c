/* What demo/check plants into curl: an allocation for each turn of the transfer loop. The loop
   waits in poll(); this one waits on a copy of the set, which it makes in a fresh block every time.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

int poll(struct pollfd* set, nfds_t count, int timeout) {
  static int (*below)(struct pollfd*, nfds_t, int);
  if (!below) *(void**)&below = dlsym(RTLD_NEXT, "poll");
  struct pollfd* copy = malloc((count + 1) * sizeof *copy);
  if (!copy) return below(set, count, timeout);
  if (count) memcpy(copy, set, count * sizeof *copy);
  int ready = below(copy, count, timeout);
  if (count) memcpy(set, copy, count * sizeof *copy);
  free(copy);
  return ready;
}
