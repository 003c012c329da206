#include "core/purge.h"

#include <pthread.h>
#include <signal.h>

#include "base/policy.h"
#include "base/stats.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/page_heap.h"
#include "os/backing.h"
#include "os/options.h"

namespace larder {

namespace {

// Relaxed: a compare-and-swap elects one thread, whose work is under locks.
constinit std::atomic<uint64_t> next_tick_ms{0};

constinit std::atomic<uint64_t> last_pass{0};  // relaxed: a number for each pass

// Discards the pages of a job, span by span. Returns those that were discarded whole.
PageSet discard(const PurgeJob& job, size_t* discarded_bytes) {
  // With system pages larger than a page, a page at the edge cannot be discarded alone.
  size_t system_page = os::page_size();
  if (job.forbid_huge) backing::forbid_huge_pages(job.segment->base, kSegmentBytes);
  PageSet discarded = 0;
  for (PageSet rest = job.pages; rest != 0;) {
    int first = first_page(rest);
    int count = span_length_at(rest, first);
    rest &= ~page_range(first, count);
    uintptr_t begin = uintptr_t(job.segment->base) + size_t(first) * kPageBytes;
    uintptr_t from = round_up(begin, system_page);
    uintptr_t to = round_down(begin + size_t(count) * kPageBytes, system_page);
    if (from >= to || !backing::discard(reinterpret_cast<void*>(from), to - from)) continue;
    discarded |=
        page_range(first + int((from - begin) / kPageBytes), int((to - from) / kPageBytes));
    *discarded_bytes += to - from;
  }
  return discarded;
}

size_t purge_until(uint64_t deadline_ms, size_t budget_bytes) {
  uint64_t pass = last_pass.fetch_add(1, std::memory_order_relaxed) + 1;
  size_t bytes = 0;
  PurgeJob job;
  while (bytes < budget_bytes && page_heap.take_for_purge(deadline_ms, pass, &job))
    page_heap.finish_purge(job, discard(job, &bytes));
  return bytes;
}

// What is purged without waiting for the decay. Relaxed: races make the numbers slightly wrong, and
// the bound is one of time, not of safety.
struct Early {
  std::atomic<uint64_t> last_ms{0}, refused_ms{0};
  std::atomic<size_t> allowed{0}, granted{0}, most_in_use{0};
  std::atomic<unsigned> count{0};
};
constinit Early early;

size_t in_use_bytes() { return page_heap.used_bytes() + large_used_bytes(); }

// Raises the most that was in use, and returns it.
size_t most_in_use() {
  size_t now = in_use_bytes(), most = early.most_in_use.load(std::memory_order_relaxed);
  if (now > most) early.most_in_use.store(most = now, std::memory_order_relaxed);
  return most;
}

// Beside what time allows, the first `grant` bytes of the peak are allowed once.
LARDER_SLOW bool may_purge_early(uint64_t now, size_t bytes, size_t grant) {
  if (option(Option::kEarlyPurge) == 0) return false;
  size_t most = most_in_use();
  if (bytes > most) bytes = most;
  if (grant > most) grant = most;
  size_t allowed = early.allowed.load(std::memory_order_relaxed);
  size_t granted = early.granted.load(std::memory_order_relaxed);
  if (grant > granted) {
    early.granted.store(grant, std::memory_order_relaxed);
    allowed += grant - granted;
  }
  allowed += (now - early.last_ms.exchange(now, std::memory_order_relaxed)) * kEarlyBytesPerMs;
  if (allowed > most) allowed = most;
  bool may = allowed >= bytes;
  early.allowed.store(may ? allowed - bytes : allowed, std::memory_order_relaxed);
  return may;
}

// A process that uses hardly anything may not call again, so its free memory does not wait for the
// decay.
bool may_purge_at_rest(uint64_t now, size_t at_least, size_t grant) {
  auto cached = size_t(stats::get(stats::kHeapsCachedBytes));
  if (in_use_bytes() > kNearlyEmptyBytes + cached) return false;
  size_t unused = page_heap.dirty_whole_bytes() + large_cached_bytes() + cached;
  if (unused < at_least || !may_purge_early(now, unused, grant)) return false;
  early.count.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Threads come in waves that reuse it, so while there are several they are granted nothing.
void purge_at_rest(uint64_t now) {
  size_t grant = stats::get(stats::kHeaps) <= kEarlyMaxThreads ? SIZE_MAX : 0;
  if (may_purge_at_rest(now, kEarlyMinBytes, grant)) purge_all();
}

constinit std::atomic<uint64_t> next_pressed_ms{0};  // relaxed, as next_tick_ms

LARDER_SLOW void purge_pressed(uint64_t now) {
  uint64_t due = next_pressed_ms.load(std::memory_order_relaxed);
  if (now < due && page_heap.dirty_bytes() + large_cached_bytes() < kPressedBytes) return;
  if (!next_pressed_ms.compare_exchange_strong(due, now + kPressedTickMs,
                                               std::memory_order_relaxed))
    return;
  purge_to_limit();
}

bool has_work() { return page_heap.has_dirty() || large_has_cached(); }

// 1 while the background thread waits for work. Relaxed: a thread that misses that leaves it to the
// next free.
constinit std::atomic<uint32_t> asleep{0};

uint32_t* futex(std::atomic<uint32_t>& word) { return reinterpret_cast<uint32_t*>(&word); }

LARDER_SLOW void wake_background() {
  if (asleep.exchange(0, std::memory_order_seq_cst) != 0) os::wake_one(futex(asleep));
}

void* purge_in_background(void*) {
  for (;;) {
    asleep.store(1, std::memory_order_seq_cst);
    if (!has_work()) os::wait(futex(asleep), 1);
    asleep.store(0, std::memory_order_relaxed);
    os::sleep_ms(unsigned(kTickMs));
    purge_tick();
  }
  return nullptr;
}

}  // namespace

void purge_start() {
  early.last_ms.store(os::now_ms(), std::memory_order_relaxed);
  if (option(Option::kBackgroundPurge) == 0) return;
  // A thread inherits the signal mask. Signals are the program's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, purge_in_background, nullptr) != 0) {
      static constexpr char kText[] = "larder: LARDER_BACKGROUND_PURGE=1: no thread can be made\n";
      os::write_stderr(kText, sizeof kText - 1);
    }
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void purge_wake() {
  if (unlikely(asleep.load(std::memory_order_relaxed) != 0)) wake_background();
}

void purge_tick() {
  double rate = release_rate();
  bool pressed = limit::pressed();
  if (likely(!pressed) && (!has_work() || rate == 0)) return;
  purge_wake();
  uint64_t now = os::now_ms();
  if (unlikely(pressed)) {
    purge_pressed(now);
    if (!has_work() || rate == 0) return;
  }
  purge_at_rest(now);
  uint64_t due = next_tick_ms.load(std::memory_order_relaxed);
  if (now < due) return;
  if (!next_tick_ms.compare_exchange_strong(due, now + kTickMs, std::memory_order_relaxed)) return;
  uint64_t decay = purge_decay_ms();
  uint64_t deadline = now > decay ? now - decay : 0;
  large_release_cached(SIZE_MAX, deadline);
  purge_until(deadline, size_t(double(option(Option::kPurgeMibPerTick) << 20) * rate));
}

void purge_for_growth() {
  size_t most = most_in_use();
  size_t held = page_heap.used_bytes() + page_heap.dirty_bytes() +
                size_t(stats::get(stats::kHugeBytes)) + large_cached_bytes();
  if (likely(held < most + most / kGrowthPart + kGrowthBytes) || release_rate() == 0) return;
  uint64_t now = os::now_ms();
  if (now == early.refused_ms.load(std::memory_order_relaxed)) return;
  if (may_purge_early(now, held - most, 0))
    purge_bytes(held - most, now);
  else
    early.refused_ms.store(now, std::memory_order_relaxed);
}

bool may_purge_after_threads() {
  return release_rate() != 0 &&
         may_purge_at_rest(os::now_ms(), kAfterThreadsMinBytes, kAfterThreadsGrant);
}

unsigned purge_early_count() { return early.count.load(std::memory_order_relaxed); }

size_t purge_all() {
  return large_release_cached(SIZE_MAX, UINT64_MAX) + purge_until(UINT64_MAX, SIZE_MAX);
}

void purge_to_limit() {
  size_t lowest = limit::lowest(), wanted = lowest - lowest / kPressedShare;
  size_t held = limit::held_bytes();
  if (lowest != 0 && held > wanted) purge_bytes(held - wanted);
  if (lowest == 0 || limit::held_bytes() <= wanted) limit::relax();
}

size_t purge_passes() { return last_pass.load(std::memory_order_relaxed); }

size_t purge_bytes(size_t bytes, uint64_t deadline_ms) {
  size_t whole = page_heap.dirty_whole_bytes();
  size_t purged = whole != 0 ? purge_until(deadline_ms, whole < bytes ? whole : bytes) : 0;
  if (purged < bytes) purged += large_release_cached(bytes - purged, deadline_ms);
  if (purged < bytes) purged += purge_until(deadline_ms, bytes - purged);
  return purged;
}

bool release_address_space() {
  return large_release_cached(SIZE_MAX, UINT64_MAX) + page_heap.release_regions() != 0;
}

}  // namespace larder
