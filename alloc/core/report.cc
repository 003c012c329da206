#include "core/report.h"

#include <unwind.h>

#include "os/line.h"

// The unwinder is the program's, if it has one, like every C++ program.
extern "C" {
[[gnu::weak]] _Unwind_Reason_Code _Unwind_Backtrace(_Unwind_Trace_Fn, void*);
[[gnu::weak]] _Unwind_Ptr _Unwind_GetIP(_Unwind_Context*);
// From the linker: this library's code.
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace larder {

namespace {

constexpr unsigned kMaxReportedFrames = 32;

struct Frames {
  uintptr_t of[kMaxReportedFrames];
  unsigned count;
};

bool is_own_code(uintptr_t address) {
  return address >= uintptr_t(&__ehdr_start) && address < uintptr_t(&_end);
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto* frames = static_cast<Frames*>(argument);
  uintptr_t address = _Unwind_GetIP(context);
  if (address == 0 || frames->count == kMaxReportedFrames) return _URC_END_OF_STACK;
  frames->of[frames->count++] = address;
  return _URC_NO_REASON;
}

}  // namespace

void report_large_object(const void* p, size_t size_bytes) {
  // The threshold grows by an eighth, so that a program with many large objects does not drown in
  // lines.
  size_t threshold = option(Option::kLargeAllocReportThreshold);
  set_option(Option::kLargeAllocReportThreshold, threshold + (threshold + 7) / 8);
  Line line;
  line.put("large alloc ").put_number(size_bytes).put(" bytes == 0x").put_number(uintptr_t(p), 16);
  line.put(" @");
  Frames frames = {};
  if (&_Unwind_Backtrace != nullptr && &_Unwind_GetIP != nullptr) _Unwind_Backtrace(visit, &frames);
  // From the program's call on. In a static program all code is Larder's own.
  unsigned first = 0;
  while (first < frames.count && is_own_code(frames.of[first])) ++first;
  if (first == frames.count) first = 0;
  for (unsigned i = first; i < frames.count; ++i) line.put(" 0x").put_number(frames.of[i], 16);
  if (frames.count == 0) line.put(" (no stack: the program has no unwinder)");
  line.write();
}

}  // namespace larder
