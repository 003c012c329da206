#include "core/source.h"

#include <string.h>

#include "base/policy.h"
#include "core/meta.h"
#include "core/page_map.h"
#include "os/backing.h"

namespace larder {

namespace {

// Descriptors of released regions, by next. Small regions keep their table. The page heap's lock
// guards it, which the callers hold.
constinit Region* spare = nullptr;

size_t table_size(unsigned count) {
  return count * (sizeof(Segment) + kPagesPerSegment * sizeof(Slab));
}

Segment* new_table(unsigned count) {
  size_t bytes = table_size(count);
  return static_cast<Segment*>(count <= kSharedTableSegments
                                   ? meta_alloc(bytes, alignof(Segment))
                                   : os::map(round_up(bytes, os::page_size())));
}

void give_spare(Region* region) {
  if (region->segments != nullptr && region->count > kSharedTableSegments) {
    os::unmap(region->segments, round_up(table_size(region->count), os::page_size()));
    region->segments = nullptr;
  }
  region->next = spare;
  spare = region;
}

// A region with a zeroed table for `count` segments, or nullptr.
Region* new_descriptor(unsigned count) {
  Region** link = &spare;
  while (*link != nullptr && (*link)->segments != nullptr && (*link)->count != count)
    link = &(*link)->next;
  Region* region = *link;
  if (region != nullptr)
    *link = region->next;
  else
    region = static_cast<Region*>(meta_alloc(sizeof(Region), alignof(Region)));
  if (region == nullptr) return nullptr;
  region->count = count;
  if (region->segments != nullptr)
    memset(region->segments, 0, table_size(count));
  else
    region->segments = new_table(count);
  if (region->segments != nullptr) return region;
  give_spare(region);
  return nullptr;
}

}  // namespace

Region* source_region(unsigned min_segments, size_t segments_so_far) {
  backing::init();
  unsigned most = backing::max_segments();
  unsigned count = segments_so_far < kFirstSegments ? kFirstSegments
                   : segments_so_far > most         ? most
                                                    : unsigned(segments_so_far);
  if (count < min_segments) count = min_segments;
  char* base = nullptr;
  for (;; count = count / 2 < min_segments ? min_segments : count / 2) {
    base = static_cast<char*>(backing::map_aligned(count * kSegmentBytes, kSegmentBytes));
    if (base != nullptr || count == min_segments) break;
  }
  if (base == nullptr) return nullptr;
  Region* region = new_descriptor(count);
  if (region == nullptr || !page_map.make_tables(base, count * size_t{kPagesPerSegment})) {
    backing::unmap(base, count * kSegmentBytes);
    if (region != nullptr) give_spare(region);
    return nullptr;
  }
  region->base = base;
  region->free_segments = segment_bits(count);
  return region;
}

size_t source_table_bytes(const Region& region) {
  return region.count > kSharedTableSegments ? table_size(region.count) : 0;
}

bool source_release(Region* region) {
  // The map first: as soon as the range is unmapped, another owner may map it.
  size_t bytes = region->count * kSegmentBytes;
  page_map.set(region->base, bytes / kPageBytes, nullptr);
  if (!backing::unmap(region->base, bytes)) return false;
  give_spare(region);
  return true;
}

}  // namespace larder
