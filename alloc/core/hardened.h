// Hardened: the front of liblarder_hardened.so, which stops what the heap alone does not notice.
//
//   in use        content | canary          a word that depends on the address and a secret
//   quarantined   zeros   | ~canary         up to kQuarantined objects a thread, freed lately
//   free          link    | zeros           one of them, at random, for each that is freed
//
// A free, a realloc and a malloc_usable_size check the canary: what wrote beyond the object, or
// freed it before, is reported. A free clears the object. It must still be zeros when malloc hands
// it out again, or, in the quarantine, when its thread or the process ends; an object above
// kSmallMax when it leaves the quarantine. And each malloc looks at the first word of one that is
// there, the latest first. So what wrote to freed memory is reported. Of objects above kSpanMax the
// latest kClosed of the process are neither readable nor writable. The objects of a slab are first
// handed out in an order of chance.
//
// Thread safety: any thread. In a signal handler that interrupted a call, and in a thread without a
// heap, a freed object is cleared and goes to the heap at once.
// Bounds: kRoom bytes an object; kQuarantined objects and kQuarantineBytes a thread; kClosed
// mappings, without memory.
// Not noticed: writes into an object's slack or into other objects in use, reads, what is written
// to an object above kSmallMax after it left the quarantine, unless it is closed.
#pragma once

#include "core/page_map.h"

namespace larder {

struct Hardened {
  static constexpr size_t kRoom = sizeof(uintptr_t);

  static void* allocate(size_t size_bytes);
  static void* allocate_zeroed(size_t size_bytes);
  static void* allocate_aligned(size_t size_bytes, size_t align);
  static void free(void* p);
  LARDER_FAST static void free_at(void* p, const ProcessPageMap*, uintptr_t) { free(p); }
  LARDER_FAST static bool stays(const Slab*, size_t) { return false; }
  static void* resize(void* p, Slab* s, size_t size_bytes);
  // No more: what is carved is cleared and shuffled.
  static size_t carve_end(const Slab*, size_t end) { return end; }
  static void* link_carved(Slab* s, char* first, uint32_t count);
  static size_t usable(const Slab* s);
  static bool may_resize(const void* p, const Slab* s);
  static bool may_measure(const void* p, const Slab* s);
};

}  // namespace larder
