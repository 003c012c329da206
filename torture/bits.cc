#include "bits.h"

#include <sys/mman.h>

#include <atomic>

#include "memory.h"

namespace torture::bits {

namespace {

using Word = std::atomic<uint64_t>;
// Relaxed: each bit has one order of its changes, and that a block is freed before it is handed out
// again is for the allocator to order. Any more would hide from ThreadSanitizer that it does not.
constexpr auto kRelaxed = std::memory_order_relaxed;

constexpr int kAddressBits = 48;
constexpr int kLeafShift = 26;
constexpr size_t kLeaves = size_t{1} << (kAddressBits - kLeafShift);
constexpr size_t kWords = (size_t{1} << kLeafShift) / 8 / 64;  // of a leaf

std::atomic<Word*>* leaves;

// The leaf of a word's number; null without memory for it, or if no pointer can have such a value.
Word* leaf_of(size_t word) {
  if (word / kWords >= kLeaves) return nullptr;
  std::atomic<Word*>& place = leaves[word / kWords];
  Word* leaf = place.load(std::memory_order_acquire);
  if (leaf != nullptr) return leaf;
  auto* fresh = static_cast<Word*>(map_pages(kWords * sizeof(Word)));
  if (fresh == nullptr) return nullptr;
  if (place.compare_exchange_strong(leaf, fresh)) return fresh;
  munmap(fresh, kWords * sizeof(Word));
  return leaf;
}

// The bits from `first` to the last one below `end` that are in the word of `first`.
uint64_t mask_of(size_t first, size_t end) {
  uint64_t mask = ~uint64_t{0} << first % 64;
  size_t beyond = (first / 64 + 1) * 64;
  return end >= beyond ? mask : mask & ~(~uint64_t{0} << end % 64);
}

}  // namespace

bool init() {
  leaves = static_cast<std::atomic<Word*>*>(map_pages(kLeaves * sizeof(Word*)));
  return leaves != nullptr;
}

Outcome set(uintptr_t start, uintptr_t end) {
  size_t last = (end + 7) / 8;
  uint64_t taken = 0;
  for (size_t bit = (start + 7) / 8; bit < last; bit = (bit / 64 + 1) * 64) {
    Word* leaf = leaf_of(bit / 64);
    if (leaf == nullptr) return Outcome::kNoMemory;
    uint64_t mask = mask_of(bit, last);
    taken |= leaf[bit / 64 % kWords].fetch_or(mask, kRelaxed) & mask;
  }
  return taken == 0 ? Outcome::kDone : Outcome::kTaken;
}

bool clear(uintptr_t start, uintptr_t end) {
  size_t last = (end + 7) / 8;
  uint64_t missing = 0;
  for (size_t bit = (start + 7) / 8; bit < last; bit = (bit / 64 + 1) * 64) {
    Word* leaf = leaf_of(bit / 64);
    if (leaf == nullptr) return false;
    uint64_t mask = mask_of(bit, last);
    missing |= ~leaf[bit / 64 % kWords].fetch_and(~mask, kRelaxed) & mask;
  }
  return missing == 0;
}

}  // namespace torture::bits
