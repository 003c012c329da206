#include "core/slab_span.h"

#include "base/size_class.h"
#include "base/stats.h"
#include "core/page_heap.h"
#include "core/purge.h"
#include "core/remote_word.h"

namespace larder {

namespace {

void init(Slab* s, int c) {
  s->size_class = uint8_t(c);
  s->capacity = kSizeClasses.capacity[c];
  s->inverse = kSizeClasses.inverse[c];
  s->list = &s->free;
  s->free = nullptr;
  s->used = 0;
  s->carved = 0;
  s->purged_at = 0;
  s->decommitted = 0;
}

// Carving starts at the base, so what an earlier class touched stays touched.
void note_touched(Slab* s) {
  auto carved_bytes = uint32_t(s->carved * kSizeClasses.size[s->size_class]);
  if (s->touched < carved_bytes) s->touched = carved_bytes;
}

}  // namespace

Slab* slab_acquire(int c) {
  Slab* s = page_heap.alloc_span(kSizeClasses.pages[c], 1, Kind::kSlab);
  if (s == nullptr) return nullptr;
  purge_for_growth();
  init(s, c);
  s->touched = 0;
  remote_reset(s);
  return s;
}

void slab_reset(Slab* s, int c) {
  note_touched(s);
  init(s, c);
}

void slab_release(Slab* s) {
  note_touched(s);
  page_heap.free_span(s, s->touched);
  purge_tick();
}

}  // namespace larder
