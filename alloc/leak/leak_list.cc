// LeakList: a check, from stopping the threads to sums by site.
#include <unwind.h>

#include "base/shell_sort.h"
#include "core/thread_heap.h"
#include "leak/leak.h"
#include "leak/reach.h"

// From the linker: this library's code.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
void exit(int);
}

namespace larder {

namespace {

struct Search {
  CallingThread* me;
  bool found, through_exit, exits;
};

// Callee-saved registers, by the unwinder's numbers.
#if defined(__x86_64__)
constexpr int kPreserved[] = {3, 6, 12, 13, 14, 15};
#else
constexpr int kPreserved[] = {19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
#endif

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto* search = static_cast<Search*>(argument);
  uintptr_t address = _Unwind_GetIP(context);
  if (address == 0) return _URC_END_OF_STACK;
  bool is_own = address >= uintptr_t(&__ehdr_start) && address < uintptr_t(&_end);
  bool is_exit = _Unwind_GetRegionStart(context) == uintptr_t(&exit);
  // exit()'s frames lie where main's were, and still hold main's values.
  bool take = search->through_exit || (!is_own && !search->found);
  search->through_exit = is_exit;
  search->exits = search->exits || is_exit;
  if (!take) return _URC_NO_REASON;
  search->found = true;
  CallingThread& me = *search->me;
  me.stack_pointer = _Unwind_GetCFA(context);
  me.count = 0;
  for (int i : kPreserved) me.registers[me.count++] = _Unwind_GetGR(context, i);
  return _URC_NO_REASON;
}

}  // namespace

bool capture_caller(CallingThread* me) {
  me->stack_pointer = uintptr_t(__builtin_frame_address(0));
  me->count = 0;
  Search search = {me, false, false, false};
  if (frames_are_known()) _Unwind_Backtrace(visit, &search);
  return search.exits;
}

void LeakList::clear() {
  if (objects_ != nullptr) os::unmap(objects_, mapped_bytes_);
  if (sums_ != nullptr) os::unmap(sums_, sums_bytes_);
  objects_ = nullptr;
  sums_ = nullptr;
  count_ = sum_count_ = 0;
  total = reachable = {};
}

bool LeakList::reserve(size_t max_objects) {
  mapped_bytes_ = round_up((max_objects + 1) * sizeof(LeakedObject), os::page_size());
  objects_ = static_cast<LeakedObject*>(os::map(mapped_bytes_));
  return objects_ != nullptr;
}

LeakList::Result LeakList::find(const CallingThread& me, const LeakOptions& options,
                                uint64_t since_us) {
  clear();
  SlowPath path;
  if (!path.entered()) return Result::kBusy;
  HeapLocked locked;
  Reach reach({options.source_alignment, options.max_offset});
  if (!reach.has_memory() || !reserve(reach.max_objects())) return Result::kNoMemory;
  StoppedWorld world;
  if (world.outcome() == StoppedWorld::Outcome::kNoMemory) return Result::kNoMemory;
  others_unstopped = world.outcome() != StoppedWorld::Outcome::kStopped;
  reach.begin();
  auto visit = [](uintptr_t begin, uintptr_t end, void* context) {
    static_cast<Reach*>(context)->add_root(begin, end);
  };
  RootsWanted wanted = {options.thread_live, options.global_live};
  if (!for_each_root(world, me, wanted, visit, &reach)) return Result::kNoProc;
  reach.add_exempt(kIgnored | kDisabled);
  reach.sort_out();
  reach.for_each([this, since_us](HeapObject object) {
    const SamplePoint& point = *object.point;
    if (point.since_us < since_us) return;
    if ((point.state & kReached) != 0) {
      ++reachable.objects;
      reachable.bytes += point.bytes;
    } else {
      objects_[count_++] = {point.site, uintptr_t(object.at), point.bytes,
                            (point.state & kIndirect) != 0};
    }
  });
  group();
  return Result::kDone;
}

void LeakList::group() {
  shell_sort(objects_, count_, [](const LeakedObject& a, const LeakedObject& b) {
    return a.site != b.site ? a.site < b.site : a.address < b.address;
  });
  size_t sites = 0;
  for (size_t i = 0; i < count_; ++i)
    if (i == 0 || objects_[i].site != objects_[i - 1].site) ++sites;
  sums_bytes_ = round_up((sites + 1) * sizeof(LeakSum), os::page_size());
  sums_ = static_cast<LeakSum*>(os::map(sums_bytes_));
  for (size_t i = 0; i < count_; ++i) {
    const LeakedObject& object = objects_[i];
    bool is_new = i == 0 || object.site != objects_[i - 1].site;
    if (is_new && sums_ != nullptr) sums_[sum_count_++] = {object.site, 0, 0, 0, 0, i};
    for (LeakSum* sum : {&total, sums_ != nullptr ? &sums_[sum_count_ - 1] : nullptr}) {
      if (sum == nullptr) continue;
      ++sum->objects;
      sum->bytes += object.bytes;
      if (!object.indirect) continue;
      ++sum->indirect_objects;
      sum->indirect_bytes += object.bytes;
    }
  }
  shell_sort(sums_, sum_count_,
             [](const LeakSum& a, const LeakSum& b) { return a.bytes > b.bytes; });
}

}  // namespace larder
