#include "core/central.h"

#include "base/size_class.h"
#include "core/slab_span.h"

namespace larder {

namespace {

struct alignas(64) Central {
  Lock lock;
  SlabList slabs LARDER_GUARDED_BY(lock);
};
constinit Central central[kClasses];

}  // namespace

bool central_push(Slab* s) {
  Central& c = central[s->size_class];
  LockGuard guard(c.lock);
  if (!remote_release(s, kCentral)) return false;
  c.slabs.push_front(s);
  return true;
}

// Unchecked: a stale value is harmless, as the next refill reads it again.
bool central_has(int size_class) LARDER_UNCHECKED { return central[size_class].slabs.size() != 0; }

Slab* central_pop(int size_class) {
  if (!central_has(size_class)) return nullptr;
  Central& c = central[size_class];
  LockGuard guard(c.lock);
  Slab* s = c.slabs.pop_front();
  if (s != nullptr) remote_reset(s);
  return s;
}

bool central_free(Slab* s, const Chain& chain) {
  Central& c = central[s->size_class];
  {
    LockGuard guard(c.lock);
    if ((s->remote.load(std::memory_order_relaxed) & kStateMask) != kCentral) return false;
    set_next(chain.tail, s->free);
    s->free = chain.head;
    s->used -= chain.count;
    if (s->used != 0) return true;
    c.slabs.remove(s);
    remote_reset(s);
  }
  slab_release(s);
  return true;
}

void central_for_each(FunctionRef<void(const SlabList&, int)> visit) {
  for (int c = 0; c < kClasses; ++c) {
    LockGuard guard(central[c].lock);
    visit(central[c].slabs, c);
  }
}

void central_for_each_lock(void (*visit)(Lock&)) {
  for (Central& c : central) visit(c.lock);
}

}  // namespace larder
