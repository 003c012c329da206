// gperftools' heap profiler (include/gperftools/heap-profiler.h): writes the heap profile to
// PREFIX.0001.heap, PREFIX.0002.heap and so on, each time an interval has passed.
//
// Intervals are checked when a sample begins or ends. Thread safety: any thread; one writes at a
// time. In a signal handler that interrupted the allocator, writing waits for the next sample.
#pragma GCC visibility push(default)
#include "base/policy.h"
#include "gperftools/heap-profiler.h"
#pragma GCC visibility pop

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/sampler.h"
#include "core/thread_heap.h"
#include "os/environment.h"
#include "os/line.h"
#include "os/mapped_text.h"
#include "sample/profile.h"

using namespace larder;

namespace {

struct Profiler {
  // Relaxed: flags, which publish nothing; `writer` orders what the writer leaves.
  std::atomic<int> running{0};
  std::atomic<int> wanted{0};  // a signal handler that could not write
  // The writing process, or 0. Not a Lock, which fork would have to take: a child does not wait for
  // its parent's threads.
  std::atomic<int> writer{0};

  // Written by the writer:
  int process = 0;  // owns the prefix; other processes add their id
  bool with_id = false;
  unsigned count = 0;
  uint64_t written_ms = 0;
  SampleTotals written = {};
  double max_in_use = 0;
  char prefix[PATH_MAX] = {};
  char path[PATH_MAX + 40] = {};
};
constinit Profiler profiler;

// Bytes, and seconds; 0: never for this reason. The defaults are gperftools'.
struct Intervals {
  int64_t allocated = int64_t{1} << 30;
  int64_t freed = 0;
  int64_t more_in_use = int64_t{100} << 20;
  int64_t seconds = 0;
};
constinit Intervals every;

bool is_running() { return profiler.running.load(std::memory_order_relaxed) != 0; }

struct Reason {
  char text[100];
};

uint64_t mib(double bytes) { return bytes > 0 ? uint64_t(bytes / (1 << 20)) : 0; }

bool try_to_be_writer() {
  int self = os::process_id(), other = profiler.writer.load(std::memory_order_relaxed);
  return other != self &&
         profiler.writer.compare_exchange_strong(other, self, std::memory_order_acquire);
}
void end_writing() { profiler.writer.store(0, std::memory_order_release); }

const char* next_path(bool with_id) {
  TextBuffer path(profiler.path, sizeof profiler.path);
  path.put(profiler.prefix);
  if (with_id) path.put("_").put_number(uint64_t(os::process_id()));
  path.put(".").put_number(profiler.count, 4).put(".heap");
  return profiler.path;
}

// REQUIRES: the thread is the writer, in a slow path.
void write_next(const char* reason) {
  ++profiler.count;
  profiler.with_id = profiler.with_id || profiler.process != os::process_id();
  int file = os::create(next_path(profiler.with_id));
  // Perhaps of another process with the same variable.
  if (file == -EEXIST && !profiler.with_id) {
    profiler.with_id = true;
    file = os::create(next_path(true));
  }
  Line().put("Dumping heap profile to ").put(profiler.path).put(" (").put(reason).put(")").write();
  int error = file < 0 ? -file : profile_write_entered(file);
  if (error != 0) profile_complain(profiler.path, error);
  if (file >= 0) os::close(file);
  profiler.written = sample_totals();
  profiler.written_ms = os::now_ms();
  if (profiler.written.in_use > profiler.max_in_use) profiler.max_in_use = profiler.written.in_use;
}

// False: no profile is due.
bool is_due(Reason* reason) {
  SampleTotals now = sample_totals();
  TextBuffer text(reason->text, sizeof reason->text);
  auto reached = [](double value, double since, int64_t interval) {
    return interval != 0 && value >= since + double(interval);
  };
  if (profiler.wanted.exchange(0, std::memory_order_relaxed))
    text.put("signal");
  else if (reached(now.allocated, profiler.written.allocated, every.allocated))
    text.put_number(mib(now.allocated)).put(" MB allocated cumulatively");
  else if (reached(now.freed(), profiler.written.freed(), every.freed))
    text.put_number(mib(now.freed())).put(" MB freed cumulatively");
  else if (reached(now.in_use, profiler.max_in_use, every.more_in_use))
    text.put("");
  else if (every.seconds != 0 &&
           os::now_ms() >= profiler.written_ms + 1000 * uint64_t(every.seconds))
    text.put_number((os::now_ms() - profiler.written_ms) / 1000).put(" sec since the last dump");
  else
    return false;
  if (reason->text[0] != 0) text.put(", ");
  text.put_number(mib(now.in_use)).put(" MB currently in use");
  return true;
}

void look() {
  if (!try_to_be_writer()) return;
  int saved_errno = errno;
  Reason reason;
  if (is_running() && is_due(&reason)) write_next(reason.text);
  errno = saved_errno;
  end_writing();
}

// Runs as the writer, in a slow path; not in a signal handler that interrupted the allocator.
template <typename Do>
bool as_writer(Do act) {
  SlowPath path;
  if (!path.entered()) return false;
  int saved_errno = errno;
  while (!try_to_be_writer()) os::sleep_ms(1);
  act();
  end_writing();
  errno = saved_errno;
  return true;
}

void dump_for_signal(int) {
  if (!is_running()) return;
  if (!as_writer([] { write_next("signal"); })) profiler.wanted.store(1, std::memory_order_relaxed);
}

void read_signal() {
  int64_t number = 0;
  read_number("HEAPPROFILESIGNAL", 0, 64, &number);
  if (number == 0) return;
  struct sigaction action = {};
  action.sa_handler = dump_for_signal;
  action.sa_flags = SA_RESTART;
  if (sigaction(int(number), &action, nullptr) != 0)
    Line()
        .put("HEAPPROFILESIGNAL: signal ")
        .put_number(size_t(number))
        .put(" cannot be taken")
        .write();
}

// After the options are read and the mean is set.
[[gnu::constructor(102)]] void start_from_environment() {
  read_signal();
  constexpr int64_t kMaxInterval = int64_t{1} << 50;
  read_number("HEAP_PROFILE_ALLOCATION_INTERVAL", 0, kMaxInterval, &every.allocated);
  read_number("HEAP_PROFILE_DEALLOCATION_INTERVAL", 0, kMaxInterval, &every.freed);
  read_number("HEAP_PROFILE_INUSE_INTERVAL", 0, kMaxInterval, &every.more_in_use);
  read_number("HEAP_PROFILE_TIME_INTERVAL", 0, 1000'000'000, &every.seconds);
  const char* prefix = variable("HEAPPROFILE");
  if (prefix == nullptr) return;
  for (const char* name : {"HEAP_PROFILE_MMAP", "HEAP_PROFILE_ONLY_MMAP", "HEAP_PROFILE_MMAP_LOG"})
    if (variable(name) != nullptr)
      Line().put(name).put(" is not taken: the profile has what malloc gives").write();
  HeapProfilerStart(prefix);
}

[[gnu::destructor(102)]] void write_at_exit() {
  if (!is_running()) return;
  Reason reason;
  TextBuffer text(reason.text, sizeof reason.text);
  {
    SlowPath path;  // a signal handler must not wait for the sampler's lock
    text.put("Exiting, ").put_number(mib(sample_totals().in_use)).put(" MB in use");
  }
  HeapProfilerDump(reason.text);
  // gperftools' own library, if it is loaded as well, starts it once more.
  HeapProfilerStop();
}

}  // namespace

