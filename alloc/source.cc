#include "source.h"

#include "meta.h"
#include "page_map.h"

namespace larder {

Region* source_region(unsigned min_blocks, size_t blocks_so_far) {
  unsigned count = blocks_so_far < 2 ? 2 : blocks_so_far > 64 ? 64 : unsigned(blocks_so_far);
  if (count < min_blocks) count = min_blocks;
  char* base = nullptr;
  for (;; count = count / 2 < min_blocks ? min_blocks : count / 2) {
    base = static_cast<char*>(os::map_aligned(count * kBlock, kBlock));
    if (base != nullptr || count == min_blocks) break;
  }
  if (base == nullptr) return nullptr;
  size_t table_bytes = round_up(count * sizeof(Block), os::page_size());
  auto* region = static_cast<Region*>(meta_alloc(sizeof(Region), alignof(Region)));
  auto* blocks = region == nullptr ? nullptr : static_cast<Block*>(os::map(table_bytes));
  if (blocks == nullptr || !page_map.make_tables(base, count * size_t{kUnitsPerBlock})) {
    if (blocks != nullptr) os::unmap(blocks, table_bytes);
    os::unmap(base, count * kBlock);
    return nullptr;
  }
  region->base = base;
  region->blocks = blocks;
  region->count = count;
  region->free_blocks = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  return region;
}

}  // namespace larder
