// Runs of units and of blocks: find, split, merge, and choose what goes back to the system.
//
// One page heap a process, behind one lock; threads come here for a slab or a run, not for an
// object. Best fit by the longest free run: the fullest block that can serve a request serves it,
// at its lowest fitting unit. Coalescing is implicit in the bits, of units and of blocks.
// Cost: O(log 128) bit operations a request, plus the page-map entries of the run.
// Memory: 16.1 KiB of descriptors a 2 MiB, of which a run touches 128 bytes.
#pragma once

#include "core/block.h"
#include "os/lock.h"

namespace larder {

struct PurgeJob {
  Block* block;
  UnitSet units;
};

struct PagesLayout;

class PageHeap {
 public:
  // A run of `units` (1..128) whose base is a multiple of `align_units` (a power of two, <= 128),
  // with its page-map entries set; nullptr without memory. `kind`, `base`, `units`, `bytes` and
  // `zero` are set; nobody owns it.
  Slab* alloc_run(unsigned units, unsigned align_units, Kind kind);
  // `touched_bytes` from the base on may hold something else than zeros.
  void free_run(Slab* run, size_t touched_bytes);
  // In place; false when the units behind the run are taken.
  bool extend_run(Slab* run, unsigned new_units);
  void shrink_run(Slab* run, unsigned new_units);

  // Takes free dirty units out of use so that they can be discarded without the lock: whole blocks
  // first, those free since before `deadline_ms`; each block once a pass. False when there are
  // none.
  bool take_for_purge(uint64_t deadline_ms, uint64_t pass, PurgeJob* job);
  // Puts them back; those in `discarded` read as zeros now.
  void finish_purge(const PurgeJob& job, UnitSet discarded);
  bool has_dirty() const {
    return (dirty_whole_.count.load(std::memory_order_relaxed) |
            dirty_part_.count.load(std::memory_order_relaxed)) != 0;
  }
  // Of blocks that are wholly free and dirty; of units in use, now and at most.
  size_t dirty_whole_bytes() const {
    return dirty_whole_.count.load(std::memory_order_relaxed) * kBlock;
  }
  // Of free units that may hold memory.
  size_t dirty_bytes() const;
  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  size_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }

  // Unmaps regions that are wholly free, for when address space is short. Bytes.
  size_t release_regions();

  struct Totals {
    size_t region_bytes, free_bytes, dirty_free_bytes;
  };
  Totals totals();
  // Calls `visit(block, context)` for each block. Holds the lock meanwhile.
  void for_each_block(void (*visit)(Block&, void*), void* context);
  // The slab, run or large object that begins at this unit, or nullptr.
  static Slab* run_at(Block& b, int unit);
  // Calls `visit(slab, context)` for each slab, run and large object. Holds the lock meanwhile.
  void for_each(void (*visit)(Slab*, void*), void* context);
  // And for each run of free units, told whether they may hold memory.
  void for_each_free(void (*visit)(const void* base, size_t bytes, bool dirty, void* context),
                     void* context);
  // Checks every invariant of block.h; debug builds and tests.
  void check();

  Lock& lock() LARDER_RETURNS(lock_) { return lock_; }
  // Of runs handed out from memory that may be there already, since the start: no page faults.
  uint64_t reused_bytes() const { return __atomic_load_n(&reused_bytes_, __ATOMIC_RELAXED); }

  static const PagesLayout layout;

 private:
  struct DirtyList {
    Block* head = nullptr;
    Block* tail = nullptr;
    std::atomic<size_t> count{0};
    void add(size_t n) {
      count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
  };

  Block* find_block(unsigned units, unsigned align_units, int* unit) LARDER_REQUIRES(lock_);
  Block* take_free_block() LARDER_REQUIRES(lock_);
  Slab* claim(Block* b, int unit, unsigned units, Kind kind) LARDER_REQUIRES(lock_);
  void set_free_units(Block* b, UnitSet units) LARDER_REQUIRES(lock_);
  void count_used(size_t more_units) LARDER_REQUIRES(lock_);
  void give_back(Block* b, UnitSet units, UnitSet dirty) LARDER_REQUIRES(lock_);
  void bucket_remove(Block* b) LARDER_REQUIRES(lock_);
  void bucket_insert(Block* b) LARDER_REQUIRES(lock_);
  void dirty_insert(Block* b) LARDER_REQUIRES(lock_);
  void dirty_remove(Block* b) LARDER_REQUIRES(lock_);
  DirtyList& dirty_list(const Block* b) { return b->wholly_free() ? dirty_whole_ : dirty_part_; }
  bool add_region(unsigned min_blocks) LARDER_REQUIRES(lock_);

  Lock lock_;
  Region* regions_ LARDER_GUARDED_BY(lock_) = nullptr;
  size_t blocks_ LARDER_GUARDED_BY(lock_) = 0;
  Block* buckets_[kUnitsPerBlock] LARDER_GUARDED_BY(lock_) = {};  // [longest], 1..127
  UnitSet bucket_bits_ LARDER_GUARDED_BY(lock_) = 0;              // which are not empty
  DirtyList dirty_whole_, dirty_part_;
  std::atomic<size_t> used_bytes_{0}, peak_bytes_{0};  // written under the lock
  uint64_t reused_bytes_ LARDER_GUARDED_BY(lock_) = 0;
};

extern PageHeap page_heap;

}  // namespace larder
