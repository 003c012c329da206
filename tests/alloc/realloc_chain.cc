// Chains of realloc around every bound of size classes, slabs, spans, segments and huge mappings,
// up and down, alone and between neighbours that occupy the memory around. Usage: realloc_chain
// [RANDOM_STEPS]

#include <initializer_list>

#include "support.h"

using namespace alloctest;

namespace {

struct Owned {
  void* block = nullptr;
  size_t size = 0;
  uint64_t key = 0;
};

void move_to(Owned& owned, size_t size) {
  void* moved = realloc(owned.block, size);
  CHECK_MSG(moved != nullptr, "realloc from %zu to %zu failed", owned.size, size);
  CHECK(malloc_usable_size(moved) >= size && is_aligned(moved, required_alignment(size)));
  if (owned.block != nullptr) check_pattern(moved, owned.size, size, owned.key);
  owned = {moved, size, pattern_key(moved, size)};
  fill_pattern(moved, size, owned.key);
}

// Powers of two, and the quarter and eighth steps between them, one byte around each.
template <typename Visit>
void each_boundary(size_t largest, Visit visit) {
  for (size_t power = 16; power <= largest; power *= 2) {
    for (size_t eighth = 0; eighth < 8; ++eighth) {
      const size_t boundary = power + power / 8 * eighth;
      for (size_t size : {boundary - 1, boundary, boundary + 1}) visit(size);
    }
  }
}

void across_boundaries() {
  size_t count = 0;
  static size_t sizes[2000];
  each_boundary(64 * kMiB, [&](size_t size) { sizes[count++] = size; });
  Owned owned;
  for (size_t i = 0; i < count; ++i) move_to(owned, sizes[i]);
  for (size_t i = count; i-- > 0;) move_to(owned, sizes[i]);
  for (size_t i = 0; i < count; ++i) {
    move_to(owned, sizes[i]);
    move_to(owned, sizes[count - 1 - i]);
    if (sizes[i] > 4 * kMiB) break;
  }
  free(owned.block);
  say("%zu boundaries crossed, up and down", count);
}

void every_small_size() {
  Owned owned;
  for (size_t size = 1; size <= 40000; size += size < 3000 ? 1 : 37) move_to(owned, size);
  for (size_t size = 40000; size > 0; size -= size < 3000 ? 1 : 37) move_to(owned, size);
  free(owned.block);
}

// Many blocks, grown and shrunk in random order, so that in-place growth meets neighbours.
void among_neighbours(size_t steps) {
  static Owned table[300];
  Random random(31);
  for (size_t i = 0; i < steps; ++i) {
    Owned& owned = table[random.below(300)];
    size_t size = owned.size;
    switch (random.below(5)) {
      case 0:
        size = random.log_uniform(5 * kMiB);
        break;
      case 1:
        size = owned.size + random.below(20000);
        break;
      case 2:
        size = owned.size - random.below(owned.size + 1) / 4;
        break;
      case 3:
        size = (owned.size + 4096) & ~size_t{4095};
        break;
      default:
        size = owned.size * 2;
    }
    if (size > 8 * kMiB) size = random.below(10000);
    move_to(owned, size + 1);
  }
  for (auto& owned : table) {
    if (owned.block != nullptr) check_pattern(owned.block, owned.size, owned.size, owned.key);
    free(owned.block);
  }
  say("%zu random steps among neighbours", steps);
}

// Shrinking must free the tail: ten blocks of 64 MiB, shrunk to a page each.
void shrunk_tails_come_back() {
  void* blocks[10];
  const size_t before = rss_bytes();
  for (auto& block : blocks) {
    block = malloc(64 * kMiB);
    CHECK(block != nullptr);
    memset(block, 1, 64 * kMiB);
    block = realloc(block, 4096);
    CHECK(block != nullptr);
  }
  malloc_trim(0);
  const size_t after = rss_bytes();
  say("ten blocks shrunk from 64 MiB to a page: %.1f MiB stay", mib(after) - mib(before));
  CHECK_MSG(after < before + 16 * kMiB, "the tails stay resident");
  for (auto& block : blocks) free(block);
}

}  // namespace

int main(int argc, char** argv) {
  begin("realloc_chain");
  every_small_size();
  across_boundaries();
  among_neighbours(argument(argc, argv, 1, 20000));
  shrunk_tails_come_back();
  return 0;
}
