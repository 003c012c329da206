#include "core/report.h"

#include <errno.h>
#include <link.h>
#include <sys/auxv.h>
#include <unwind.h>

#include "base/policy.h"
#include "os/line.h"

// The unwinder is the program's, if it has one, like every C++ program.
extern "C" {
[[gnu::weak]] _Unwind_Reason_Code _Unwind_Backtrace(_Unwind_Trace_Fn, void*);
[[gnu::weak]] uintptr_t _Unwind_GetIP(_Unwind_Context*);
// From the linker: this library's code.
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace larder {

namespace {

// Return addresses, the innermost first.
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

LARDER_SLOW Frames walk() {
  Frames frames = {};
  if (&_Unwind_Backtrace != nullptr && &_Unwind_GetIP != nullptr) _Unwind_Backtrace(visit, &frames);
  return frames;
}

// The first frame of the program.
unsigned program_in(const Frames& frames) {
  unsigned first = 0;
  // With an archive linked in, the program's code cannot be distinguished from Larder's.
  if (is_own_code(getauxval(AT_ENTRY))) return first;
  while (first < frames.count && is_own_code(frames.of[first])) ++first;
  return first;
}

struct Place {
  uintptr_t address;
  const char* module;
  uintptr_t offset;
};

int find_place(dl_phdr_info* info, size_t, void* context) {
  auto* place = static_cast<Place*>(context);
  uintptr_t offset = place->address - info->dlpi_addr;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || offset - part.p_vaddr >= part.p_memsz) continue;
    bool has_name = info->dlpi_name != nullptr && info->dlpi_name[0] != 0;
    *place = {place->address, has_name ? info->dlpi_name : program_invocation_name, offset};
    return 1;
  }
  return 0;
}

}  // namespace

unsigned walk_stack(uintptr_t* to, unsigned most) {
  Frames frames = walk();
  unsigned count = 0;
  for (unsigned i = program_in(frames); i < frames.count && count < most; ++i)
    to[count++] = frames.of[i];
  return count;
}

void report_frames(const uintptr_t* frames, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Place place = {frames[i] - 1, nullptr, 0};
    dl_iterate_phdr(find_place, &place);
    Line line;
    line.put("  #").put_number(i).put(" 0x").put_number(frames[i], 16);
    if (place.module != nullptr)
      line.put(" ").put(place.module).put("+0x").put_number(place.offset + 1, 16);
    line.write();
  }
}

void report_stack() {
  Frames frames = walk();
  unsigned first = program_in(frames);
  report_frames(frames.of + first, frames.count - first);
}

void report_interrupted_stack(uintptr_t instruction) {
  Frames frames = walk();
  unsigned first = 0;
  while (first < frames.count && frames.of[first] != instruction) ++first;
  if (first == frames.count) return report_frames(&instruction, 1);
  report_frames(frames.of + first, frames.count - first);
}

void report_large_object(const void* p, size_t size_bytes) {
  size_t threshold = option(Option::kLargeAllocReportThreshold);
  set_option(Option::kLargeAllocReportThreshold,
             threshold + (threshold + kReportGrowthShare - 1) / kReportGrowthShare);
  Line line;
  line.put("large alloc ").put_number(size_bytes).put(" bytes == 0x").put_number(uintptr_t(p), 16);
  line.put(" @");
  Frames frames = walk();
  for (unsigned i = program_in(frames); i < frames.count; ++i)
    line.put(" 0x").put_number(frames.of[i], 16);
  if (frames.count == 0) line.put(" (no stack: the program has no unwinder)");
  line.write();
}

}  // namespace larder
