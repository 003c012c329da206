#include "core/page_heap.h"

#include "base/layout.h"
#include "core/limit.h"
#include "core/page_map.h"
#include "core/source.h"

namespace larder {

constinit PageHeap page_heap;

namespace {

// The units at which a run may start so that it is aligned.
constexpr UnitSet aligned_units(unsigned align_units) {
  UnitSet set = 1;
  for (unsigned step = kUnitsPerBlock / 2; step >= align_units && step > 0; step /= 2)
    set |= set << step;
  return set;
}

int unit_index(const Slab* s) { return int((uintptr_t(s->base) >> kUnitShift) % kUnitsPerBlock); }

UnitSet units_of_bytes(int first, unsigned units, size_t bytes) {
  size_t n = (bytes + kUnit - 1) / kUnit;
  return unit_range(first, int(n < units ? n : units));
}

}  // namespace

constinit const PagesLayout PageHeap::layout = {
    .first_region = static_cast<const void*>(&page_heap.regions_),
    .reused_bytes = &page_heap.reused_bytes_,
    .region_bytes = sizeof(Region),
    .region_next = offsetof(Region, next),
    .region_base = offsetof(Region, base),
    .region_blocks = offsetof(Region, blocks),
    .region_count = offsetof(Region, count),
    .shared_table_blocks = kSharedTableBlocks,
    .block_bytes = sizeof(Block),
    .block_free = offsetof(Block, free_units),
    .block_dirty = offsetof(Block, dirty),
    .slab_bytes = sizeof(Slab),
    .slab_owner = offsetof(Slab, owner_),
    .slab_list = offsetof(Slab, list),
    .slab_free = offsetof(Slab, free),
    .slab_used = offsetof(Slab, used),
    .slab_capacity = offsetof(Slab, capacity),
    .slab_class = offsetof(Slab, size_class),
    .slab_kind = offsetof(Slab, kind),
    .slab_base = offsetof(Slab, base),
    .slab_carved = offsetof(Slab, carved),
    .slab_thinned = offsetof(Slab, thinned_at),
    .slab_units = offsetof(Slab, units),
    .slab_run_bytes = offsetof(Slab, bytes),
    .slab_offset = offsetof(Slab, offset),
    .slab_prev = offsetof(Slab, prev),
    .slab_remote = offsetof(Slab, remote),
    .slab_gone = offsetof(Slab, gone),
    .slab_mark = offsetof(Slab, mark)};

// --- buckets and lists

void PageHeap::bucket_remove(Block* b) {
  if (b->longest == 0 || b->longest == kUnitsPerBlock) return;
  (b->prev != nullptr ? b->prev->next : buckets_[b->longest]) = b->next;
  if (b->next != nullptr) b->next->prev = b->prev;
  if (buckets_[b->longest] == nullptr) bucket_bits_ &= ~(UnitSet{1} << b->longest);
}

void PageHeap::bucket_insert(Block* b) {
  if (b->longest == 0 || b->longest == kUnitsPerBlock) return;
  b->prev = nullptr;
  b->next = buckets_[b->longest];
  if (b->next != nullptr) b->next->prev = b;
  buckets_[b->longest] = b;
  bucket_bits_ |= UnitSet{1} << b->longest;
}

void PageHeap::dirty_insert(Block* b) {
  DirtyList& list = dirty_list(b);
  b->dirty_next = nullptr;
  b->dirty_prev = list.tail;
  (list.tail != nullptr ? list.tail->dirty_next : list.head) = b;
  list.tail = b;
  b->in_dirty_list = true;
  list.add(1);
}

void PageHeap::dirty_remove(Block* b) {
  DirtyList& list = dirty_list(b);
  (b->dirty_prev != nullptr ? b->dirty_prev->dirty_next : list.head) = b->dirty_next;
  (b->dirty_next != nullptr ? b->dirty_next->dirty_prev : list.tail) = b->dirty_prev;
  b->in_dirty_list = false;
  list.add(size_t(-1));
}

void PageHeap::count_used(size_t more_units) {
  size_t used = used_bytes() + more_units * kUnit;
  used_bytes_.store(used, std::memory_order_relaxed);
  if (used > peak_bytes()) peak_bytes_.store(used, std::memory_order_relaxed);
}

// The one place where free_units changes: keeps buckets, regions, dirty lists and what is held in
// step.
void PageHeap::set_free_units(Block* b, UnitSet units) {
  int more_clean = count_units(units & ~b->dirty) - count_units(b->free_units & ~b->dirty);
  limit::count_clean(int64_t(more_clean) * int64_t(kUnit));
  bucket_remove(b);
  if (b->in_dirty_list) dirty_remove(b);
  b->free_units = units;
  b->longest = uint8_t(longest_run(units));
  uint64_t bit = uint64_t{1} << b->index();
  if (b->wholly_free())
    b->region->free_blocks |= bit;
  else
    b->region->free_blocks &= ~bit;
  bucket_insert(b);
  if ((units & b->dirty) != 0) dirty_insert(b);
}

void PageHeap::give_back(Block* b, UnitSet units, UnitSet dirty) {
  LARDER_CHECK((b->free_units & units) == 0);
  if (dirty != 0) {
    b->last_free_ms = os::now_ms();
    if ((b->free_units & b->dirty) == 0) b->dirty_since_ms = b->last_free_ms;
    b->dirty |= dirty;
  }
  set_free_units(b, b->free_units | units);
}

// --- finding

bool PageHeap::add_region(unsigned min_blocks) {
  Region* r = source_region(min_blocks, blocks_);
  if (r == nullptr) return false;
  for (unsigned i = 0; i < r->count; ++i) {
    Block& b = r->blocks[i];
    b.region = r;
    b.slabs = reinterpret_cast<Slab*>(r->blocks + r->count) + size_t{i} * kUnitsPerBlock;
    b.base = r->base + i * kBlock;
    b.free_units = kAllUnits;
    b.longest = kUnitsPerBlock;
  }
  limit::count_clean(int64_t(r->count * kBlock));
  blocks_ += r->count;
  r->next = regions_;
  regions_ = r;
  return true;
}

// A warm block before a cold one: its pages are there already.
Block* PageHeap::take_free_block() {
  if (dirty_whole_.tail != nullptr) return dirty_whole_.tail;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Region* r = regions_; r != nullptr; r = r->next)
      if (r->free_blocks != 0) return &r->blocks[__builtin_ctzll(r->free_blocks)];
    if (!add_region(1)) return nullptr;
  }
  return nullptr;
}

