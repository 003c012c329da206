#include "purge.h"

#include "large.h"
#include "options.h"
#include "page_heap.h"

namespace larder {

namespace {

constexpr uint64_t kTickMs = 100;
constinit std::atomic<uint64_t> next_tick_ms{0};

// Discards the units of a job run by run. All or nothing counts as zero afterwards.
bool discard(const PurgeJob& job, size_t* discarded_bytes) {
  // With pages larger than a unit, a unit cannot be discarded without its neighbours.
  size_t page = os::page_size();
  bool all = true;
  for (UnitSet rest = job.units; rest != 0;) {
    int first = first_unit(rest);
    int count = run_length_at(rest, first);
    rest &= ~unit_range(first, count);
    uintptr_t begin = uintptr_t(job.block->base) + size_t(first) * kUnit;
    uintptr_t end = begin + size_t(count) * kUnit;
    uintptr_t from = round_up(begin, page), to = round_down(end, page);
    if (from >= to || !os::discard(reinterpret_cast<void*>(from), to - from))
      all = false;
    else
      *discarded_bytes += to - from;
    all = all && from == begin && to == end;
  }
  return all;
}

size_t purge_until(uint64_t deadline_ms, size_t budget_bytes) {
  size_t bytes = 0;
  PurgeJob job;
  // A block that cannot be discarded is not tried again in the same pass.
  uint64_t started_ms = os::now_ms();
  for (size_t jobs = 0; bytes < budget_bytes && page_heap.take_for_purge(deadline_ms, &job);
       ++jobs) {
    bool ok = discard(job, &bytes);
    page_heap.finish_purge(job, ok);
    if (!ok && deadline_ms >= started_ms) break;
  }
  return bytes;
}

}  // namespace

void purge_tick() {
  if (!page_heap.has_dirty() && !large_has_kept()) return;
  uint64_t now = os::now_ms();
  uint64_t due = next_tick_ms.load(std::memory_order_relaxed);
  if (now < due) return;
  if (!next_tick_ms.compare_exchange_strong(due, now + kTickMs, std::memory_order_relaxed)) return;
  uint64_t decay = option(Option::kPurgeDecayMs);
  uint64_t deadline = now > decay ? now - decay : 0;
  large_release_kept(deadline);
  purge_until(deadline, option(Option::kPurgeMibPerTick) << 20);
}

size_t purge_all() { return large_release_kept(UINT64_MAX) + purge_until(UINT64_MAX, SIZE_MAX); }

bool reclaim_address_space() {
  return large_release_kept(UINT64_MAX) + page_heap.release_regions() != 0;
}

}  // namespace larder
