#include "core/misuse.h"

#include <stdlib.h>

#include <iterator>

#include "base/policy.h"
#include "core/free_memory.h"
#include "core/guard.h"
#include "core/large.h"
#include "core/report.h"
#include "os/line.h"
#include "os/options.h"
#include "os/os.h"

namespace larder {

namespace {

bool is_listed(const void* p, const Slab* s) {
  bool found = false;
  auto compare = [&found, p](const void* object, size_t, Place) { found = found || object == p; };
  for_each_free(s, compare);
  if (!found) for_each_free(s->size_class, compare);
  return found;
}

// Objects whose content looks like a link, perhaps on purpose, must not make each free a search:
// after one in vain the next waits, and what looks free meanwhile counts as in use.
constinit std::atomic<uint64_t> next_search_us{0};  // relaxed: a hint

bool is_found(const void* p, const Slab* s) {
  uint64_t begin_us = os::now_us();
  if (begin_us < next_search_us.load(std::memory_order_relaxed)) return false;
  if (is_listed(p, s)) return true;
  uint64_t end_us = os::now_us();
  next_search_us.store(end_us + (end_us - begin_us + 1) * kSearchShare, std::memory_order_relaxed);
  return false;
}

constexpr const char* kTexts[] = {  // by Misuse
    "double free",
    "the object is free",
    "invalid pointer, no object begins there",
    "the size is not that of the allocation",
    "the alignment is not that of the allocation",
    "bytes beside the object were overwritten",
    "the object was written to after it was freed"};
static_assert(std::size(kTexts) == size_t(Misuse::kWriteAfterFree) + 1);

void describe(Line& line, const void* p) {
  const Slab* s = page_map.find_any(p);
  if (s->kind == Kind::kNull) {
    line.put(", not in the heap");
  } else if (is_small(s) && !s->guarded) {
    size_t size = usable_size(s);
    size_t within = size_t(static_cast<const char*>(p) - s->base) % size;
    if (within != 0) line.put(", ").put_number(within).put(" bytes into");
    line.put(within != 0 ? " an object of " : ", an object of ").put_number(size).put(" bytes");
  } else if (s->kind == Kind::kFree && !s->guarded) {
    line.put(", in free memory");
  } else {
    if (p != s->object()) line.put(", within or before");
    line.put(p != s->object() ? " an object of " : ", an object of ");
    line.put_number(large_usable(s)).put(" bytes");
  }
}

}  // namespace

bool misused(const char* call, Misuse if_free, const void* p, const Slab* s) {
  if (s->kind == Kind::kFree) {
    report_misuse(call, if_free, p);
    return true;
  }
  if (!is_small(s) || !at_small(p, s)) {
    report_misuse(call, Misuse::kNoObject, p);
    return true;
  }
  {
    // The interrupted code may hold a lock.
    SlowPath path;
    if (!path.entered() || !is_found(p, s)) return false;
  }
  report_misuse(call, if_free, p);
  return true;
}

bool size_fits(const Slab* s, size_t size_bytes) {
  if (s->kind == Kind::kNull || s->kind == Kind::kFree || s->kind == Kind::kEmergency) return true;
  if (is_small(s)) return size_bytes <= kSmallMax && class_of(size_bytes) == s->size_class;
  // A cached span or mapping may be longer than its request.
  size_t usable = large_usable(s);
  return size_bytes <= usable && size_bytes > usable / 2;
}

void report_misuse(const char* call, Misuse what, const void* p) {
  auto action = OnError(option(Option::kOnError));
  if (action == OnError::kIgnore) return;
  Line line;
  line.put(call).put("(0x").put_number(uintptr_t(p), 16).put("): ").put(kTexts[int(what)]);
  describe(line, p);
  line.put(" (thread ").put_number(size_t(os::system_thread_id())).put(")");
  line.write();
  {
    // The unwinder may allocate while it holds a lock of its own: nothing is sampled meanwhile.
    SlowPath path;
    report_stack();
    guard_report_origin(p);
  }
  if (action == OnError::kAbort) abort();
}

}  // namespace larder