// Warm units before cold ones, wherever they are: a page fault costs more than any search here.
Block* PageHeap::find_block(unsigned units, unsigned align_units, int* unit) {
  UnitSet may_start = aligned_units(align_units);
  UnitSet buckets = units >= kUnitsPerBlock ? 0 : bucket_bits_ & (kAllUnits << units);
  Block* cold = nullptr;
  int looks = 8;
  while (buckets != 0 && (looks > 0 || cold == nullptr)) {
    int longest = first_unit(buckets);
    buckets &= buckets - 1;
    // Unaligned requests fit in every block of the bucket; aligned ones look at a few.
    if (cold == nullptr) looks = 8;
    for (Block* b = buckets_[longest]; b != nullptr && looks > 0; b = b->next, --looks) {
      UnitSet warm = starts_of_runs(b->free_units & b->dirty, int(units)) & may_start;
      if (warm != 0) {
        *unit = first_unit(warm);
        return b;
      }
      if (cold != nullptr) continue;
      UnitSet starts = starts_of_runs(b->free_units, int(units)) & may_start;
      if (starts == 0) continue;
      *unit = first_unit(starts);
      cold = b;
    }
  }
  if (cold != nullptr && dirty_whole_.tail == nullptr) return cold;
  *unit = 0;
  return take_free_block();
}

Slab* PageHeap::claim(Block* b, int unit, unsigned units, Kind kind) {
  UnitSet taken = unit_range(unit, int(units));
  LARDER_CHECK((b->free_units & taken) == taken);
  Slab* s = &b->slabs[unit];
  s->set_owner(kNobody);
  s->kind = kind;
  s->base = b->base + size_t(unit) * kUnit;
  s->block = b;
  s->units = units;
  s->bytes = units * kUnit;
  s->offset = 0;
  s->zero = (b->dirty & taken) == 0;
  reused_bytes_ += size_t(count_units(b->dirty & taken)) * kUnit;
  page_map.set(s->base, units, s);
  count_used(units);
  set_free_units(b, b->free_units & ~taken);
  return s;
}

