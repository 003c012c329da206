// Repeats the calls of a recorded program, at full speed, on the malloc of this process, with one
// thread for each recorded one. See docs/tasks/replay-on-other-allocators.md.
//
// Invariant: between the first operation and the last, only pthread_create uses the allocator for
// the replay itself; its tables are mappings that are resident before the start.
//
// Exit codes: 0 done, 2 wrong usage or operations, 3 no memory.

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "resident.h"
#include "thread.h"

namespace replay {

namespace {

constexpr char kHelp[] =
    "Usage: larder-replay [--touch none|edges|all] [--dry] < OPERATIONS\n"
    "Carries out what `larder replay --operations FILE` has compiled on the malloc of this "
    "process;\n"
    "preload one to have that.\n"
    "\n"
    "  --touch WHAT  write to no byte of a block, its first and last, or to each page [all]\n"
    "  --dry         go through the operations and call nothing\n";

struct Usage {
  double wall_seconds;
  double cpu_seconds;
};

double seconds(timeval time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; }

Usage now() {
  timespec time;
  rusage usage;
  clock_gettime(CLOCK_MONOTONIC, &time);
  getrusage(RUSAGE_SELF, &usage);
  return {double(time.tv_sec) + double(time.tv_nsec) * 1e-9,
          seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

void parse(int count, char** words) {
  auto is = [&](int i, const char* text) { return i < count && strcmp(words[i], text) == 0; };
  for (int i = 1; i < count; ++i) {
    if (is(i, "--dry")) {
      shared.dry = true;
    } else if (is(i, "--help")) {
      fputs(kHelp, stdout);
      exit(0);
    } else if (!is(i, "--touch")) {
      give_up(kExitUsage, "%s: no such option; see --help", words[i]);
    } else if (is(++i, "none")) {
      shared.touch = Touch::kNone;
    } else if (is(i, "edges")) {
      shared.touch = Touch::kEdges;
    } else if (!is(i, "all")) {
      give_up(kExitUsage, "--touch needs none, edges or all");
    }
  }
}

void prepare() {
  Header& header = shared.header;
  const ssize_t n = pread(STDIN_FILENO, &header, sizeof header, 0);
  if (n != ssize_t(sizeof header) || memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    give_up(kExitUsage, "standard input has no operations of this version; see --help");
  // Each slot takes at least a word, each thread an entry of the table.
  struct stat file;
  const bool sized = fstat(STDIN_FILENO, &file) == 0 && S_ISREG(file.st_mode);
  const uint64_t most = sized ? uint64_t(file.st_size) / sizeof(uint64_t) : UINT32_MAX;
  if (header.slots > uint64_t(1) << kSmallBits || header.slots > most || header.threads > most ||
      header.most_threads > header.threads)
    give_up_damaged();
  shared.slots = static_cast<Slot*>(map_resident((header.slots + 1) * sizeof(Slot)));
  plan_buffers(header.most_threads + 1);
}

void await_threads() {
  for (uint32_t live; (live = shared.live_threads.load()) != 0;)
    futex_wait(shared.live_threads, live, 1);
}

// The kernel ends a thread after our function has returned.
void await_ends() {
  constexpr int kTries = 2000;
  for (int i = 0; i < kTries && status_field("Threads:") > 1; ++i) usleep(1000);
}

const char* library_of_malloc() {
  Dl_info info;
  const bool found = dladdr(reinterpret_cast<void*>(&malloc), &info) != 0;
  return found && info.dli_fname != nullptr ? info.dli_fname : "";
}

void print_path(const char* path) {
  for (; *path != 0; ++path) {
    const auto c = static_cast<unsigned char>(*path);
    if (c == '"' || c == '\\' || c < ' ') {
      printf("\\u%04x", c);
    } else {
      putchar(c);
    }
  }
}

}  // namespace

int run(int count, char** words) {
  parse(count, words);
  prepare();
  const char* library = library_of_malloc();
  const bool exact = forget_peak();
  const uint64_t start = status_field("VmRSS:");
  const Usage begin = now();
  if (shared.header.threads != 0) run_thread(0);
  await_threads();
  const Usage end = now();
  const Counts& counts = shared.counts;
  const uint64_t unplanned = counts.unplanned.load() / 1024;
  const uint64_t peak = status_field("VmHWM:");
  await_ends();
  const uint64_t rest = status_field("VmRSS:");

  printf("{\"malloc\": \"");
  print_path(library);
  printf("\", \"seconds\": %.9f, \"cpu_seconds\": %.6f, \"start_kib\": %" PRIu64
         ", \"peak_kib\": %" PRIu64 ", \"end_kib\": %" PRIu64 ", \"peak_is_exact\": %s",
         end.wall_seconds - begin.wall_seconds, end.cpu_seconds - begin.cpu_seconds, start,
         peak - unplanned, rest - unplanned, exact ? "true" : "false");
  printf(", \"makes\": %" PRIu64 ", \"reallocs\": %" PRIu64 ", \"frees\": %" PRIu64
         ", \"bytes\": %" PRIu64 ", \"handed_over\": %" PRIu64 ", \"waits\": %" PRIu64 "}\n",
         counts.makes.load(), counts.reallocs.load(), counts.frees.load(), counts.bytes.load(),
         counts.handed.load(), counts.waits.load());
  fflush(stdout);
  // Destructors would access what the replay leaves allocated.
  _exit(0);
}

}  // namespace replay

int main(int count, char** words) { return replay::run(count, words); }
