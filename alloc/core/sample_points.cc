// Where sample points go, and which of them stay (sampler.h): methods of ThreadHeap.
//
// A loop of malloc and free reuses one slot. A point that stayed on it would cost a stack walk each
// iteration. So a heap has a budget of stack walks; beyond it a point stays with a falling
// probability, and the weight of one that stays grows by the inverse: the estimate stays unbiased.
#include <utility>

#include "base/policy.h"
#include "core/thread_heap.h"

namespace larder {

// Built apart from heads[c], from which a signal handler may take at any time.
void* ThreadHeap::hand_out_sampled(int c, void* list, size_t bytes) {
  const size_t size = kSizeClasses.size[c];
  ObjectList out;
  SamplePoint** points = &bins[c].sample_points;
  void* p = list;
  size_t at = 0, index = 0;  // where the countdown began; the index of p
  for (;;) {
    if (at + countdown.bytes >= bytes) {
      countdown.bytes -= bytes > at ? bytes - at : 0;
      out.end_with(p);
      break;
    }
    at += countdown.bytes;
    bool check_only = countdown.check_only || countdown.mean == 0;
    double mean = countdown.mean;
    countdown.draw();
    if (check_only) continue;
    for (; index < at / size && p != nullptr; ++index) out.append(std::exchange(p, next_of(p)));
    if (p == nullptr) break;
    at = (index + 1) * size;
    SamplePoint* point = sample_point_new(p, objects_of_sample(double(size) / mean));
    if (point == nullptr) continue;
    *points = point;
    points = &point->next;
    out.restart_behind(std::exchange(p, next_of(p)));
    ++index;
  }
  return out.first() == nullptr ? take_sampled(c) : serve(c, out.first());
}

void* ThreadHeap::take_sampled(int c) {
  SamplePoint* point = bins[c].sample_points;
  bins[c].sample_points = std::exchange(point->next, nullptr);
  heads[c] = next_of(point->slot);
  clear_link(point->slot);
  sampled_point = point;
  return point->slot;
}

void* ThreadHeap::take_unsampled_list(int c) {
  ObjectList out;
  void* p = std::exchange(heads[c], nullptr);
  for (;;) {
    while (p != nullptr) out.append(std::exchange(p, next_of(p)));
    SamplePoint* point = bins[c].sample_points;
    if (point == nullptr) return out.first();
    p = point->slot;
    bins[c].sample_points = point->next;
    sample_point_drop(point);
  }
}

bool ThreadHeap::keep_sample_point(SamplePoint* point) {
  if (countdown.budget_left() != 0) {
    point->kept_in_a_row = 0;
    return true;
  }
  double stays = 1 - 1.0 / (kFirstDropOdds + point->kept_in_a_row);
  ++point->kept_in_a_row;
  if (countdown.chance.unit() > stays) return false;
  point->weight /= stays;
  return true;
}

void ThreadHeap::free_sampled_slot(int c, SamplePoint* point) {
  // One instruction: a signal handler may interrupt. Relaxed: no other thread looks.
  Link top = point->slot, end = nullptr;
  if (heads[c] == point->slot && keep_sample_point(point) &&
      __atomic_compare_exchange(&heads[c], &top, &end, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    point->next = bins[c].sample_points;
    bins[c].sample_points = point;
  } else {
    sample_point_drop(point);
  }
}

}  // namespace larder
