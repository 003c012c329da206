// What a thread's heap keeps for itself of the slabs and spans that it frees: methods of
// ThreadHeap.
//
// A heap keeps LARDER_HEAP_EMPTY_KIB of slabs and as much of spans. One that asks the page heap for
// what it gave back a moment ago keeps that, too, from then on (keep_more): each round trip takes a
// lock, and memory that has gone through another processor's cache. All heaps together keep
// kKeepExtraBytes more that way, and a heap gives up what it has not used for the decay time.
#include <atomic>
#include <utility>

#include "base/policy.h"
#include "base/stats.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/slab_span.h"
#include "core/thin.h"
#include "core/thread_heap.h"
#include "os/options.h"
#include "os/os.h"

namespace larder {

namespace {

constinit std::atomic<uint64_t> thin_paid_us{0};  // until when that time is spent

// LARDER_MAX_TOTAL_THREAD_CACHE_BYTES is shared out evenly: half of it among heaps, to which they
// are entitled, and what that leaves to those that turn over more.
size_t keep_limit() {
  if (unlikely(limit::pressed())) return 0;
  size_t limit = option(Option::kHeapEmptyKib) << 10;
  size_t total = option(Option::kMaxThreadCacheBytes);
  if (likely(total == 0)) return limit;
  size_t share = total / (4 * (1 + size_t(stats::get(stats::kHeaps))));
  return share < limit ? share : limit;
}

size_t keep_extra_limit() {
  size_t total = option(Option::kMaxThreadCacheBytes);
  return total == 0 ? kKeepExtraBytes : total / 2;
}

constinit std::atomic<size_t> all_keep_extra{0};

}  // namespace

void forget_kept_by_others() {
  ThreadHeap* heap = thread_state.heap;
  all_keep_extra.store(heap != nullptr ? heap->keep_extra : 0, std::memory_order_relaxed);
  int64_t kept = heap != nullptr ? int64_t(heap->told_kept) : 0;
  stats::add(stats::kHeapsKept, kept - stats::get(stats::kHeapsKept));
}

void start_thinning() { thin_paid_us.store(os::now_us(), std::memory_order_relaxed); }

void ThreadHeap::tell_kept() {
  size_t kept = kept_bytes();
  if (kept == told_kept) return;
  stats::add(stats::kHeapsKept, int64_t(kept) - int64_t(told_kept));
  told_kept = kept;
}

size_t ThreadHeap::beyond_option() const {
  size_t limit = keep_limit();
  return (empty_bytes > limit ? empty_bytes - limit : 0) +
         (kept_run_bytes > limit ? kept_run_bytes - limit : 0);
}

void ThreadHeap::keep_more(size_t bytes) {
  keep_unused = 0;
  if (given_back < bytes) return;
  given_back -= bytes;
  // Nobody but its thread can take what a heap keeps, and who asks for memory to go back while the
  // program sleeps wants it to go.
  if (shared || keep_limit() == 0 || option(Option::kBackgroundPurge) != 0) return;
  if (all_keep_extra.fetch_add(bytes, std::memory_order_relaxed) + bytes > keep_extra_limit())
    all_keep_extra.fetch_sub(bytes, std::memory_order_relaxed);
  else
    keep_extra += bytes;
}

void ThreadHeap::keep_less() {
  keep_extra_falls(keep_extra);
  given_back = 0;
}

void ThreadHeap::keep_extra_falls(size_t bytes) {
  if (bytes > keep_extra) bytes = keep_extra;
  if (bytes == 0) return;
  keep_extra -= bytes;
  all_keep_extra.fetch_sub(bytes, std::memory_order_relaxed);
}

// One more is kept. Now and then the heap gives up what it had no use for all the while; the
// largest first: fewer locks for as many bytes.
void ThreadHeap::count_kept() {
  if (++keep_events == 0 && os::now_ms() - keep_since_ms >= purge_decay_ms()) {
    keep_extra_falls(keep_unused);
    keep_unused = beyond_option();
    keep_since_ms = os::now_ms();
    given_back /= 2;
  }
  if (beyond_option() <= keep_extra) return;
  tell_kept();
  auto too_much = [this](size_t b) { return b > keep_limit() && beyond_option() > keep_extra; };
  for (unsigned pages = kKeptRunUnits; pages > 0; --pages) {
    while (too_much(kept_run_bytes) && kept_runs[pages] != nullptr) {
      Slab* s = pop_run(pages);
      given_back += s->bytes;
      large_free(s);
    }
  }
  for (int step = kSlabPageSteps; step-- > 0;) {
    while (too_much(empty_bytes) && !empties[step].empty()) {
      Slab* oldest = empties[step].back();
      empties[step].remove(oldest);
      empty_bytes -= slab_bytes(oldest);
      given_back += slab_bytes(oldest);
      slab_release(oldest);
    }
  }
}

void ThreadHeap::retire(Slab* s) {
  bins[s->size_class].partial.remove(s);
  empties[__builtin_ctz(s->pages)].push_front(s);
  empty_bytes += slab_bytes(s);
  emptied_bytes += slab_bytes(s);
  count_kept();
}

void ThreadHeap::unpark() {
  Slab* s = std::exchange(parked, nullptr);
  if (s == nullptr) return;
  if (s->mark != nullptr) mark_drop(std::exchange(s->mark, nullptr));
  s->kind = Kind::kSpan;
  if (!keep_run(s)) large_free(s);
}

bool ThreadHeap::keep_run(Slab* s) {
  if (s->pages > kKeptRunUnits) return false;
  kept_run_bytes += s->bytes;
  if (kept_run_bytes > keep_limit() && beyond_option() > keep_extra) {
    kept_run_bytes -= s->bytes;
    given_back += s->bytes;
    return false;
  }
  s->kind = Kind::kFree;
  s->next = kept_runs[s->pages];
  kept_runs[s->pages] = s;
  count_kept();
  return true;
}

Slab* ThreadHeap::pop_run(unsigned pages) {
  Slab* s = kept_runs[pages];
  if (s == nullptr) return nullptr;
  kept_runs[pages] = s->next;
  kept_run_bytes -= s->bytes;
  s->kind = Kind::kSpan;
  return s;
}

// One a quarter too long will do: what is kept for one size must not add to the peak for another.
Slab* ThreadHeap::take_run(unsigned pages) {
  for (unsigned u = pages; u <= pages + pages / kSpanFitShare && u <= kKeptRunUnits; ++u) {
    if (Slab* s = pop_run(u)) {
      note_taken();
      return s;
    }
  }
  return nullptr;
}

void ThreadHeap::note_taken() {
  size_t beyond = beyond_option();
  if (beyond < keep_unused) keep_unused = beyond;
}

void ThreadHeap::shrink() {
  if (emptied_bytes < kMuchEmptied) return;
  emptied_bytes = 0;
  if (release_rate() == 0) return;
  uint64_t now = os::now_us(), paid = thin_paid_us.load(std::memory_order_relaxed);
  uint64_t oldest = now - kThinMostUs * kThinShare;
  uint64_t since = paid < oldest ? oldest : paid;
  uint64_t credit = (now - since) / kThinShare;
  if (since > now || credit < kThinLeastUs ||
      !thin_paid_us.compare_exchange_strong(paid, now, std::memory_order_relaxed))
    return;
  thin(now + credit);
  uint64_t spent = os::now_us() - now;
  thin_paid_us.fetch_add((spent - credit) * kThinShare, std::memory_order_relaxed);
}

void ThreadHeap::thin(uint64_t end_us) {
  unsigned looks = 0;
  for (int i = 0; i < kClasses; ++i) {
    // Larger classes first: more pages an object.
    thin_class = (thin_class + kClasses - 1) % kClasses;
    SlabList& list = bins[thin_class].partial;
    // To the back: what is used next had better be what is still there.
    for (size_t left = list.size(); left > 0; --left) {
      Slab* s = list.pop_front();
      slab_thin(s);
      list.push_back(s);
      if (++looks % 16 == 0 && os::now_us() >= end_us) {
        ++thin_class;
        return;
      }
    }
  }
}

size_t ThreadHeap::trim() {
  // Parked or kept, it goes.
  size_t bytes = kept_run_bytes + (parked != nullptr ? parked->bytes : 0);
  settle();
  for (unsigned pages = 1; pages <= kKeptRunUnits; ++pages)
    while (Slab* s = pop_run(pages)) large_free(s);
  for (SlabList& list : empties) {
    while (Slab* s = list.pop_front()) {
      bytes += slab_bytes(s);
      slab_release(s);
    }
  }
  empty_bytes = 0;
  tell_kept();
  return bytes;
}

// An empty slab of the same class comes with its list; one of the same size is carved anew. So is
// one whose objects have cache lines of their own: following them in the order of their frees costs
// more than linking them in that of memory, which the processor fetches ahead.
Slab* ThreadHeap::kept_empty(int c) {
  SlabList& list = empties[__builtin_ctz(kSizeClasses.pages[c])];
  Slab* s = list.front();
  if (s == nullptr) return nullptr;
  Slab* same = s;
  for (int looks = 4; same != nullptr && same->size_class != c && looks > 0; --looks)
    same = same->next;
  if (same != nullptr && same->size_class == c) s = same;
  list.remove(s);
  empty_bytes -= slab_bytes(s);
  note_taken();
  uint32_t size = kSizeClasses.size[c];
  bool own_lines = size > 64 && size <= 1024;
  if (s->size_class != c || own_lines || s->thinned_at != 0) slab_reset(s, c);
  return s;
}

}  // namespace larder
