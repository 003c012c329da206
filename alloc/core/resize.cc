// realloc: in place, by moving system pages, or by a copy.
#include <errno.h>
#include <string.h>

#include "base/policy.h"
#include "base/stats.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/purge.h"
#include "core/thread_heap.h"

namespace larder {

namespace {

// Counts the growth of a large object for the sampler.
void charge_resized(Slab* s, size_t size_bytes, void* caller) {
  if (sample_all && s->sample_point != nullptr) {
    sample_end(s->sample_point);
    return sample_large(s->sample_point, s, size_bytes, caller, nullptr);
  }
  size_t known = s->sample_point != nullptr ? s->sample_point->bytes : s->charged,
         step = known / kChargeShare;
  if (size_bytes <= known + step && (s->sample_point == nullptr || size_bytes + step >= known))
    return;
  bool hit = false;
  if (size_bytes > s->charged) {
    float expected = 0;
    hit = countdown_hits(size_bytes - s->charged, &expected);
    s->expected += expected;
    s->charged = size_bytes;
  }
  if (s->sample_point != nullptr) {
    sample_resize(s->sample_point, size_bytes, objects_of_sample(double(s->expected)));
  } else if (!hit) {
    return;
  } else if (SamplePoint* point =
                 sample_point_new(nullptr, objects_of_sample(double(s->expected)))) {
    sample_large(point, s, size_bytes, caller, countdown_of_thread());
  }
}

// Samples count the requested size, without the extra room.
LARDER_SLOW void uncount_room(void* p, size_t size_bytes) {
  Slab* s = page_map.find(p);
  SlowPath path;
  if (path.entered() && s->sample_point != nullptr) sample_correct(s->sample_point, size_bytes);
}

// In whole pages, as large_resize() has asked.
bool limit_refuses(const Slab* s, size_t size_bytes) {
  size_t need = round_up(size_bytes + s->offset, large_granule());
  return need > s->bytes && !limit::allows(need - s->bytes);
}

}  // namespace

void* resize_without_copy(void* p, Slab* s, size_t size_bytes, bool at_limit) {
  if (is_small(s)) {
    return serves(usable_size(s), size_bytes) && !sample_all ? p : nullptr;
  }
  SlowPath path;
  if (!path.entered()) return nullptr;
  size_t before = s->bytes;
  void* q = large_resize(s, p, size_bytes);
  // The copy would need room for both objects.
  if (q == nullptr && limit_refuses(s, size_bytes)) {
    purge_all();
    q = large_resize(s, p, size_bytes);
  }
  if (q == nullptr && at_limit) q = large_move_by_pieces(s, size_bytes);
  if (s->bytes > before) purge_for_growth();
  if (q != nullptr) charge_resized(s, size_bytes, __builtin_return_address(0));
  return q;
}

void* resize(void* p, Slab* s, size_t size_bytes) {
  if (unlikely(size_bytes > kMaxSize)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (s->kind != Kind::kSlab)
    if (void* q = resize_without_copy(p, s, size_bytes, false)) return q;
  int saved_errno = errno;
  size_t old = usable_size(s);
  // A large object that moves will grow again: it gets extra room, which costs nothing while
  // untouched.
  size_t room =
      size_bytes > old && size_bytes > kSmallMax && !sample_all ? size_bytes / kGrowShare : 0;
  void* q = malloc_fast(size_bytes + room);
  if (q != nullptr && room != 0)
    uncount_room(q, size_bytes);
  else if (room != 0)
    q = malloc_fast(size_bytes);
  if (q == nullptr) {
    // A shrinking realloc must not fail for want of memory. What malloc and the program's callback
    // have released may be room enough in place.
    q = size_bytes <= old ? p : resize_without_copy(p, s, size_bytes, true);
    if (q != nullptr) errno = saved_errno;
    return q;
  }
  errno = saved_errno;
  size_t copied = old < size_bytes ? old : size_bytes;
  memcpy(q, p, copied);
  if (copied > kSmallMax) stats::add(stats::kReallocCopiedBytes, int64_t(copied));
  if (copied > kSpanMax) stats::add(stats::kReallocCopiedHugeBytes, int64_t(copied));
  free_fast(p);
  return q;
}

}  // namespace larder
