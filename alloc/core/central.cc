#include "core/central.h"

#include "base/size_class.h"
#include "core/slab_span.h"

namespace larder {

namespace {

struct alignas(64) Central {
  Lock lock;
  SlabList slabs LARDER_GUARDED_BY(lock);
  std::atomic<size_t> count{0};  // written under the lock; relaxed: others read it as a hint
};
constinit Central central[kClasses];

}  // namespace

bool central_push(Slab* s) {
  Central& c = central[s->size_class];
  LockGuard guard(c.lock);
  if (!remote_release(s, kCentral)) return false;
  c.slabs.push_front(s);
  c.count.store(c.slabs.size(), std::memory_order_relaxed);
  return true;
}

Slab* central_pop(int size_class) {
  Central& c = central[size_class];
  // A stale value is harmless: the next refill reads it again.
  if (c.count.load(std::memory_order_relaxed) == 0) return nullptr;
  LockGuard guard(c.lock);
  Slab* s = c.slabs.pop_front();
  c.count.store(c.slabs.size(), std::memory_order_relaxed);
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
    c.count.store(c.slabs.size(), std::memory_order_relaxed);
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
