// Frees lists of objects that inlined code (inline.cc) or a CPU (shared.cc) has cached into their
// slabs: methods of ThreadHeap.
#include <utility>

#include "core/foreign.h"
#include "core/large.h"
#include "core/thread_heap.h"
#include "larder/inline.h"

namespace larder {

void ThreadHeap::free_list(void* list) {
  thread_state.last = ThreadState::kNoLast;
  while (void* head = list) {
    Slab* s = page_map.find(head);
    uint32_t count = 0;
    void* tail = nullptr;
    do {
      tail = list;
      list = next_of(tail);
      ++count;
    } while ((uintptr_t(list) ^ uintptr_t(head)) >> kPageShift == 0);
    if (s->owner() == this) {
      // The first free may find the slab on the full list, so it goes alone.
      void* second = next_of(head);
      push_local(s, head);
      if (count == 1) continue;
      set_next(tail, *s->list);
      *s->list = second;
      if ((s->used -= count - 1) == 0) emptied(s);
      continue;
    }
    if (s->kind == Kind::kSlab && s->owner() == kUnowned) {
      remote_push(this, s, {head, tail, count});
      continue;
    }
    for (void* p = head; count != 0; --count) {
      void* following = next_of(p);
      // Other kinds were shrunk in place, or allocated in a signal handler.
      if (s->kind == Kind::kSlab)
        remote_free(this, s, p);
      else if (s->kind == Kind::kSampled)
        forget_sampled(s, p);
      else if (s->kind == Kind::kNull)
        foreign_free(p);
      else
        large_free(s);
      p = following;
    }
  }
}

void ThreadHeap::forget_sampled(Slab* s, void* p) {
  SamplePoint* point = sample_free(s, p);
  if (point == nullptr) return;
  void* slot = point->slot;
  sample_point_drop(point);
  Slab* home = page_map.find(slot);
  if (home->owner() == this)
    push_local(home, slot);
  else
    remote_free(this, home, slot);
}

void ThreadHeap::release_inlined(int c) {
  if (inlined == nullptr || c >= LARDER_INLINE_CLASSES) return;
  inlined->room[c] = 0;
  void* kept = std::exchange(inlined->kept[c], nullptr);
  if (LARDER_INLINE_IS_OBJECT(kept)) {
    set_next(kept, nullptr);
    free_list(kept);
  }
  free_list(std::exchange(inlined->newer[c], nullptr));
  free_list(std::exchange(inlined->older[c], nullptr));
}

}  // namespace larder
