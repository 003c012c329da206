// Page map: from an address to its slab. A radix tree with an entry a page.
//
// Ownership: the tree is global. The owner of a page (the page heap, or a large object's operation)
// sets its entry before the first pointer into it is handed out, and clears it before the address
// range leaves Larder. Readers take no lock and no branch:
//   - an absent root entry is offset 0, which leads to `null_leaf_`, whose entries are all 0;
//   - an absent entry is offset 0 from `null_slab_`, whose owner equals no heap.
// So NULL, foreign and unmapped addresses below 2^kBits resolve to the null slab. Root, leaf and
// slab lie in one object in this order, so that one base register serves a look-up. Why pages and
// not segments: one dependent load fewer on free, for 8 bytes a 16 KiB.
//
// Cost: 2 loads a look-up. Memory: 2 MiB of address space a 4 GiB of heap, of which only the system
// pages in use are touched (4 KiB a 8 MiB of heap). Relaxed: an entry is set before its first
// address is handed out, and whoever passes that address to another thread orders the two; a new
// table is all zeros.
#pragma once

#include <atomic>
#include <utility>

#include "core/slab.h"
#include "os/os.h"

namespace larder {

// `kBits` of address in `kLevels` (1 to 3) tables. Thread safety: find() from any thread, at any
// time; set() by the page's owner. Tables are made by compare-and-swap and never freed.
template <int kBits, int kLevels>
class PageMap {
 public:
  static constexpr int kIndexBits = kBits - kPageShift;
  // Of two levels the leaf has the low half of an address: no mask.
  static constexpr int kLeafBits =
      kLevels == 2 ? 32 - kPageShift : (kIndexBits + kLevels - 1) / kLevels;
  static constexpr int kRootBits = kIndexBits - kLeafBits * (kLevels - 1);
  static constexpr size_t kLeafSize = size_t{1} << kLeafBits;
  static constexpr size_t kRootSize = size_t{1} << kRootBits;

  // REQUIRES: `addr` < 2^kBits.
  LARDER_FAST Slab* find(const void* addr) const {
    const PageMap* map = in_register();
    return map->slab_at(map->offset_at(addr));
  }

  // The parts of find(), for free(): the owner of the slab can be read without its address.
  LARDER_FAST const PageMap* in_register() const {
    // Hides the object's address from the compiler, which would form the address of each part anew.
    const PageMap* map = this;
    __asm__("" : "+r"(map));
    return map;
  }
  LARDER_FAST uintptr_t offset_at(const void* addr) const {
    if constexpr (kLevels != 2)
      return entry(uintptr_t(addr) >> kPageShift)->load(std::memory_order_relaxed);
    const Entry* leaf = table(&root_[uintptr_t(addr) >> 32]);
    // One register, and an index beside it.
    __asm__("" : "+r"(leaf));
    return leaf[uint32_t(uintptr_t(addr)) >> kPageShift].load(std::memory_order_relaxed);
  }
  LARDER_FAST Slab* slab_at(uintptr_t offset) const {
    return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(&null_slab_) + offset);
  }

  // For readers outside the process: root entries are offsets from the address that lies this many
  // bytes behind the root.
  static constexpr size_t kNullLeafOffset = kRootSize * sizeof(uintptr_t);

  // Calls `visit(base, bytes)` for the map itself and for each table. Skips parts of the root that
  // `touched(base, bytes)` denies: reading them would map them.
  template <typename Touched, typename Visit>
  void for_each_table(Touched touched, Visit visit) const {
    static_assert(kLevels == 2);
    constexpr size_t kStep = 4096 / sizeof(Entry);
    visit(this, sizeof *this);
    for (size_t first = 0; first < kRootSize; first += kStep) {
      if (!touched(&root_[first], kStep * sizeof(Entry))) continue;
      for (size_t i = first; i < first + kStep; ++i)
        if (root_[i].load(std::memory_order_relaxed) != 0)
          visit(table(&root_[i]), kLeafSize * sizeof(Entry));
    }
  }

  // The slab of every address that is not Larder's. Never written.
  Slab* null_slab() const { return const_cast<Slab*>(&null_slab_); }

  // Like find(), for any bit pattern.
  Slab* find_any(const void* addr) const {
    return (uintptr_t(addr) >> kBits) != 0 ? null_slab() : find(addr);
  }

