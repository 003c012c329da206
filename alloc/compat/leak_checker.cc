// gperftools' leak checker (include/gperftools/heap-checker.h): checks of a part of a program, and
// what the program declares to be no leak.
//
// A sample point's time says what was allocated since a checker was made. Thread safety: any
// thread. While HEAPCHECK is off, only the count of a Disabler is touched.
#pragma GCC visibility push(default)
#include "gperftools/heap-checker.h"
#pragma GCC visibility pop

#include <stdlib.h>
#include <string.h>

#include "core/meta.h"
#include "core/thread_heap.h"
#include "leak/leak.h"

using namespace larder;

static_assert(sizeof(HeapLeakChecker) == 56, "the size in gperftools");

namespace {

struct Cleanup {
  Cleanup* next;
  HeapCleaner::void_function run;
};
constinit std::atomic<Cleanup*> cleanups{nullptr};  // relaxed before a compare-and-swap

// A time that all later objects have, and no earlier one.
uint64_t now_and_not_before() {
  uint64_t now = os::now_us();
  while (os::now_us() == now) continue;
  return now + 1;
}

}  // namespace

// gperftools' own checker, which knows nothing of Larder's heap, never starts.
#pragma GCC visibility push(default)
void HeapLeakChecker_BeforeConstructors() {}
void HeapLeakChecker_InternalInitStart() {}
void HeapLeakChecker_RunHeapCleanups() {}
void HeapLeakChecker_AfterDestructors() {}
#pragma GCC visibility pop

bool HeapLeakChecker::IsActive() { return leak_is_active(); }

HeapLeakChecker* HeapLeakChecker::GlobalChecker() {
  // No destructor runs.
  alignas(HeapLeakChecker) static char memory[sizeof(HeapLeakChecker)];
  static char name[] = "_main_";
  if (!leak_is_active() || !leak_options->whole_program) return nullptr;
  auto* checker = reinterpret_cast<HeapLeakChecker*>(memory);
  checker->name_ = name;
  return checker;
}

bool HeapLeakChecker::NoGlobalLeaks() {
  HeapLeakChecker* checker = GlobalChecker();
  return checker == nullptr || checker->DoNoLeaks(SYMBOLIZE);
}

void HeapLeakChecker::CancelGlobalCheck() { leak_cancel(); }

HeapLeakChecker::HeapLeakChecker(const char* name)
    : name_(nullptr),
      since_us_(0),
      bytes_leaked_(0),
      objects_leaked_(0),
      has_checked_(false),
      unused_{} {
  if (!leak_is_active() || name == nullptr) return;
  size_t bytes = strlen(name) + 1;
  name_ = static_cast<char*>(malloc(bytes));
  if (name_ == nullptr) return;
  memcpy(name_, name, bytes);
  since_us_ = now_and_not_before();
}

HeapLeakChecker::~HeapLeakChecker() {
  if (name_ == nullptr) return;
  if (!has_checked_ && leak_is_active())
    fail("a HeapLeakChecker ends that was never asked for leaks", "heap-checker", 0);
  free(name_);
}

bool HeapLeakChecker::DoNoLeaks(ShouldSymbolize) {
  if (name_ == nullptr || !leak_is_active()) return true;
  // Spills the caller's registers to this frame.
  __builtin_unwind_init();
  LeakList list;
  bool none = leak_check(name_, since_us_, &list);
  has_checked_ = true;
  bytes_leaked_ = ssize_t(list.total.bytes);
  objects_leaked_ = ssize_t(list.total.objects);
  return none;
}

ssize_t HeapLeakChecker::BytesLeaked() const {
  if (name_ != nullptr && !has_checked_) fail("BytesLeaked before NoLeaks", "heap-checker", 0);
  return bytes_leaked_;
}

ssize_t HeapLeakChecker::ObjectsLeaked() const {
  if (name_ != nullptr && !has_checked_) fail("ObjectsLeaked before NoLeaks", "heap-checker", 0);
  return objects_leaked_;
}

HeapLeakChecker::Disabler::Disabler() { leak_disable(1); }
HeapLeakChecker::Disabler::~Disabler() { leak_disable(-1); }

void HeapLeakChecker::DoIgnoreObject(const void* p) {
  if (leak_is_active()) leak_ignore(p, true);
}

void HeapLeakChecker::UnIgnoreObject(const void* p) {
  if (leak_is_active() && !leak_ignore(p, false))
    fail("UnIgnoreObject of what is not ignored", "heap-checker", 0);
}

HeapCleaner::HeapCleaner(void_function run) {
  SlowPath path;
  if (!path.entered()) return;
  auto* cleanup = static_cast<Cleanup*>(meta_alloc(sizeof(Cleanup), alignof(Cleanup)));
  if (cleanup == nullptr) return;
  *cleanup = {cleanups.load(std::memory_order_relaxed), run};
  while (!cleanups.compare_exchange_weak(cleanup->next, cleanup)) continue;
  leak_set_cleanup(RunHeapCleanups);
}

void HeapCleaner::RunHeapCleanups() {
  for (Cleanup* c = cleanups.exchange(nullptr); c != nullptr; c = c->next) c->run();
}
