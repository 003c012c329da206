// Errors of the program that the malloc family meets, before they do harm: what is freed twice, or
// was never allocated.
//
// An object is free if one of Larder's lists has it. To search these takes long, so the calls look
// at the object first: whether its address is that of an object, and whether its first word has a
// link (slab.h). Only what looks wrong gets here. So an object in use is never refused: what is
// reported lies in no object's place, or was found in a list.
//
// Not noticed: what other calls have allocated again meanwhile, what a signal handler frees twice
// while it interrupts Larder, and what is freed twice right after a search in vain.
#pragma once

#include "base/size_class.h"
#include "core/page_map.h"

namespace larder {

enum class Misuse : uint8_t {
  kDoubleFree,
  kUseOfFree,
  kNoObject,
  kSize,
  kAlignment,
  kOverflow,
  kWriteAfterFree
};

// at_object(), also of guarded samples, which are of any length.
LARDER_FAST bool at_small(const void* p, const Slab* s) {
  return s->guarded ? p == s->base : at_object(p, s);
}

// Whether `p` may be free, or no object: to be decided by misused(). REQUIRES: s is its slab, not
// the null slab.
LARDER_FAST bool looks_misused(const void* p, const Slab* s) {
  if (likely(s->kind == Kind::kSlab)) return !at_object(p, s) || has_link(p);
  if (s->kind == Kind::kSampled) return !at_small(p, s);
  return p != s->object() || s->kind == Kind::kFree;
}

// REQUIRES: looks_misused(p, s); no lock is held. True: it is reported, and the call must have no
// effect, if it returns at all. Any thread. O(free objects of the class), at most kMaxListed a
// list; searches in vain take up to one part in kSearchShare of the process's time.
LARDER_SLOW bool misused(const char* call, Misuse if_free, const void* p, const Slab* s);

// Whether the slab's objects have the class of this size: true of most deletes.
LARDER_FAST bool has_class_of(const Slab* s, size_t size_bytes) {
  return size_bytes <= kSmallMax && s->kind == Kind::kSlab && class_of(size_bytes) == s->size_class;
}
// Whether an object of the slab may have been allocated with this size.
LARDER_SLOW bool size_fits(const Slab* s, size_t size_bytes);

// Reports, and ends the program unless LARDER_ON_ERROR says otherwise.
LARDER_SLOW void report_misuse(const char* call, Misuse what, const void* p);

}  // namespace larder
