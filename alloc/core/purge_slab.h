// Pages of a partial slab that no object in use touches go back to the system, and come again when
// the slab becomes current.
//
// What starts in such a page leaves the free list, whose links lie in the objects, and is gone;
// `purged_at` tells in the owner's cache line that something may be.
// Thread safety: as for the slab's free list. A signal handler may free into it meanwhile.
#pragma once

#include "base/size_class.h"
#include "core/slab.h"
#include "os/os.h"

namespace larder {

// O(1) where too much is in use, or hardly less than the last time; else O(capacity).
// REQUIRES: the slab is not current, and not set aside.
void slab_purge(Slab* s);
// Puts what is gone back into the free list.
void slab_recommit(Slab* s);

// Calls `visit` with each object that is gone, by its index.
template <typename Visit>
void for_each_decommitted(const Slab* s, Visit visit) {
  const uint32_t size = kSizeClasses.size[s->size_class];
  const auto system_page = uint32_t(os::page_size());
  for (uint64_t rest = s->decommitted; rest != 0; rest &= rest - 1) {
    auto i = uint32_t(__builtin_ctzll(rest));
    for (uint32_t object = (i * system_page + size - 1) / size;
         object * size < (i + 1) * system_page && object < s->carved; ++object)
      visit(object);
  }
}

}  // namespace larder
