// The leak checker: which objects are unreachable, and where they were allocated.
//
// On if HEAPCHECK was set when the program began: every allocation is then recorded (sampler.h),
// and the whole program is checked when it ends. A child of fork does not report.
//
// Thread safety: any thread; one check at a time. While the checker is off, none of its code runs
// and none of its memory is touched.
#pragma once

#include "leak/leak_options.h"
#include "leak/roots.h"
#include "sample/site.h"

namespace larder {

// In the constructor, if HEAPCHECK is set.
void leak_init();

// The leaks of one site, or of all.
struct LeakSum {
  const Site* site;
  size_t objects, bytes;
  size_t indirect_objects, indirect_bytes;  // of these, reachable only from other leaks
  size_t first;                             // index of its first object in LeakList
};

struct LeakedObject {
  const Site* site;
  uintptr_t address;
  size_t bytes;
  bool indirect;
};

// The result of a check, in a mapping of its own.
class LeakList {
 public:
  LeakList() = default;
  ~LeakList() { clear(); }
  void clear();
  LeakList(const LeakList&) = delete;
  LeakList& operator=(const LeakList&) = delete;

  enum class Result { kDone, kBusy, kNoMemory, kNoProc };
  // Checks objects that were allocated at since_us (os::now_us()) or later. REQUIRES: the checker
  // is on.
  Result find(const CallingThread& me, const LeakOptions& options, uint64_t since_us);

  LeakSum total = {};
  LeakSum reachable = {};
  bool others_unstopped = false;  // their registers are unknown
  // By bytes, the largest first.
  const LeakSum* sums() const { return sums_; }
  size_t sum_count() const { return sum_count_; }
  const LeakedObject* objects() const { return objects_; }

 private:
  bool reserve(size_t max_objects);
  void group();
  LeakedObject* objects_ = nullptr;
  LeakSum* sums_ = nullptr;
  size_t count_ = 0, sum_count_ = 0, mapped_bytes_ = 0, sums_bytes_ = 0;
};

// Stores the caller's registers and stack, from the innermost frame outside of Larder on. At exit
// it stores those of exit()'s caller, and returns true.
bool capture_caller(CallingThread* me);

extern LeakOptions* leak_options;  // nullptr: the checker is off
inline bool leak_is_on() { return leak_options != nullptr; }
// The checker is on, and this process is not a child of fork.
bool leak_is_active();

// Checks what was allocated since, and reports the leaks under `name`. True: there are none.
bool leak_check(const char* name, uint64_t since_us, LeakList* list);
// Ends a process that leaks.
[[noreturn]] void leak_exit();
// Turns off the check at the end of the program. False: it was off, or has run.
bool leak_cancel();
// Objects that the calling thread allocates are no leaks while the sum of `more` is above 0.
void leak_disable(int more);
// Runs before the whole program is checked. It may allocate and free.
void leak_set_cleanup(void (*cleanup)());
// Ignores the object that contains the address, and what it points to; or no longer. False: there
// is no such object, or it was not ignored.
bool leak_ignore(const void* address, bool on);

}  // namespace larder
