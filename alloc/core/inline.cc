// The functions behind larder/inline.h, and the thread state that they share. In the archives only:
// liblarder.so has none of it.
//
// A cached object counts as in use for its slab, so nothing is looked up. One object of a class is
// cached where the inlined code finds it, more in two lists: when the newer list is full it becomes
// the older one, and the former older one is freed into the slabs. malloc does not count, so lists
// may be shorter. Bound: kSizeClasses.max_deferred + 1 a class. Thread safety: each thread has its
// own. It is released when the thread ends, when its heap is trimmed, and a few classes at a time
// when the heap empties slabs or needs fresh ones.

#include "larder/inline.h"

#include <new>
#include <utility>

#include "core/guard.h"
#include "core/misuse.h"
#include "core/thread_heap.h"

namespace larder {
namespace {

constexpr bool classes_agree() {
  for (size_t size = 9; size <= LARDER_INLINE_MAX; ++size)
    if (larder_inline_class(size) != kSizeClasses.of_small[(size + 7) / 8]) return false;
  return kSizeClasses.of_small[LARDER_INLINE_MAX / 8] == LARDER_INLINE_CLASSES - 1;
}
static_assert(classes_agree(), "the header has the classes of size_class.h");

}  // namespace
}  // namespace larder

#define LARDER_EXPORT extern "C" __attribute__((visibility("default")))

using namespace larder;

__attribute__((visibility("default"))) __thread larder_inline_state LARDER_INLINE_NAME(state);

namespace {

LARDER_FAST larder_inline_state& state() { return LARDER_INLINE_NAME(state); }

LARDER_WARM void* malloc_older(size_t c) {
  void* p = std::exchange(state().older[c], nullptr);
  if (p == nullptr) return malloc_small(c, kSizeClasses.size[c]);
  state().newer[c] = next_of(p);
  clear_link(p);
  state().room[c] = 0;
  return p;
}

LARDER_WARM void free_without_room(void* p, size_t c) {
  state().room[c] = 0;
  ThreadHeap* heap = thread_state.heap;
  // Nothing would release the cache of a thread without a heap. A guarded object is as long as its
  // request, and cannot serve another of its class.
  if (heap == nullptr || thread_state.busy || guard_is_on()) return free_fast(p);
  heap->inlined = &state();
  if (state().kept[c] == nullptr) state().kept[c] = LARDER_INLINE_NONE;
  void* older = std::exchange(state().older[c], state().newer[c]);
  set_next(p, nullptr);
  state().newer[c] = p;
  state().room[c] = int8_t(kSizeClasses.max_deferred[c] / 2 - 1);
  if (older == nullptr) return;
  SlowPath path;
  heap->free_list(older);
}

}  // namespace

LARDER_EXPORT void* LARDER_INLINE_NAME(malloc)(size_t c) {
  void* p = state().newer[c];
  if (p == nullptr) return malloc_older(c);
  state().newer[c] = next_of(p);
  clear_link(p);
  return p;
}

LARDER_EXPORT void* LARDER_INLINE_NAME(malloc_any)(size_t size) { return malloc_fast(size); }

LARDER_EXPORT void LARDER_INLINE_NAME(free)(void* p, size_t c) {
  if (p == nullptr) return;
  if (unlikely(p == state().kept[c])) return report_misuse("free", Misuse::kDoubleFree, p);
  // No slab is looked up here: most objects have no link.
  if (unlikely(has_link(p)) && misused("free", Misuse::kDoubleFree, p, page_map.find(p))) return;
  if (unlikely(--state().room[c] < 0)) return free_without_room(p, c);
  set_next(p, state().newer[c]);
  state().newer[c] = p;
}

LARDER_EXPORT void LARDER_INLINE_NAME(free_any)(void* p) {
  Slab* s = page_map.find(p);
  size_t c = s->size_class;
  if (s->kind != Kind::kSlab || c - 1 >= LARDER_INLINE_CLASSES - 1) return free_fast(p);
  if (unlikely(looks_misused(p, s)) && misused("free", Misuse::kDoubleFree, p, s)) return;
  if (state().kept[c] == LARDER_INLINE_NONE)
    state().kept[c] = p;
  else
    LARDER_INLINE_NAME(free)(p, c);
}

#ifndef LARDER_PREFIXED
LARDER_EXPORT void* LARDER_INLINE_NAME(new)(size_t size) {
  if (size > 8 && size <= LARDER_INLINE_MAX)
    if (void* p = LARDER_INLINE_NAME(malloc)(larder_inline_class(size))) return p;
  return ::operator new(size);
}
#endif