// --- runs

Slab* PageHeap::alloc_run(unsigned units, unsigned align_units, Kind kind) {
  LockGuard guard(lock_);
  int unit = 0;
  Block* b = find_block(units, align_units, &unit);
  if (b == nullptr) return nullptr;
  int clean = count_units(unit_range(unit, int(units)) & ~b->dirty);
  if (clean != 0 && !limit::allows(size_t(clean) * kUnit)) return nullptr;
  return claim(b, unit, units, kind);
}

void PageHeap::free_run(Slab* run, size_t touched_bytes) {
  LockGuard guard(lock_);
  int unit = unit_index(run);
  UnitSet units = unit_range(unit, int(run->units));
  UnitSet touched = units_of_bytes(unit, run->units, touched_bytes);
  run->kind = Kind::kFree;
  run->set_owner(kNobody);
  count_used(-size_t{run->units});
  give_back(run->block, units, touched);
}

bool PageHeap::extend_run(Slab* run, unsigned new_units) {
  LockGuard guard(lock_);
  int unit = unit_index(run);
  if (unit + int(new_units) > kUnitsPerBlock) return false;
  Block* b = run->block;
  UnitSet more = unit_range(unit + int(run->units), int(new_units - run->units));
  if ((b->free_units & more) != more || !limit::allows(size_t(count_units(more)) * kUnit))
    return false;
  page_map.set(run->base + run->bytes, new_units - run->units, run);
  count_used(new_units - run->units);
  run->units = new_units;
  run->bytes = new_units * kUnit;
  run->zero = false;
  set_free_units(b, b->free_units & ~more);
  return true;
}

void PageHeap::shrink_run(Slab* run, unsigned new_units) {
  LockGuard guard(lock_);
  UnitSet tail = unit_range(unit_index(run) + int(new_units), int(run->units - new_units));
  count_used(size_t{new_units} - run->units);
  run->units = new_units;
  run->bytes = new_units * kUnit;
  give_back(run->block, tail, tail);
}

// --- purge

bool PageHeap::take_for_purge(uint64_t deadline_ms, uint64_t pass, PurgeJob* job) {
  LockGuard guard(lock_);
  for (DirtyList* list : {&dirty_whole_, &dirty_part_}) {
    for (Block* b = list->head; b != nullptr; b = b->dirty_next) {
      // A block in steady use is purged all the same once its oldest free unit is four times as
      // old as the decay asks: an unending trickle of frees must not keep all of it.
      bool idle = b->last_free_ms <= deadline_ms;
      bool stale = b->dirty_since_ms + 3 * (os::now_ms() - deadline_ms) <= deadline_ms;
      if (b->purging || b->purge_pass == pass || !(idle || stale)) continue;
      job->block = b;
      job->units = b->free_units & b->dirty;
      b->purging = true;
      b->purge_pass = pass;
      set_free_units(b, b->free_units & ~job->units);
      return true;
    }
  }
  return false;
}

void PageHeap::finish_purge(const PurgeJob& job, UnitSet discarded) {
  LockGuard guard(lock_);
  Block* b = job.block;
  b->purging = false;
  b->dirty &= ~discarded;
  b->dirty_since_ms = b->last_free_ms = os::now_ms();
  set_free_units(b, b->free_units | job.units);
}

size_t PageHeap::dirty_bytes() const {
  size_t blocks = __atomic_load_n(&blocks_, __ATOMIC_RELAXED);
  size_t rest = used_bytes() + limit::state.clean_bytes.load(std::memory_order_relaxed);
  return blocks * kBlock > rest ? blocks * kBlock - rest : 0;
}

size_t PageHeap::release_regions() {
  LockGuard guard(lock_);
  size_t bytes = 0;
  for (Region** link = &regions_; *link != nullptr;) {
    Region* r = *link;
    if (r->free_blocks == block_bits(r->count)) {
      for (unsigned i = 0; i < r->count; ++i)
        if (r->blocks[i].in_dirty_list) dirty_remove(&r->blocks[i]);
      Region* following = r->next;
      unsigned count = r->count;
      int dirty = 0;
      for (unsigned i = 0; i < count; ++i) dirty += count_units(r->blocks[i].dirty);
      if (source_release(r)) {
        limit::count_clean(int64_t(size_t(dirty) * kUnit) - int64_t(count * kBlock));
        *link = following;
        blocks_ -= count;
        bytes += count * kBlock;
        continue;
      }
      for (unsigned i = 0; i < r->count; ++i)
        if (r->blocks[i].dirty != 0) dirty_insert(&r->blocks[i]);
    }
    link = &r->next;
  }
  return bytes;
}

