#include "survey.h"

#include "large.h"
#include "page_heap.h"
#include "page_map.h"
#include "registry.h"
#include "stats.h"
#include "thread_heap.h"
#include "usage.h"

namespace larder {

namespace {

size_t sum(const size_t (&by_class)[kClasses]) {
  size_t total = 0;
  for (size_t bytes : by_class) total += bytes;
  return total;
}

void count_objects(Survey* out, size_t objects, size_t bytes) {
  if (objects == 0) return;
  out->objects += objects;
  out->in_use += bytes;
  size_t each = bytes / objects;
  out->histogram[each == 0 ? 0 : 63 - __builtin_clzl(each)] += objects;
}

void add_slab(Slab* s, void* context) {
  auto* out = static_cast<Survey*>(context);
  ++out->descriptors;
  if (page_map.find(s->base) != s || s->bytes < kUnit) out->sound = false;
  if (s->kind == Kind::kRun) {
    count_objects(out, 1, s->bytes - s->offset);
    return;
  }
  // Sampled objects have slots in other slabs, which are counted.
  if (s->kind != Kind::kSlab) return;
  int c = s->size_class;
  if (c >= kClasses || s->carved > s->capacity) {
    out->sound = false;
    return;
  }
  size_t used = objects_in_use(s);
  count_objects(out, used, used * kSizeClasses.size[c]);
  size_t free = size_t{s->units} * kUnit - used * kSizeClasses.size[c];
  ThreadHeap* owner = s->owner();
  (owner != kNobody ? out->own_free : out->central_free)[c] += free;
  if (owner != kNobody && owner == thread_state.heap) out->mine += free;
}

void add_heap(ThreadHeap& heap, void* context) {
  auto* out = static_cast<Survey*>(context);
  size_t runs = __atomic_load_n(&heap.kept_run_bytes, __ATOMIC_RELAXED);
  out->kept_run_bytes += runs;
  if (&heap == thread_state.heap) out->mine += runs;
}

}  // namespace

size_t Survey::free_in_threads() const { return sum(own_free) + kept_run_bytes; }
size_t Survey::free_in_central() const { return sum(central_free); }

void survey_heap(Survey* out) {
  *out = {};
  out->sound = true;
  heap_usage();  // what others freed, and what is parked, is taken in
  SlowPath path;
  if (!path.entered()) return;
  page_heap.for_each(add_slab, out);
  registry_for_each(add_heap, out);
  PageHeap::Totals totals = page_heap.totals();
  out->region_bytes = totals.region_bytes;
  out->page_free = totals.dirty_free_bytes;
  out->page_untouched = totals.free_bytes - totals.dirty_free_bytes;
  out->huge_bytes = size_t(stats::get(stats::kHugeBytes));
  out->huge_kept = large_kept_bytes();
  count_objects(out, size_t(stats::get(stats::kHugeCount)), out->huge_bytes);
}

bool is_object(const void* p) {
  const Slab* s = page_map.find_any(p);
  switch (s->kind) {
    case Kind::kSlab:
    case Kind::kSampled: {
      auto at = size_t(static_cast<const char*>(p) - s->base);
      size_t size = kSizeClasses.size[s->size_class];
      return at % size == 0 && at / size < s->carved;
    }
    case Kind::kRun:
    case Kind::kHuge:
    case Kind::kEmergency:
      return p == s->base + s->offset;
    default:
      return false;
  }
}

}  // namespace larder
