// Sites: the stacks that allocate sampled objects, each stored once, with its estimates.
//
// Thread safety: the sampler's lock guards them; capture() takes none. Memory: 512 bytes a
// stack and 8 a frame, never freed. Beyond kMaxSites all stacks share the site without frames.
#pragma once

#include "base/function_ref.h"
#include "base/policy.h"
#include "core/sampler.h"

namespace larder {

// lifetimes[i] counts lifetimes from 2^i to 2^(i + 1) microseconds.
inline constexpr int kLifetimes = 40;

struct Stack {
  uintptr_t frames[kMaxFrames];        // return addresses, the innermost first
  const uintptr_t* slots[kMaxFrames];  // where these lie on the stack
  uint32_t depth;
  bool truncated;
  bool has_slots;
};

// Walks the stack from the frame that returns to `caller`. Any thread, also in signal handlers;
// takes no lock and allocates nothing.
void capture(Stack& stack, void* caller);
// Whether the C library allows that.
bool can_capture();
// Whether it works now: a static program may register its frames in one constructor and deregister
// them in a destructor. Without frames a stack is its caller alone.
bool frames_are_known();

struct Estimate {
  double objects, bytes;
};

struct Site {
  Site* next;  // in the order in which they were made
  uint64_t hash;
  const uintptr_t* frames;
  uint32_t depth;
  bool truncated;
  bool exempt;  // for the leak checker: nothing from here is a leak
  Estimate in_use, allocated;
  // The variance of in_use.bytes; the samples in use, and their bytes.
  double variance;
  size_t sampled_bytes, samples;
  double heaviest;  // the largest standard deviation of one sample
  Estimate at_mark;
  Estimate at_peak;  // at the peak of all sites' sum, if peak_version is current; else see in_use
  uint64_t peak_version;
  float lifetimes[kLifetimes];  // objects freed
};

// The stack's site; never null.
Site* site_of(const Stack& stack) LARDER_REQUIRES(sample_lock());
// The site of a recent stack from the same `frame`, if every return address still lies in its slot;
// else nullptr. Slots are read from the innermost on, so each lies in a live frame. If frame sizes
// vary from call to call, an earlier call's frame may be taken for a later one's.
Site* recall_site(void* caller, void* frame) LARDER_REQUIRES(sample_lock());
void remember_site(void* caller, void* frame, const Stack& stack, Site* site)
    LARDER_REQUIRES(sample_lock());
// The site without frames, which comes first.
Site* first_site();

// The number of sites, without the first; and their hash table.
size_t sites_count();
// The estimate of all bytes in use.
double sites_bytes();
void sites_table(FunctionRef<void(const void*, size_t)> visit);

// Around each change of a site: keeps its estimate at the peak of the sum.
void sites_before_change(Site* site) LARDER_REQUIRES(sample_lock());
void sites_after_change(double more_bytes) LARDER_REQUIRES(sample_lock());
Estimate peak_of(const Site& site) LARDER_REQUIRES(sample_lock());
// The sum over all sites.
double bytes_in_use() LARDER_REQUIRES(sample_lock());
// Growth is counted from now on.
void sites_mark() LARDER_REQUIRES(sample_lock());

}  // namespace larder
