#include "sample/site.h"

#include <features.h>
#include <string.h>
#include <sys/auxv.h>
#include <unwind.h>

#include "base/layout.h"
#include "base/policy.h"
#include "core/meta.h"
#include "core/thread_heap.h"
#include "os/os.h"

namespace larder {

namespace {

struct Sites {
  Site others = {};  // beyond kMaxSites, or without memory
  Site* last = &others;
  Site** slots = nullptr;  // open addressing, at most half full
  size_t slot_count = 0, count = 0;
  double bytes = 0, peak_bytes = 0;
  uint64_t peak_version = 0;
};
constinit Sites sites LARDER_GUARDED_BY(sample_lock());

struct Recent {
  uintptr_t caller, frame;
  Site* site;
  const uintptr_t* slots[kMaxFrames];
};
constinit Recent* recent[kRecentStacks] LARDER_GUARDED_BY(sample_lock()) = {};

struct Walk {
  Stack* stack;
  uintptr_t first;
  unsigned skipped;
  bool started;
};

// Between calloc or realloc and what samples: no caller of the program's.
bool is_own(_Unwind_Context* context) {
  uintptr_t function = _Unwind_GetRegionStart(context);
  return function == uintptr_t(&zeroed_alloc) || function == uintptr_t(&resize) ||
         function == uintptr_t(&resize_without_copy);
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto* walk = static_cast<Walk*>(argument);
  uintptr_t address = _Unwind_GetIP(context);
  if (address == 0) return _URC_END_OF_STACK;
  if (!walk->started) {
    walk->started = address == walk->first;
    if (!walk->started)
      return ++walk->skipped < kMaxSkippedFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
  }
  Stack& stack = *walk->stack;
  if (stack.depth == 0 && is_own(context)) return _URC_NO_REASON;
  if (stack.depth == kMaxFrames) {
    stack.truncated = true;
    return _URC_END_OF_STACK;
  }
#if defined(__x86_64__)
  // An interrupted frame has no call, and perhaps no readable slot.
  int interrupted = 0;
  _Unwind_GetIPInfo(context, &interrupted);
  auto* slot = reinterpret_cast<const uintptr_t*>(_Unwind_GetCFA(context)) - 1;
  // Nor has a frame behind a switch of stacks, like a fiber's: the other stack may be unmapped next
  // time.
  bool goes_on = stack.depth == 0 ||
                 uintptr_t(slot) - uintptr_t(stack.slots[stack.depth - 1]) - 1 < kMaxFrameBytes;
  stack.has_slots = stack.has_slots && interrupted == 0 && goes_on && *slot == address;
  stack.slots[stack.depth] = slot;
#else
  stack.has_slots = false;
#endif
  stack.frames[stack.depth++] = address;
  return _URC_NO_REASON;
}

uint64_t hash_of(const Stack& stack) {
  uint64_t hash = stack.depth;
  for (uint32_t i = 0; i < stack.depth; ++i) {
    hash = (hash ^ stack.frames[i]) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

size_t recent_index(void* caller, void* frame) {
  uint64_t hash = (uintptr_t(caller) ^ uintptr_t(frame) << 20) * 0x9E3779B97F4A7C15ull;
  return hash >> 58;
}
static_assert(kRecentStacks == 1u << (64 - 58));

bool grow() LARDER_REQUIRES(sample_lock()) {
  size_t wanted = sites.slot_count == 0 ? kFirstSiteSlots : sites.slot_count * 2;
  auto* slots = static_cast<Site**>(os::map(wanted * sizeof(Site*)));
  if (slots == nullptr) return false;
  for (Site* site = sites.others.next; site != nullptr; site = site->next) {
    size_t i = site->hash & (wanted - 1);
    while (slots[i] != nullptr) i = (i + 1) & (wanted - 1);
    slots[i] = site;
  }
  if (sites.slots != nullptr)
    os::unmap(static_cast<void*>(sites.slots), sites.slot_count * sizeof(Site*));
  sites.slots = slots;
  sites.slot_count = wanted;
  return true;
}

Site* new_site(const Stack& stack, uint64_t hash) LARDER_REQUIRES(sample_lock()) {
  size_t bytes = sizeof(Site) + stack.depth * sizeof(uintptr_t);
  void* memory = meta_alloc(bytes, alignof(Site));
  if (memory == nullptr) return nullptr;
  auto* site = static_cast<Site*>(memory);
  auto* frames = reinterpret_cast<uintptr_t*>(site + 1);
  memcpy(frames, stack.frames, stack.depth * sizeof(uintptr_t));
  site->hash = hash;
  site->frames = frames;
  site->depth = stack.depth;
  site->truncated = stack.truncated;
  site->peak_version = sites.peak_version;
  // The profile's writer follows the links without the lock.
  __atomic_store_n(&sites.last->next, site, __ATOMIC_RELEASE);
  sites.last = site;
  ++sites.count;
  return site;
}

}  // namespace

constinit const ProfileLayout profile_layout = {.first_site = &sites.others,
                                                .slots = static_cast<const void*>(&sites.slots),
                                                .slot_count = &sites.slot_count,
                                                .peak_version = &sites.peak_version,
                                                .most_sites = kMaxSites + 1,
                                                .site_bytes = sizeof(Site),
                                                .most_frames = kMaxFrames,
                                                .lifetimes = kLifetimes,
                                                .next = offsetof(Site, next),
                                                .frames = offsetof(Site, frames),
                                                .depth = offsetof(Site, depth),
                                                .truncated = offsetof(Site, truncated),
                                                .in_use = offsetof(Site, in_use),
                                                .allocated = offsetof(Site, allocated),
                                                .variance = offsetof(Site, variance),
                                                .sampled_bytes = offsetof(Site, sampled_bytes),
                                                .samples = offsetof(Site, samples),
                                                .heaviest = offsetof(Site, heaviest),
                                                .at_mark = offsetof(Site, at_mark),
                                                .at_peak = offsetof(Site, at_peak),
                                                .own_peak_version = offsetof(Site, peak_version),
                                                .freed = offsetof(Site, lifetimes),
                                                .exempt = offsetof(Site, exempt)};

bool can_capture() {
#ifdef __GLIBC__
  // Else libgcc takes a lock under which the loader allocates.
  return __GLIBC_PREREQ(2, 35);
#else
  return true;  // musl's loader allocates from a malloc of its own
#endif
}

bool frames_are_known() {
  static constinit bool known = false;  // relaxed: every thread finds the same
  if (__atomic_load_n(&known, __ATOMIC_RELAXED)) return true;
  // libgcc looks for the byte before, as of a return address: at a function's start that is
  // padding.
  auto* within = reinterpret_cast<char*>(&frames_are_known) + 1;
  if (_Unwind_FindEnclosingFunction(within) == nullptr) return false;
  __atomic_store_n(&known, getauxval(AT_BASE) != 0, __ATOMIC_RELAXED);
  return true;
}

void capture(Stack& stack, void* caller) {
  stack.depth = 0;
  stack.truncated = false;
  stack.has_slots = true;
  Walk walk = {&stack, uintptr_t(caller), 0, false};
  if (can_capture() && frames_are_known()) _Unwind_Backtrace(visit, &walk);
  if (stack.depth != 0) return;
  stack.frames[stack.depth++] = uintptr_t(caller);
  stack.has_slots = false;
}

Site* site_of(const Stack& stack) {
  if (sites.count * 2 >= sites.slot_count && !grow()) return &sites.others;
  uint64_t hash = hash_of(stack);
  size_t mask = sites.slot_count - 1, i = hash & mask;
  for (; Site* site = sites.slots[i]; i = (i + 1) & mask)
    if (site->hash == hash && site->depth == stack.depth &&
        memcmp(site->frames, stack.frames, stack.depth * sizeof(uintptr_t)) == 0)
      return site;
  Site* site = sites.count < kMaxSites ? new_site(stack, hash) : nullptr;
  if (site == nullptr) return &sites.others;
  return sites.slots[i] = site;
}

Site* recall_site(void* caller, void* frame) {
  const Recent* r = recent[recent_index(caller, frame)];
  if (r == nullptr || r->caller != uintptr_t(caller) || r->frame != uintptr_t(frame))
    return nullptr;
  Site* site = r->site;
  for (uint32_t i = 0; i < site->depth; ++i)
    if (*r->slots[i] != site->frames[i]) return nullptr;
  return site;
}

void remember_site(void* caller, void* frame, const Stack& stack, Site* site) {
  if (!stack.has_slots || site->depth != stack.depth) return;
  Recent*& r = recent[recent_index(caller, frame)];
  if (r == nullptr) r = static_cast<Recent*>(meta_alloc(sizeof(Recent), alignof(Recent)));
  if (r == nullptr) return;
  r->caller = uintptr_t(caller);
  r->frame = uintptr_t(frame);
  r->site = site;
  for (uint32_t i = 0; i < stack.depth; ++i) r->slots[i] = stack.slots[i];
}

Site* first_site() { return &sites.others; }

// Relaxed, as below: a figure.
size_t sites_count() { return __atomic_load_n(&sites.count, __ATOMIC_RELAXED); }

double sites_bytes() {
  double bytes;
  __atomic_load(&sites.bytes, &bytes, __ATOMIC_RELAXED);
  return bytes > 0 ? bytes : 0;  // rounding errors may add up
}

// Relaxed: the table may be replaced meanwhile, and unmapped memory counts as not resident.
void sites_table(FunctionRef<void(const void*, size_t)> visit) {
  auto* slots = __atomic_load_n(&sites.slots, __ATOMIC_RELAXED);
  if (slots != nullptr)
    visit(static_cast<const void*>(slots),
          __atomic_load_n(&sites.slot_count, __ATOMIC_RELAXED) * sizeof(Site*));
}

void sites_before_change(Site* site) {
  if (site->peak_version == sites.peak_version) return;
  site->peak_version = sites.peak_version;
  site->at_peak = site->in_use;
}

void sites_after_change(double more_bytes) {
  sites.bytes += more_bytes;
  if (sites.bytes <= sites.peak_bytes) return;
  sites.peak_bytes = sites.bytes;
  ++sites.peak_version;
}

double bytes_in_use() { return sites.bytes; }

Estimate peak_of(const Site& site) {
  return site.peak_version == sites.peak_version ? site.at_peak : site.in_use;
}

void sites_mark() {
  for (Site* site = &sites.others; site != nullptr; site = site->next) site->at_mark = site->in_use;
}

}  // namespace larder
