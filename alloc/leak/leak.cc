#include "leak/leak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/large.h"
#include "core/registry.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "leak/leak_exempt.h"
#include "leak/leak_profile.h"
#include "leak/leak_report.h"
#include "leak/reach.h"
#include "leak/suppressions.h"
#include "os/endpoint.h"
#include "os/line.h"
#include "os/os.h"

// glibc's, to flush, and for thread_local objects; and the compiler's.
extern "C" {
[[gnu::weak]] int fcloseall();
[[gnu::weak]] int __cxa_thread_atexit_impl(void (*)(void*), void*, void*);
[[gnu::visibility("hidden")]] extern void* __dso_handle;
}

namespace larder {

LeakOptions* leak_options = nullptr;

namespace {

struct Checker {
  Lock lock;        // one check at a time: guards the marks on objects and what a report counts
  int process = 0;  // written once, by the constructor
  std::atomic<bool> checked{false};
  std::atomic<void (*)()> cleanup{nullptr};
};
constinit Checker checker;

void say(const char* text) { os::write_stderr(text, strlen(text)); }

void explain(LeakList::Result result) {
  switch (result) {
    case LeakList::Result::kDone:
      break;
    case LeakList::Result::kBusy:
      Line().put("leaks cannot be checked within a signal handler or after a torn fork").write();
      break;
    case LeakList::Result::kNoMemory:
      Line().put("leaks cannot be checked: no memory").write();
      break;
    case LeakList::Result::kNoProc:
      Line().put("leaks cannot be checked: /proc/self/maps cannot be read").write();
      break;
  }
}

// Reports whether unaligned pointers reach the leaks.
void test_alignment(const CallingThread& me, uint64_t since_us) LARDER_REQUIRES(checker.lock) {
  LeakOptions options = *leak_options;
  options.source_alignment = 1;
  LeakList list;
  if (list.find(me, options, since_us) != LeakList::Result::kDone) return;
  say(list.total.objects == 0
          ? "Found no leaks without pointer alignment: something might be placing pointers at "
            "unaligned addresses! This needs to be fixed.\n"
          : "Found leaks without pointer alignment as well: unaligned pointers must not be the "
            "cause of leaks.\n");
}

// Reports what limits the check.
void warn(const LeakList& list) {
  if (list.others_unstopped)
    Line()
        .put("other threads could not be stopped (ptrace is not allowed here, perhaps): ")
        .put("what only their registers hold may be called a leak")
        .write();
  if (!os::own_mappings_are_known())
    Line().put("not all of the heap's own memory is known: leaks may be missed").write();
}

LeakList::Result find(const CallingThread& me, uint64_t since_us, LeakList* list)
    LARDER_REQUIRES(checker.lock) {
  free_left_by_signals();
  LeakList::Result result;
  do result = list->find(me, *leak_options, since_us);
  while (result == LeakList::Result::kDone && exempt_sites(*list, *leak_options));
  explain(result);
  if (leak_options->verbose >= 0 && leak_options->report) report_suppressions();
  if (result == LeakList::Result::kDone) warn(*list);
  return result;
}

// The tool reads the profile, which is written without leaks, too.
void check_for_tool(LeakList* list) {
  CallingThread me;
  capture_caller(&me);
  LockGuard guard(checker.lock);
  if (find(me, 0, list) == LeakList::Result::kDone)
    write_leak_profile("_main_", *list, *leak_options);
}

void check_whole_program() {
  if (!leak_is_active() || !leak_options->whole_program || checker.checked) return;
  if (auto* cleanup = checker.cleanup.load()) cleanup();
  checker.checked = true;
  if (leak_options->delay_seconds != 0) os::sleep_ms(unsigned(leak_options->delay_seconds * 1000));
  LeakList list;
  if (leak_options->for_tool)
    check_for_tool(&list);
  else if (!leak_check("_main_", 0, &list))
    leak_exit();
}

// exit() runs a thread's destructors first, while the program's data are whole.
void check_before_destructors(void*) {
  CallingThread me;
  // They also run when the thread alone ends.
  if (!leak_options->after_destructors && capture_caller(&me)) check_whole_program();
}

[[gnu::destructor(101)]] void check_after_destructors() { check_whole_program(); }

}  // namespace

void leak_init() {
  LeakOptions read;
  read_leak_options(&read);
  if (read.on && !can_capture()) {
    Line().put("HEAPCHECK needs glibc 2.35 or later; nothing is checked").write();
    read.on = false;
  }
  void* memory = read.on ? os::map(round_up(sizeof read, os::page_size())) : nullptr;
  if (memory == nullptr) return os::forget_own_mappings();
  leak_options = static_cast<LeakOptions*>(memory);
  memcpy(memory, &read, sizeof read);
  checker.process = os::process_id();
  leak_exempt_init();
  suppressions_init();
  // glibc allocates an object for this, which nothing points to at the check. It may be sampled.
  leak_disable(1);
  if (&__cxa_thread_atexit_impl != nullptr)
    __cxa_thread_atexit_impl(check_before_destructors, nullptr, static_cast<void*>(&__dso_handle));
  leak_disable(-1);
  large_evict_last_freed();
  thread_exit();
  sample_all = true;
  if (leak_options->verbose >= 0 && !leak_options->for_tool)
    say("WARNING: Larder's heap leak checker is active -- Performance may suffer\n");
}

bool leak_is_active() {
  return leak_is_on() && checker.process == os::process_id() && !torn_by_fork;
}

bool leak_cancel() { return !checker.checked.exchange(true); }

void leak_exit() {
  say("Exiting with error code (instead of crashing) because of whole-program memory leaks\n");
  // Flushes the program's output like exit(), which does not wait for a thread that reads.
  &fcloseall != nullptr ? fcloseall() : fflush(nullptr);
  if (&larder_endpoint_close != nullptr) larder_endpoint_close();
  os::end_process(leak_options->exit_code);
}

void leak_disable(int more) {
  static constinit thread_local int depth = 0;
  depth += more;
  set_state_of_new_samples(depth > 0 ? kDisabled : 0);
}

void leak_set_cleanup(void (*cleanup)()) { checker.cleanup = cleanup; }

bool leak_ignore(const void* address, bool on) {
  SlowPath path;
  if (!path.entered()) return false;
  HeapLocked locked;
  HeapObject object = find_object(address);
  if (object.point == nullptr) return false;
  bool was_on = (object.point->state & kIgnored) != 0;
  object.point->state = on ? object.point->state | kIgnored : object.point->state & ~kIgnored;
  return on || was_on;
}

bool leak_check(const char* name, uint64_t since_us, LeakList* list) {
  CallingThread me;
  capture_caller(&me);
  LockGuard guard(checker.lock);
  if (find(me, since_us, list) != LeakList::Result::kDone) return true;
  if (list->total.objects == 0) {
    if (leak_options->verbose >= 0) report_no_leaks(name, *list);
    return true;
  }
  if (leak_options->report) {
    report_leaks(name, *list, *leak_options);
    write_leak_profile(name, *list, *leak_options);
    if (leak_options->test_alignment) test_alignment(me, since_us);
  }
  return false;
}

}  // namespace larder
