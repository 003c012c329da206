// The process is at vm.max_map_count: mmap and every munmap that would split a mapping fail. The
// allocator continues with its memory, returns NULL and ENOMEM if it must, and recovers.
// Usage: max_maps

#include "support.h"

using namespace alloctest;

namespace {

size_t max_map_count() {
  size_t count = 0;
  each_line("/proc/sys/vm/max_map_count",
            [&](const char* line) { count = strtoul(line, nullptr, 10); });
  return count;
}

constexpr size_t kBlocks = 400;
struct Owned {
  void* block;
  size_t size;
};
Owned table[kBlocks];

size_t pick_size(Random& random) {
  const size_t kind = random.below(100);
  if (kind < 4) return random.below(30 * kMiB);
  if (kind < 15) return random.below(4 * kMiB);
  if (kind < 40) return random.below(300 * kKiB);
  return random.below(8000);
}

// Returns the number of refused requests.
size_t churn(uint64_t seed, size_t operations) {
  Random random(seed);
  size_t refused = 0;
  for (size_t i = 0; i < operations; ++i) {
    Owned& owned = table[random.below(kBlocks)];
    const size_t size = pick_size(random) + 1;
    errno = 4242;
    if (owned.block != nullptr && random.below(3) != 0) {
      check_pattern(owned.block, owned.size, owned.size, owned.size);
      free(owned.block);
      CHECK_MSG(errno == 4242, "free changed errno");
      owned = {};
      continue;
    }
    void* block = realloc(owned.block, size);
    if (block == nullptr) {
      CHECK_MSG(errno == ENOMEM, "a refused request must set ENOMEM");
      if (owned.block != nullptr) {
        check_pattern(owned.block, owned.size, owned.size, owned.size);
      }
      ++refused;
      continue;
    }
    if (owned.block != nullptr) check_pattern(block, owned.size, size, owned.size);
    owned = {block, size};
    fill_pattern(block, size, size);
  }
  return refused;
}

}  // namespace

int main() {
  begin("max_maps");
  const size_t limit = max_map_count();
  CHECK_MSG(limit <= 2'000'000, "vm.max_map_count is %zu: too many to reach in a test", limit);
  CHECK(churn(1, 3000) == 0);
  // Pages of alternating protection in one reservation: a mapping each.
  const size_t pages = limit + 1000;
  void* reservation =
      mmap(nullptr, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(reservation != MAP_FAILED);
  size_t split = 0;
  for (size_t i = 0; i < pages; i += 2) {
    if (mprotect(static_cast<char*>(reservation) + i * 4096, 4096, PROT_READ) != 0) break;
    ++split;
  }
  CHECK_MSG(split < pages / 2, "the limit of mappings was not reached");
  const size_t refused = churn(2, 15000);
  malloc_trim(0);
  const size_t refused_after = churn(3, 5000);
  CHECK(munmap(reservation, pages * 4096) == 0);
  const size_t refused_later = churn(4, 5000);
  say("%zu mappings made until the limit; %zu and %zu requests refused there, %zu afterwards",
      split, refused, refused_after, refused_later);
  CHECK_MSG(refused_later == 0, "requests still fail with the mappings gone");
  for (auto& owned : table) {
    if (owned.block == nullptr) continue;
    check_pattern(owned.block, owned.size, owned.size, owned.size);
    free(owned.block);
  }
  malloc_trim(0);
  say("%zu mappings, %.1f MiB resident at the end", mapping_count(), mib(rss_bytes()));
  CHECK(mapping_count() < 1000);
  return 0;
}
