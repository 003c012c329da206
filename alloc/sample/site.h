// Where sampled objects were allocated: stacks, each kept once, with what is estimated of it.
//
// Thread safety: the caller holds the sampler's lock, but for capture(). Memory: 512 bytes a
// stack and 8 a frame, never freed; at most kMaxSites, all later ones count as the one without
// frames.
#pragma once

#include "base/base.h"
#include "base/policy.h"

namespace larder {

// Lifetimes by their logarithm: [i] counts those from 2^i to 2^(i + 1) microseconds.
inline constexpr int kLifetimes = 40;

struct Stack {
  uintptr_t frames[kMaxFrames];        // return addresses, the innermost first
  const uintptr_t* slots[kMaxFrames];  // where these lie
  uint32_t depth;
  bool truncated;
  bool has_slots;
};

// Walks the stack from the frame that returns to `caller` on. Any thread, signal handlers too;
// takes no lock and allocates nothing.
void capture(Stack& stack, void* caller);
// Whether that is so: it depends on the C library.
bool can_capture();
// Whether it can be done now: a static program may tell libgcc of its frames in one constructor,
// and of their end in a destructor. Without them there is only the caller.
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
  bool exempt;  // for the leak checker: nothing from there is a leak
  Estimate in_use, allocated;
  // Of in_use.bytes: its variance, the bytes of the samples themselves, and how many those are.
  double variance;
  size_t sampled_bytes, samples;
  double heaviest;  // the largest standard deviation that one sample brought
  Estimate at_mark;
  Estimate at_peak;  // of all sites' sum, if peak_version is the current one; else in_use
  uint64_t peak_version;
  float lifetimes[kLifetimes];  // objects freed
};

// Of the stack; never null.
Site* site_of(const Stack& stack);
// A stack that was walked lately, from the same `frame` on: its site, if every return address is
// where it was. They are looked at from the innermost on, so each lies in a frame that is there.
// Where frames differ in size from call to call, one of an earlier call may be taken for a later
// one's.
Site* recall_site(void* caller, void* frame);
void remember_site(void* caller, void* frame, const Stack& stack, Site* site);
// The first: the one without frames.
Site* first_site();

// Their number, but for the first; and the table by which they are found.
size_t sites_count();
// The estimate of all that is in use, in bytes.
double sites_bytes();
void sites_table(void (*visit)(const void*, size_t, void*), void* context);

// Before a site changes, and after: keeps what each was when the sum of all was highest.
void sites_before_change(Site* site);
void sites_after_change(double more_bytes);
Estimate peak_of(const Site& site);
// Of all sites.
double bytes_in_use();
// growth is counted from now on.
void sites_mark();

}  // namespace larder
