// The number of mappings stays bounded after any churn: vm.max_map_count (65,530) is a limit of
// the whole process, and an allocator that unmaps pieces reaches it.
// Usage: map_count [OPERATIONS]
//
// Bound: what was there before, two for each huge block that is live (itself and what its
// neighbour leaves), and 300 for blocks and descriptors.

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kBlocks = 4000;
constexpr size_t kHugeBytes = 8 * kMiB;
constexpr size_t kAllowance = 300;

struct Owned {
  void* block;
  size_t size;
};

Owned table[kBlocks];

// Only the first page of a huge block is touched: mappings are counted here, not pages.
void touch(Owned& owned) {
  if (owned.size > 0) memset(owned.block, 1, owned.size < 4096 ? owned.size : 4096);
}

size_t live_huge() {
  size_t count = 0;
  for (const auto& owned : table) count += owned.block != nullptr && owned.size >= kHugeBytes;
  return count;
}

size_t pick_size(Random& random) {
  const size_t kind = random.below(400);
  if (kind == 0) return kHugeBytes + random.below(60 * kMiB);
  if (kind < 40) return random.below(3 * kMiB);
  if (kind < 100) return 4096 * (1 + random.below(64));
  return random.below(20000);
}

void churn(size_t operations) {
  Random random(21);
  for (size_t i = 0; i < operations; ++i) {
    Owned& owned = table[random.below(kBlocks)];
    const size_t size = pick_size(random);
    if (owned.block != nullptr && random.below(3) == 0) {
      owned.block = realloc(owned.block, size + 1);
      owned.size = size + 1;
    } else {
      free(owned.block);
      owned.size = size;
      owned.block = random.below(8) == 0 ? aligned_alloc(size_t{4096} << random.below(10), size)
                                         : malloc(size);
    }
    CHECK_MSG(owned.block != nullptr, "no memory for %zu bytes", size);
    touch(owned);
    if (i % 5000 == 4999) malloc_trim(0);
  }
}

void holes_between_large_blocks() {
  // Every second one of many equal large blocks is freed: the worst case for munmap.
  for (auto& owned : table) {
    free(owned.block);
    owned = {malloc(600 * kKiB), 600 * kKiB};
    CHECK(owned.block != nullptr);
    touch(owned);
  }
  for (size_t i = 0; i < kBlocks; i += 2) {
    free(table[i].block);
    table[i].block = nullptr;
  }
  malloc_trim(0);
}

void require_bounded(const char* when, size_t before) {
  const size_t now = mapping_count();
  const size_t huge = live_huge();
  const size_t bound = before + 2 * huge + kAllowance;
  say("%s: %zu mappings (%zu at the start), %zu huge blocks live, bound %zu", when, now, before,
      huge, bound);
  CHECK_MSG(now <= bound, "%zu mappings, at most %zu allowed", now, bound);
}

}  // namespace

int main(int argc, char** argv) {
  begin("map_count");
  const size_t operations = argument(argc, argv, 1, 400000);
  const size_t before = mapping_count();
  churn(operations);
  require_bounded("after mixed churn", before);
  holes_between_large_blocks();
  require_bounded("with holes between large blocks", before);
  for (auto& owned : table) free(owned.block);
  memset(table, 0, sizeof table);
  malloc_trim(0);
  require_bounded("after all was freed", before);
  return 0;
}
