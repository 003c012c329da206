// A torture test for any malloc. See docs/tasks/test-an-allocator.md.
//
//   main ── rounds ──► streams of threads (worker) ──► checked calls (calls) ──► the allocator
//     │                     └── fork, short-lived threads, mailboxes,       └── index, pattern
//     │                         exchanges
//     ├── relays and growth, when everything is freed
//     └── monitor: signals, progress, hangs, crashes
//
// Invariant: the program does not use the allocator under test for itself, so that it can report a
// broken one.
//
// Exit codes: 0 clean, 1 a fault was found, 2 wrong usage or no resources.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "calls.h"
#include "growth.h"
#include "index.h"
#include "monitor.h"
#include "relay.h"
#include "worker.h"

#ifdef __SANITIZE_THREAD__
// The test forks with threads on purpose; the child starts none. Hundreds of locks are held across
// the fork.
extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:die_after_fork=0:detect_deadlocks=0:exitcode=66";
}
#endif

#ifdef __SANITIZE_ADDRESS__
// At a thread's end ASan would unmap our signal stack, mistaking it for its own.
extern "C" const char* __asan_default_options() { return "use_sigaltstack=0"; }
#endif

namespace torture {

namespace {

// Sanitizers are slow: shorter rounds, so that several fit into the time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kOperationsPerRound = 2000;
#else
constexpr uint64_t kOperationsPerRound = 6000;
#endif

constexpr char kHelp[] =
    "Usage: larder-torture [OPTIONS]\n"
    "Tortures the malloc of this process; preload one to torture that.\n"
    "\n"
    "  --threads N       concurrent streams of operations, 1 to 512 [4]\n"
    "  --seconds S       run for S seconds [10]\n"
    "  --rounds N        end after N rounds\n"
    "  --seed X          the seed of all operations, decimal or 0x… [random]\n"
    "  --round N         start with this round of the seed [1]\n"
    "  --live-mib M      approximate limit on the MiB allocated at a time [128]\n"
    "  --hang-seconds S  report a hang when a thread makes no progress for S seconds [60]\n"
    "  --no-forks        no fork\n"
    "  --no-signals      no signals\n"
    "  --ignore KIND     continue after faults misaligned, changed-errno, wrong-result or growth\n"
    "  --expect KIND,... exit 0 only if a fault of one of these kinds is found\n"
    "  --progress        report progress every half second\n"
    "\n"
    "Reports its findings in JSON, one object a line. `larder torture` prints them as text.\n";

[[noreturn]] void usage(const char* option, const char* value, const char* why) {
  give_up("%s%s%s: %s; see --help", option, value != nullptr ? " " : "",
          value != nullptr ? value : "", why);
}

uint64_t number(const char* option, const char* text, uint64_t low, uint64_t high) {
  if (text == nullptr) usage(option, nullptr, "needs a value");
  char* end = nullptr;
  errno = 0;
  uint64_t value = strtoull(text, &end, 0);
  if (*text < '0' || *text > '9' || *end != 0 || errno != 0 || value < low || value > high) {
    char why[80];
    snprintf(why, sizeof why, "must be a number from %llu to %llu",
             static_cast<unsigned long long>(low), static_cast<unsigned long long>(high));
    usage(option, text, why);
  }
  return value;
}

void parse(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const char* word = words[i];
    const char* value = i + 1 < count ? words[i + 1] : nullptr;
    auto is = [&](const char* name) { return strcmp(word, name) == 0; };
    ++i;
    if (is("--threads")) {
      settings.threads = unsigned(number(word, value, 1, kMaxThreads));
    } else if (is("--seconds")) {
      settings.seconds = double(number(word, value, 1, 10'000'000));
    } else if (is("--rounds")) {
      settings.rounds = number(word, value, 1, UINT32_MAX);
    } else if (is("--seed")) {
      settings.seed = number(word, value, 0, UINT64_MAX);
    } else if (is("--round")) {
      settings.first_round = number(word, value, 1, UINT32_MAX);
    } else if (is("--live-mib")) {
      settings.live_mib = size_t(number(word, value, 1, 1 << 20));
    } else if (is("--hang-seconds")) {
      settings.hang_seconds = unsigned(number(word, value, 1, 86400));
    } else if (is("--ignore")) {
      if (value == nullptr || !ignore(value))
        usage(word, value, "must be misaligned, changed-errno, wrong-result or growth");
    } else if (is("--expect")) {
      if (value == nullptr) usage(word, nullptr, "needs a value");
      settings.expect = value;
    } else {
      --i;
      if (is("--no-forks")) {
        settings.forks = false;
      } else if (is("--no-signals")) {
        settings.signals = false;
      } else if (is("--progress")) {
        settings.progress = true;
      } else if (is("--help")) {
        fputs(kHelp, stdout);
        exit(0);
      } else {
        usage(word, nullptr, "no such option");
      }
    }
  }
}

// True while a stream has operations left. Starts and joins its threads.
bool drive(Worker& stream) {
  if (stream.running) {
    if (!stream.finished.load(std::memory_order_acquire)) return true;
    join_thread(stream);
  }
  if (stream.operations_left == 0 || stop.load(std::memory_order_relaxed)) return false;
  start_thread(stream);
  return true;
}

void run_round(uint64_t round, uint64_t deadline_ms) {
  main_worker().where.round.store(round);
  for (unsigned i = 0; i < settings.threads; ++i)
    begin_round(worker(i), round, kOperationsPerRound);
  bool crowd_is_due = round % 4 == 2;
  for (bool busy = true; busy;) {
    busy = false;
    where->call.store("starting and joining threads");
    where->calls.fetch_add(1, std::memory_order_relaxed);
    for (unsigned i = 0; i < settings.threads; ++i) busy |= drive(worker(i));
    if (crowd_is_due) raise_crowd();
    crowd_is_due = false;
    if (now_ms() >= deadline_ms) stop.store(true, std::memory_order_relaxed);
    if (busy) sleep_us(500);
  }
  for (unsigned i = 0; i < settings.threads; ++i) release_all(worker(i));
}

void run() {
  uint64_t start = now_ms();
  uint64_t deadline = start + uint64_t(settings.seconds * 1000);
  for (uint64_t round = settings.first_round; !stop.load(); ++round) {
    run_round(round, deadline);
    if (stop.load()) break;
    if (round % 4 == 1) run_relay(round);
    check_growth();
    where->call.store("larder_check");
    if (family.check != nullptr) family.check();
    if (totals.rounds.fetch_add(1) + 1 == settings.rounds) break;
  }
  print_clean(double(now_ms() - start) / 1000);
}

}  // namespace
}  // namespace torture

int main(int count, char** words) {
  using namespace torture;
  settings.process = getpid();
  if (getrandom(&settings.seed, sizeof settings.seed, 0) < 0) settings.seed = now_ms();
  settings.seed >>= 32;
  parse(count, words);
  set_pattern_seed(settings.seed);
  if (!find_family()) return 2;
  if (!live_blocks::init() || !make_workers()) give_up("no memory for the program's own tables");
  become(main_worker());
  install_handlers();
  print_start();
  start_monitor();
  run();
  if (settings.expect == nullptr) return 0;
  fprintf(stderr, "larder-torture: no fault found, but %s is expected\n", settings.expect);
  return 1;
}
