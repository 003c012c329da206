#include "core/purge_slab.h"

#include <utility>

#include "base/policy.h"
#include "core/page_heap.h"
#include "os/backing.h"

namespace larder {

namespace {

constexpr uint32_t kMaxSystemPages = 64;
static_assert(kPageBytes * kMaxSlabPages <= kMaxSystemPages * 4096, "`gone` has a bit a page");

// System pages of the carved part that objects in use touch.
uint64_t system_pages_in_use(const Slab* s, const void* free, uint32_t size, uint32_t system_page) {
  uint64_t in_use[kPageBytes / 8 / 64];  // by object
  uint32_t words = (s->carved + 63u) / 64;
  for (uint32_t i = 0; i < words; ++i) in_use[i] = ~uint64_t{0};
  if (s->carved % 64 != 0) in_use[words - 1] = (uint64_t{1} << s->carved % 64) - 1;
  auto is_free = [&](uint32_t object) { in_use[object / 64] &= ~(uint64_t{1} << object % 64); };
  for (; free != nullptr; free = next_of(free))
    is_free(uint32_t(static_cast<const char*>(free) - s->base) / size);
  for_each_decommitted(s, is_free);
  uint64_t system_pages = 0;
  for (uint32_t i = 0; i < words; ++i)
    for (uint64_t rest = in_use[i]; rest != 0; rest &= rest - 1) {
      uint32_t begin = (i * 64 + uint32_t(__builtin_ctzll(rest))) * size;
      uint32_t first = begin / system_page;
      system_pages |=
          uint64_t(page_range(int(first), int((begin + size - 1) / system_page - first + 1)));
    }
  return system_pages;
}

}  // namespace

bool slab_purge(Slab* s) {
  const uint32_t size = kSizeClasses.size[s->size_class];
  const auto system_page = uint32_t(os::page_size());
  const uint32_t system_pages = (s->carved * size + system_page - 1) / system_page;
  if (s->used * kSparseShare > system_pages || system_page > kPageBytes) return false;
  if (s->purged_at != 0 && s->used * kSparseShare >= s->purged_at) return false;
  s->purged_at = uint16_t(s->used + 1);

  void* list = std::exchange(s->free, nullptr);
  auto found = uint64_t(page_range(0, int(system_pages))) & ~s->decommitted &
               ~system_pages_in_use(s, list, size, system_page);
  s->decommitted |= found;
  ObjectList remaining;
  for (void *p = list, *following = nullptr; p != nullptr; p = following) {
    following = next_of(p);
    if ((s->decommitted >> uint32_t(static_cast<char*>(p) - s->base) / system_page & 1) == 0)
      remaining.append(p);
  }
  remaining.end_with(std::exchange(s->free, nullptr));
  s->free = remaining.first();
  if (found != 0) page_heap.forbid_huge_pages(s->segment);
  for (PageSet rest = found; rest != 0;) {
    int first = first_page(rest);
    int count = span_length_at(rest, first);
    rest &= ~page_range(first, count);
    backing::discard(s->base + size_t(first) * system_page, size_t(count) * system_page);
  }
  return found != 0;
}

void slab_recommit(Slab* s) {
  for_each_decommitted(s, [s](uint32_t object) {
    void* p = s->base + size_t{object} * kSizeClasses.size[s->size_class];
    set_next(p, s->free);
    s->free = p;
  });
  s->decommitted = 0;
  s->purged_at = 0;
}

}  // namespace larder