  // Calls visit(address, slab) for each page with an entry.
  template <typename Visit>
  void for_each(Visit visit) const {
    static_assert(kLevels == 2, "of the process's");
    for (size_t i = 0; i < kRootSize; ++i) {
      if (root_[i].load(std::memory_order_relaxed) == 0) continue;
      const Entry* leaf = table(&root_[i]);
      for (size_t j = 0; j < kLeafSize; ++j) {
        uintptr_t offset = leaf[j].load(std::memory_order_relaxed);
        if (offset != 0) visit(((i << kLeafBits) + j) << kPageShift, slab_at(offset));
      }
    }
  }

  // Makes the tables for the entries of these pages. False: no memory. Any thread.
  bool make_tables(const void* addr, size_t pages) {
    size_t first = uintptr_t(addr) >> kPageShift;
    size_t last = first + pages - 1;
    if (last >> kIndexBits != 0) return false;
    if constexpr (kLevels == 1) return true;
    for (size_t page = first; page <= last; page = (page | (kLeafSize - 1)) + 1)
      if (make_entry(page) == nullptr) return false;
    return true;
  }

  // REQUIRES: make_tables() for these pages. nullptr makes the entries absent.
  void set(const void* addr, size_t pages, Slab* slab) {
    size_t page = uintptr_t(addr) >> kPageShift;
    for (size_t i = 0; i < pages; ++i)
      entry(page + i)->store(offset_of(slab), std::memory_order_relaxed);
  }

 private:
  using Entry = std::atomic<uintptr_t>;

  uintptr_t offset_of(const Slab* slab) const {
    return slab == nullptr ? 0 : uintptr_t(slab) - uintptr_t(&null_slab_);
  }

  // Table entries are offsets from null_leaf_, so that zero pages are a valid tree.
  LARDER_FAST const Entry* table(const Entry* from) const {
    return reinterpret_cast<const Entry*>(reinterpret_cast<uintptr_t>(null_leaf_) +
                                          from->load(std::memory_order_relaxed));
  }

  LARDER_FAST const Entry* entry(size_t page) const {
    const Entry* t = root_;
    if constexpr (kLevels == 3) t = table(&t[page >> (2 * kLeafBits)]);
    if constexpr (kLevels == 3) t = table(&t[(page >> kLeafBits) & (kLeafSize - 1)]);
    if constexpr (kLevels == 2) t = table(&t[page >> kLeafBits]);
    return &t[kLevels == 1 ? page : page & (kLeafSize - 1)];
  }
  Entry* entry(size_t page) { return const_cast<Entry*>(std::as_const(*this).entry(page)); }

  Entry* make_entry(size_t page) {
    Entry* t = root_;
    if constexpr (kLevels == 3) t = make_table(&t[page >> (2 * kLeafBits)]);
    if (t == nullptr) return nullptr;
    if constexpr (kLevels == 3) t = make_table(&t[(page >> kLeafBits) & (kLeafSize - 1)]);
    if constexpr (kLevels == 2) t = make_table(&t[page >> kLeafBits]);
    return t == nullptr ? nullptr : &t[kLevels == 1 ? page : page & (kLeafSize - 1)];
  }

  static LARDER_SLOW Entry* map_table() {
    return static_cast<Entry*>(os::map(kLeafSize * sizeof(Entry)));
  }

  Entry* make_table(Entry* from) {
    uintptr_t offset = from->load(std::memory_order_relaxed);
    if (offset == 0) {
      Entry* fresh = map_table();
      if (fresh == nullptr) return nullptr;
      uintptr_t mine = uintptr_t(fresh) - uintptr_t(null_leaf_);
      if (from->compare_exchange_strong(offset, mine, std::memory_order_acq_rel))
        offset = mine;
      else
        os::unmap(fresh, kLeafSize * sizeof(Entry));
    }
    return reinterpret_cast<Entry*>(uintptr_t(null_leaf_) + offset);
  }

  Entry root_[kRootSize] = {};
  Entry null_leaf_[kLevels == 1 ? 1 : kLeafSize] = {};
  // Alone in its system pages, which are never written and so stay the kernel's zero page.
  // free(NULL) reads it; when the processor predicts that the object is its thread's, it speculates
  // `--used`. On a writable page that would take the cache line from all other processors.
  alignas(kLargestSystemPage) Slab null_slab_;
};

using ProcessPageMap = PageMap<kAddressBits, 2>;
extern ProcessPageMap page_map __attribute__((visibility("hidden")));

}  // namespace larder
