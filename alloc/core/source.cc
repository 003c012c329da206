#include "core/source.h"

#include <string.h>

#include "core/meta.h"
#include "core/page_map.h"
#include "os/backing.h"

namespace larder {

namespace {

// Descriptors of released regions, by next. Those of small regions keep their table.
constinit Region* spare = nullptr;

size_t table_size(unsigned count) {
  return count * (sizeof(Block) + kUnitsPerBlock * sizeof(Slab));
}

Block* new_table(unsigned count) {
  size_t bytes = table_size(count);
  return static_cast<Block*>(count <= kSharedTableBlocks
                                 ? meta_alloc(bytes, alignof(Block))
                                 : os::map(round_up(bytes, os::page_size())));
}

void give_spare(Region* region) {
  if (region->blocks != nullptr && region->count > kSharedTableBlocks) {
    os::unmap(region->blocks, round_up(table_size(region->count), os::page_size()));
    region->blocks = nullptr;
  }
  region->next = spare;
  spare = region;
}

// With a zeroed table for `count` blocks, or nullptr.
Region* new_descriptor(unsigned count) {
  Region** link = &spare;
  while (*link != nullptr && (*link)->blocks != nullptr && (*link)->count != count)
    link = &(*link)->next;
  Region* region = *link;
  if (region != nullptr)
    *link = region->next;
  else
    region = static_cast<Region*>(meta_alloc(sizeof(Region), alignof(Region)));
  if (region == nullptr) return nullptr;
  region->count = count;
  if (region->blocks != nullptr)
    memset(region->blocks, 0, table_size(count));
  else
    region->blocks = new_table(count);
  if (region->blocks != nullptr) return region;
  give_spare(region);
  return nullptr;
}

}  // namespace

Region* source_region(unsigned min_blocks, size_t blocks_so_far) {
  backing::init();
  unsigned most = backing::most_blocks();
  unsigned count = blocks_so_far < 2 ? 2 : blocks_so_far > most ? most : unsigned(blocks_so_far);
  if (count < min_blocks) count = min_blocks;
  char* base = nullptr;
  for (;; count = count / 2 < min_blocks ? min_blocks : count / 2) {
    base = static_cast<char*>(backing::map_aligned(count * kBlock, kBlock));
    if (base != nullptr || count == min_blocks) break;
  }
  if (base == nullptr) return nullptr;
  Region* region = new_descriptor(count);
  if (region == nullptr || !page_map.make_tables(base, count * size_t{kUnitsPerBlock})) {
    backing::unmap(base, count * kBlock);
    if (region != nullptr) give_spare(region);
    return nullptr;
  }
  region->base = base;
  region->free_blocks = block_bits(count);
  return region;
}

size_t source_table_bytes(const Region& region) {
  return region.count > kSharedTableBlocks ? table_size(region.count) : 0;
}

bool source_release(Region* region) {
  // First the map: from the moment it is unmapped, the range may be anybody's.
  size_t bytes = region->count * kBlock;
  page_map.set(region->base, bytes / kUnit, nullptr);
  if (!backing::unmap(region->base, bytes)) return false;
  give_spare(region);
  return true;
}

}  // namespace larder