extern "C" {

void HeapProfilerStart(const char* prefix) {
  // An explicit start turns the sampler on.
  if (prefix == nullptr) return;
  if (strlen(prefix) >= PATH_MAX) return profile_complain(prefix, ENAMETOOLONG);
  as_writer([prefix] {
    if (is_running()) return;
    if (sample_mean() == 0) set_sample_mean(kProfilerMean);
    memcpy(profiler.prefix, prefix, strlen(prefix) + 1);
    profiler.process = os::process_id();
    profiler.with_id = false;
    profiler.count = 0;
    profiler.written = sample_totals();
    profiler.max_in_use = profiler.written.in_use;
    profiler.written_ms = os::now_ms();
    profiler.running.store(1, std::memory_order_relaxed);
    set_sample_watch(look);
  });
}

int IsHeapProfilerRunning() { return is_running() ? 1 : 0; }

void HeapProfilerStop() {
  set_sample_watch(nullptr);
  profiler.running.store(0, std::memory_order_relaxed);
}

void HeapProfilerDump(const char* reason) {
  if (!is_running()) return;
  if (!as_writer([reason] { write_next(reason != nullptr ? reason : "no reason"); }))
    profiler.wanted.store(1, std::memory_order_relaxed);
}

char* GetHeapProfile() {
  MappedText profile;
  if (is_running() && profile_write(MappedText::add, &profile) != 0) return nullptr;
  auto* copy = static_cast<char*>(malloc(profile.length() + 1));
  if (copy == nullptr) return nullptr;
  memcpy(copy, profile.text(), profile.length());
  copy[profile.length()] = 0;
  return copy;
}

}  // extern "C"