// --- looking at everything

PageHeap::Totals PageHeap::totals() {
  LockGuard guard(lock_);
  Totals t = {};
  for (Region* r = regions_; r != nullptr; r = r->next) {
    t.region_bytes += r->count * kBlock;
    for (unsigned i = 0; i < r->count; ++i) {
      const Block& b = r->blocks[i];
      t.free_bytes += size_t(count_units(b.free_units)) * kUnit;
      t.dirty_free_bytes += size_t(count_units(b.free_units & b.dirty)) * kUnit;
    }
  }
  return t;
}

Slab* PageHeap::run_at(Block& b, int unit) {
  Slab* s = &b.slabs[unit];
  bool in_use = (b.free_units >> unit & 1) == 0 && s->base == b.base + size_t(unit) * kUnit &&
                s->kind != Kind::kNull && s->kind != Kind::kFree;
  return in_use ? s : nullptr;
}

void PageHeap::for_each_block(void (*visit)(Block&, void*), void* context) {
  LockGuard guard(lock_);
  for (Region* r = regions_; r != nullptr; r = r->next)
    for (unsigned i = 0; i < r->count; ++i) visit(r->blocks[i], context);
}

void PageHeap::for_each(void (*visit)(Slab*, void*), void* context) {
  struct Visit {
    void (*visit)(Slab*, void*);
    void* context;
  } each = {visit, context};
  auto visit_block = [](Block& b, void* to) {
    for (int unit = 0; unit < kUnitsPerBlock;) {
      Slab* s = run_at(b, unit);
      if (s != nullptr) static_cast<Visit*>(to)->visit(s, static_cast<Visit*>(to)->context);
      unit += s != nullptr ? int(s->units) : 1;
    }
  };
  for_each_block(visit_block, &each);
}

void PageHeap::for_each_free(void (*visit)(const void*, size_t, bool, void*), void* context) {
  LockGuard guard(lock_);
  for (Region* r = regions_; r != nullptr; r = r->next) {
    for (unsigned i = 0; i < r->count; ++i) {
      const Block& b = r->blocks[i];
      for (UnitSet set : {b.free_units & b.dirty, b.free_units & ~b.dirty}) {
        for (UnitSet rest = set; rest != 0;) {
          int first = first_unit(rest);
          int count = run_length_at(rest, first);
          rest &= ~unit_range(first, count);
          visit(b.base + size_t(first) * kUnit, size_t(count) * kUnit, (set & b.dirty) != 0,
                context);
        }
      }
    }
  }
}

void PageHeap::check() {
  LockGuard guard(lock_);
  size_t dirty_blocks = 0;
  size_t free_units = 0, clean_units = 0;
  for (Region* r = regions_; r != nullptr; r = r->next) {
    for (unsigned i = 0; i < r->count; ++i) {
      const Block& b = r->blocks[i];
      LARDER_CHECK(b.longest == longest_run(b.free_units));
      LARDER_CHECK((r->free_blocks >> i & 1) == (b.wholly_free() ? 1u : 0u));
      LARDER_CHECK(b.in_dirty_list == ((b.free_units & b.dirty) != 0));
      dirty_blocks += b.in_dirty_list ? 1 : 0;
      free_units += size_t(count_units(b.free_units));
      clean_units += size_t(count_units(b.free_units & ~b.dirty));
    }
  }
  for (int length = 1; length < kUnitsPerBlock; ++length) {
    LARDER_CHECK((buckets_[length] != nullptr) == ((bucket_bits_ >> length & 1) != 0));
    for (Block* b = buckets_[length]; b != nullptr; b = b->next) LARDER_CHECK(b->longest == length);
  }
  LARDER_CHECK(dirty_blocks == dirty_whole_.count + dirty_part_.count);
  LARDER_CHECK(this != &page_heap || limit::state.clean_bytes == clean_units * kUnit);
  LARDER_CHECK(used_bytes_ == (blocks_ * kUnitsPerBlock - free_units) * kUnit);
}

}  // namespace larder
