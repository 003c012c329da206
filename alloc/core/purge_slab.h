// Purges a partial slab: discards the system pages that no object in use touches. They are
// recommitted when the slab becomes current.
//
// The objects that start in a discarded system page are decommitted: they leave the free list,
// whose links lie in the objects. `purged_at` says in the owner's cache line that there may be
// some. Thread safety: that of the slab's free list. A signal handler may free into it meanwhile.
#pragma once

#include "base/size_class.h"
#include "core/slab.h"
#include "os/os.h"

namespace larder {

// O(1) if too many objects are in use, or hardly fewer than at the last purge; else O(capacity).
// REQUIRES: the slab is not current, and not on the full list. Whether a page was discarded.
bool slab_purge(Slab* s);
// Puts the decommitted objects back into the free list.
void slab_recommit(Slab* s);

// Calls `visit` with the index of each decommitted object.
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
