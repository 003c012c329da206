#include "source.h"

#include "meta.h"
#include "page_map.h"

namespace larder {

namespace {

constinit Region* spare = nullptr;  // descriptors of released regions, by next

size_t table_size(unsigned count) { return round_up(count * sizeof(Block), os::page_size()); }

Region* new_descriptor() {
  Region* region = spare;
  if (region == nullptr) return static_cast<Region*>(meta_alloc(sizeof(Region), alignof(Region)));
  spare = region->next;
  return region;
}

}  // namespace

Region* source_region(unsigned min_blocks, size_t blocks_so_far) {
  unsigned count = blocks_so_far < 2 ? 2 : blocks_so_far > 64 ? 64 : unsigned(blocks_so_far);
  if (count < min_blocks) count = min_blocks;
  char* base = nullptr;
  for (;; count = count / 2 < min_blocks ? min_blocks : count / 2) {
    base = static_cast<char*>(os::map_aligned(count * kBlock, kBlock));
    if (base != nullptr || count == min_blocks) break;
  }
  if (base == nullptr) return nullptr;
  size_t table_bytes = table_size(count);
  Region* region = new_descriptor();
  auto* blocks = region == nullptr ? nullptr : static_cast<Block*>(os::map(table_bytes));
  if (blocks == nullptr || !page_map.make_tables(base, count * size_t{kUnitsPerBlock})) {
    if (blocks != nullptr) os::unmap(blocks, table_bytes);
    os::unmap(base, count * kBlock);
    if (region != nullptr) {
      region->next = spare;
      spare = region;
    }
    return nullptr;
  }
  region->base = base;
  region->blocks = blocks;
  region->count = count;
  region->free_blocks = block_bits(count);
  return region;
}

bool source_release(Region* region) {
  // First the map: from the moment it is unmapped, the range may be anybody's.
  size_t bytes = region->count * kBlock;
  page_map.set(region->base, bytes / kUnit, nullptr);
  if (!os::unmap(region->base, bytes)) return false;
  os::unmap(region->blocks, table_size(region->count));
  region->next = spare;
  spare = region;
  return true;
}

}  // namespace larder
