// Which places get marks (sampler.h), and which keep them: methods of ThreadHeap.
//
// A mark that would never leave a place that is handed out again and again, by a loop of malloc and
// free, would cost a walk of the stack each time. So a heap has a budget of such walks; beyond it
// marks stay by lot, less and less likely, and one that stays stands for those that did not: what
// is estimated keeps its mean.
#include <utility>

#include "base/policy.h"
#include "core/thread_heap.h"

namespace larder {

// Built aside: a signal handler may take from heads[c] at any time.
void* ThreadHeap::hand_out_marked(int c, void* list, size_t bytes) {
  const size_t size = kSizeClasses.size[c];
  void* head = nullptr;
  void** link = &head;  // where the list goes on
  Mark** marks = &bins[c].marks;
  void* p = list;
  size_t at = 0, index = 0;  // where the countdown began; which object p is
  for (;;) {
    if (at + countdown.bytes >= bytes) {
      countdown.bytes -= bytes > at ? bytes - at : 0;
      *link = p;
      break;
    }
    at += countdown.bytes;
    bool only_a_look = countdown.only_a_look || countdown.mean == 0;
    double mean = countdown.mean;
    countdown.draw();
    if (only_a_look) continue;
    for (; index < at / size && p != nullptr; ++index) {
      *link = p;
      link = &next_of(p);
      p = *link;
    }
    if (p == nullptr) break;
    at = (index + 1) * size;
    Mark* mark = mark_new(p, objects_of_mark(double(size) / mean));
    if (mark == nullptr) continue;
    *link = nullptr;
    *marks = mark;
    marks = &mark->next;
    link = &next_of(p);
    p = *link;
    ++index;
  }
  if (head == nullptr) return take_marked(c);
  return serve(c, head);
}

void* ThreadHeap::take_marked(int c) {
  Mark* mark = bins[c].marks;
  bins[c].marks = std::exchange(mark->next, nullptr);
  heads[c] = next_of(mark->slot);
  taken = mark;
  return mark->slot;
}

void* ThreadHeap::unmarked_list(int c) {
  void* list = std::exchange(heads[c], nullptr);
  void** link = &list;
  while (Mark* mark = bins[c].marks) {
    while (*link != nullptr) link = &next_of(*link);
    *link = mark->slot;
    bins[c].marks = mark->next;
    mark_drop(mark);
  }
  return list;
}

bool ThreadHeap::keep_mark(Mark* mark) {
  if (countdown.budget_left() != 0) {
    mark->quick = 0;
    return true;
  }
  double stays = 1 - 1.0 / (kFirstLot + mark->quick);
  ++mark->quick;
  if (countdown.chance.unit() > stays) return false;
  mark->factor /= stays;
  return true;
}

void ThreadHeap::freed_marked(int c, Mark* mark) {
  // Taken in one instruction: a signal handler may come in between.
  void* top = mark->slot;
  if (heads[c] == top && keep_mark(mark) &&
      __atomic_compare_exchange_n(&heads[c], &top, nullptr, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
    mark->next = bins[c].marks;
    bins[c].marks = mark;
  } else {
    mark_drop(mark);
  }
}

bool ThreadHeap::cache_last_freed_sampled(Slab* s, void* p) {
  if (last_freed != nullptr || s->pages > kMaxCachedSpanPages) return false;
  s->kind = Kind::kFree;
  last_freed = s;
  last_freed_object = p;
  last_freed_min = last_freed_range = 0;  // nothing fits: malloc has to ask for it
  return true;
}

Slab* ThreadHeap::take_last_freed_sampled(size_t size_bytes) {
  Slab* s = last_freed;
  if (s == nullptr || s->mark == nullptr || size_bytes + kPageBytes <= s->bytes ||
      size_bytes > s->bytes - s->offset)
    return nullptr;
  last_freed = nullptr;
  s->kind = Kind::kSpan;
  s->zero = false;
  return s;
}

}  // namespace larder
