// Guarded samples (LARDER_GUARD=1): a sampled object ends at the end of a system page, with nothing
// mapped behind it, and is unmapped for a time once it is freed. The access that runs over its end,
// or comes after free, faults, and is reported with three stacks: its own, the allocation's and the
// free's. What was written beside the object within its pages is found when it is freed.
//
// Each guarded object is a sample slab of one object (Slab::guarded) in one of up to kMaxGuarded
// slots of one range of addresses. A slot is used again when kGuardedFreed others were freed after
// it. Objects that find no slot are sampled without a guard.
//
// slot:  nothing | zeros, object, kGuardByte up to the page's end | nothing
//                                              kSmallMax, or a system page ^
//
// Thread safety: any thread; the sampler's lock guards the slots. Bounds: up to 64 KiB of pages and
// 300 bytes an object in use, 300 bytes a freed one, 512 MiB of addresses; two system calls and two
// stack walks a sample, which the sampler's budget bounds.
#pragma once

#include "base/function_ref.h"
#include "base/policy.h"
#include "core/sampler.h"
#include "os/options.h"

namespace larder {

inline bool guard_is_on() { return unlikely(option(Option::kGuard) != 0); }

// Makes room for guarded samples. Returns nullptr, or why there can be none. To be called once.
const char* guard_init();

// An object of the class for a sample point, or nullptr: there is no slot or no memory.
void* guard_take(SamplePoint* point, int c, size_t size_bytes, const Site* allocated)
    LARDER_REQUIRES(sample_lock());

struct GuardedFree {
  uintptr_t stack[kGuardFrames];
  uint32_t depth;
  int thread;
};
// Of the calling thread. REQUIRES: no lock is held.
GuardedFree guard_free_here();
// False: bytes beside the object were overwritten, and it stays readable.
bool guard_release(Slab* s, const GuardedFree& freed) LARDER_REQUIRES(sample_lock());
// Writes the stacks of the allocation, and of the free, of the object that is or was here; nothing
// if there is none.
void guard_report_origin(const void* p);
// Calls `visit(base, bytes)` for the pages of each guarded object in use.
void guard_for_each(FunctionRef<void(const char*, size_t)> visit);

}  // namespace larder
