// The leak checker: which objects nobody can reach any more, and where they were allocated.
//
// It is on if HEAPCHECK said so when the program began: every allocation is recorded from then on
// (sampler.h), and the whole program is checked when it ends. A child of fork does not report.
//
// Thread safety: any thread; one check at a time. Nothing of it runs, and none of its memory is
// touched, while it is off.
#pragma once

#include "leak/leak_options.h"
#include "leak/roots.h"
#include "sample/site.h"

namespace larder {

// In the constructor, if anybody asks for it.
void leak_init();

// Leaks of one site, or of all.
struct LeakSum {
  const Site* site;
  size_t objects, bytes;
  size_t indirect_objects, indirect_bytes;  // of these, only reached from other leaks
  size_t first;                             // of its objects in LeakList
};

struct LeakedObject {
  const Site* site;
  uintptr_t address;
  size_t bytes;
  bool indirect;
};

// What a check has found. Its memory is a mapping of its own.
class LeakList {
 public:
  LeakList() = default;
  ~LeakList() { clear(); }
  void clear();
  LeakList(const LeakList&) = delete;
  LeakList& operator=(const LeakList&) = delete;

  enum class Result { kDone, kBusy, kNoMemory, kNoProc };
  // Of what was allocated at this time of os::now_us() or later. REQUIRES: the checker is on.
  Result find(const CallingThread& me, const LeakOptions& options, uint64_t since_us);

  LeakSum total = {};
  LeakSum reachable = {};
  bool others_unstopped = false;  // what they hold in registers is not known
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

// The registers and the stack of whoever has called, from the innermost frame that is not Larder's
// on; at exit, of whoever has called exit(): true.
bool capture_caller(CallingThread* me);

extern LeakOptions* leak_options;  // nullptr: the checker is off
inline bool leak_is_on() { return leak_options != nullptr; }
// And this is the process that it was turned on in.
bool leak_is_active();

// Checks what was allocated since, and reports under the name what there is. True: no leak was
// found.
bool leak_check(const char* name, uint64_t since_us, LeakList* list);
// Ends the process as one that leaks.
[[noreturn]] void leak_exit();
// The program is not checked when it ends. False: it would not be any more.
bool leak_cancel();
// What the calling thread allocates is no leak while these add up to more than 0.
void leak_disable(int more);
// Run before the whole program is checked; from within it may allocate and free.
void leak_set_cleanup(void (*cleanup)());
// The object that has the address is ignored, and what it leads to, or no longer. False: there is
// none, or none that was ignored.
bool leak_ignore(const void* address, bool on);

}  // namespace larder
