#include "core/thread_heap.h"

#include <atomic>
#include <utility>

#include "base/policy.h"
#include "base/single_threaded.h"
#include "core/central.h"
#include "core/check.h"
#include "core/purge.h"
#include "core/purge_slab.h"
#include "core/slab_span.h"
#include "os/options.h"
#include "os/os.h"

namespace larder {

constinit thread_local ThreadState thread_state;
constinit bool torn_by_fork = false;

uint32_t thread_id() {
  static constinit std::atomic<uint32_t> last{0};  // relaxed: only that they differ matters
  while (unlikely(thread_state.id == 0))
    thread_state.id = (last.fetch_add(1, std::memory_order_relaxed) + 1) & (UINT32_MAX >> 1);
  return thread_state.id;
}

// --- a slab's life: current, partial, full, disowned

namespace {

// REQUIRES: s is not current. Decommitted objects count.
size_t free_bytes(const Slab* s) {
  return size_t{s->carved - s->used} * kSizeClasses.size[s->size_class];
}

}  // namespace

// Returns the first object of the list; the rest becomes heads[c].
void* ThreadHeap::serve(int c, void* list) {
  heads[c] = next_of(list);
  clear_link(list);
  return list;
}

// Like serve, for up to `bytes` of new free objects, some of which may get sample points.
void* ThreadHeap::hand_out(int c, void* list, size_t bytes) {
  if (unlikely(countdown.bytes < bytes)) return hand_out_sampled(c, list, bytes);
  countdown.bytes -= bytes;
  return serve(c, list);
}

// Makes the slab current and returns its free objects, which the caller serves.
void* ThreadHeap::attach(int c, Slab* s) {
  LARDER_ASSERT(heads[c] == nullptr);
  if (unlikely(s->purged_at != 0)) slab_recommit(s);
  Bin& bin = bins[c];
  if (bin.idle_adoptions != 0) --bin.idle_adoptions;
  void* list = s->free;
  bin.current = s;
  s->free = nullptr;
  s->list = &heads[c];
  s->used += kCurrentBias;
  return list;
}

void ThreadHeap::join_partial(Slab* s) {
  // First in, first out: it gathers more free objects before it is used. A heap that shrinks has
  // more of these than it uses, and uses the same few.
  SlabList& list = bins[s->size_class].partial;
  is_shrinking() ? list.push_front(s) : list.push_back(s);
  with_partial.insert(s->size_class);
}

// REQUIRES: heads[c] is empty.
void ThreadHeap::put_current_away(int c) {
  Slab* s = std::exchange(bins[c].current, nullptr);
  if (s == nullptr) return;
  s->list = &s->free;
  if (s->carved < s->capacity) {
    s->used = s->carved;
    return join_partial(s);
  }
  full.push_back(s);
  while (full.beyond_bound()) disown_oldest_full();
}

void ThreadHeap::disown_oldest_full() {
  Slab* s = full.slabs.front();
  full.remove(s);
  if (s->free == nullptr) {
    s->set_owner(kUnowned);
    if (remote_release(s, kFull)) return;
    s->set_owner(this);
  }
  join_partial(s);  // other threads or a signal handler freed into it
}

void ThreadHeap::push_local(Slab* s, void* p) {
  Link* list = s->list;
  set_next(p, *list);
  *list = p;
  if (--s->used == 0) emptied(s);
}

bool ThreadHeap::reopened(Slab* s) {
  // A current slab gets here after 2^30 frees.
  if (is_current(s)) {
    s->used = kCurrentBias;
    return true;
  }
  // The first free in a slab of the full list.
  bool was_full = s->carved == s->capacity && s->purged_at == 0 && next_of(s->free) == nullptr;
  if (was_full) {
    full.remove(s);
    join_partial(s);
  }
  return was_full;
}

bool ThreadHeap::emptied(Slab* s) {
  if (reopened(s)) return false;
  cache_empty_slab(s);
  return true;
}

bool ThreadHeap::defer_free(Slab* s, void* p) {
  int c = s->size_class;
  Bin& bin = bins[c];
  // A heap that does not allocate the class would not use the object. Two frees in a row in one
  // slab make it worth adopting.
  bool useful = bin.current != nullptr && bin.last_deferred_slab != s;
  if (!useful || bin.deferred >= kSizeClasses.max_deferred[c]) return false;
  if (bin.deferred++ == 0) with_deferred.insert(c);
  bin.last_deferred_slab = s;
  set_next(p, heads[c]);
  heads[c] = p;
  return true;
}

void ThreadHeap::release_deferred(int c) {
  release_inlined(c);
  with_deferred.remove(c);
  Bin& bin = bins[c];
  if (bin.deferred == 0 || bin.deferred == kDeferNoMore) return;
  bin.deferred = kDeferNoMore;
  thread_state.last = ThreadState::kNoLast;
  // Points stay on slots that stay in the list.
  SamplePoint* point = std::exchange(bin.sample_points, nullptr);
  SamplePoint** points = &bin.sample_points;
  ObjectList remaining;
  for (void* list = std::exchange(heads[c], nullptr);;) {
    while (void* p = list) {
      list = next_of(p);
      Slab* s = page_map.find(p);
      if (s == bin.current) {
        remaining.append(p);
      } else {
        remote_push(this, s, {p, p, 1});
      }
    }
    if (point == nullptr) break;
    SamplePoint* following = point->next;
    list = point->slot;
    if (page_map.find(list) == bin.current) {
      // The list of what precedes it has ended; its own begins.
      void* slot = list;
      list = next_of(slot);
      remaining.restart_behind(slot);
      point->next = nullptr;
      *points = point;
      points = &point->next;
    } else {
      sample_point_drop(point);
    }
    point = following;
  }
  heads[c] = remaining.first();
}

void ThreadHeap::release_some_deferred() {
  ClassSet todo = inlined != nullptr ? page_range(0, kClasses) : with_deferred.set;
  for (int i = 0; i < kReleasedClasses && todo != 0; ++i) {
    int c = with_deferred.turn_to(todo);
    release_deferred(c);
    todo &= ~(ClassSet{1} << c);
  }
}

void ThreadHeap::release_all_deferred() {
  for (int c = 0; c < kClasses; ++c) release_deferred(c);
}

void ThreadHeap::adopt(Slab* s) {
  // `last` may have been an object of this slab, when that had another class.
  thread_state.last = ThreadState::kNoLast;
  s->list = &s->free;
  s->free = nullptr;
  s->used = s->carved;
  s->set_owner(this);
  Bin& bin = bins[s->size_class];
  bin.partial.push_back(s);
  with_partial.insert(s->size_class);
  if (bin.idle_adoptions < kIdleAdoptions)
    ++bin.idle_adoptions;
  else if (bin.partial.size() > kIdleAdoptions && !single_threaded())
    disown(bin.partial.pop_front());
}

void ThreadHeap::adopt_to_central(Slab* s, const Chain& chain) {
  s->list = &s->free;
  set_next(chain.tail, nullptr);
  s->free = chain.head;
  s->used = s->carved - chain.count;
  disown(s);
}

// Moves the remote frees of a slab that is not current to its free list.
void ThreadHeap::take_remote(Slab* s) {
  void* following = nullptr;
  for (void* p = remote_take(s); p != nullptr; p = following) {
    following = next_of(p);
    set_next(p, s->free);
    s->free = p;
    --s->used;
  }
}

// REQUIRES: s is in none of the heap's lists. Ends the ownership.
void ThreadHeap::disown(Slab* s) {
  for (;;) {
    take_remote(s);
    if (s->used == 0) return slab_release(s);
    s->set_owner(kUnowned);
    bool nothing = s->free == nullptr && s->decommitted == 0 && s->carved == s->capacity;
    if (nothing ? remote_release(s, kFull) : central_push(s)) return;
    s->set_owner(this);
  }
}

void ThreadHeap::move_in(ThreadState& t) {
  heads = t.heads;
  for (int c = 0; c < kClasses; ++c) {
    t.heads[c] = std::exchange(own_heads[c], nullptr);
    if (Slab* s = bins[c].current) s->list = &t.heads[c];
  }
  t.heap = this;
  t.owner = reinterpret_cast<uintptr_t>(this);
}

void ThreadHeap::move_out(ThreadState& t) {
  flush();
  inlined = nullptr;
  while (!full.slabs.empty()) disown_oldest_full();
  t.last = ThreadState::kNoLast;
  t.owner = kNoHeap;
  t.heap = nullptr;
  for (int c = 0; c < kClasses; ++c) {
    own_heads[c] = std::exchange(t.heads[c], nullptr);
    if (Slab* s = bins[c].current) s->list = &own_heads[c];
  }
  heads = own_heads;
  cache.reset_limit();
}

size_t ThreadHeap::owned_bytes() const {
  size_t bytes = cache.bytes();
  for (int c = 0; c < kClasses; ++c) {
    bytes += bins[c].partial.size() * kSizeClasses.pages[c] * kPageBytes;
    if (const Slab* s = bins[c].current)
      bytes += round_up(size_t{s->carved} * kSizeClasses.size[c], kCarveBytes);
  }
  return bytes;
}

void ThreadHeap::release_all() {
  flush();
  while (!full.slabs.empty()) disown_oldest_full();
  for (int c = 0; c < kClasses; ++c) {
    Bin& bin = bins[c];
    if (Slab* s = bin.current) {
      s->free = take_unsampled_list(c);
      uint32_t listed = 0;
      for (void* p = s->free; p != nullptr; p = next_of(p)) ++listed;
      s->list = &s->free;
      s->used = s->carved - listed;
      bin.current = nullptr;
      disown(s);
    }
    while (Slab* s = bin.partial.pop_front()) disown(s);
  }
  trim();
}

void ThreadHeap::flush() {
  release_all_deferred();
  remote_flush(this);
  cache.evict_last_freed();
}

size_t ThreadHeap::trim() {
  release_all_deferred();
  remote_flush(this);
  return cache.release_all();
}

void ThreadHeap::cache_empty_slab(Slab* s) {
  bins[s->size_class].partial.remove(s);
  emptied_bytes += slab_bytes(s);
  cache.add_slab(s);
}

void ThreadHeap::collect() {
  while (!full.slabs.empty()) disown_oldest_full();
  for (Bin& bin : bins) {
    for (Slab* s = bin.partial.front(); s != nullptr;) {
      Slab* following = s->next;
      take_remote(s);
      if (s->used == 0) cache_empty_slab(s);
      s = following;
    }
  }
}

void ThreadHeap::collect_some() {
  release_some_deferred();
  for (int i = 0; i < kDisownedSlabs && !full.slabs.empty(); ++i) disown_oldest_full();
  int looks = kCollectLooks;
  for (ClassSet todo = with_partial.set; todo != 0 && looks > 0;) {
    int c = with_partial.turn_to(todo);
    Bin& bin = bins[c];
    for (size_t left = bin.partial.size(); left > 0 && looks > 0; --left, --looks) {
      // From the back to the front: the next call takes others.
      Slab* s = bin.partial.back();
      bin.partial.remove(s);
      bin.partial.push_front(s);
      take_remote(s);
      if (s->used == 0) cache_empty_slab(s);
    }
    if (bin.partial.empty()) with_partial.remove(c);
    todo &= ~(ClassSet{1} << c);
    if (looks > 0) with_partial.last = (c + 1) % kClasses;
  }
}

// --- purge

namespace {

// The time for slab purges is spent up to here. Relaxed: a budget, exact by compare-and-swap alone.
constinit std::atomic<uint64_t> slab_purge_paid_us{0};

}  // namespace

void start_slab_purge_clock() { slab_purge_paid_us.store(os::now_us(), std::memory_order_relaxed); }

void ThreadHeap::purge_if_shrinking() {
  if (!is_shrinking()) return;
  if (release_rate() == 0) return;
  uint64_t now = os::now_us(), paid = slab_purge_paid_us.load(std::memory_order_relaxed);
  uint64_t oldest = now - kSlabPurgeMaxUs * kSlabPurgeShare;
  uint64_t since = paid < oldest ? oldest : paid;
  uint64_t credit = (now - since) / kSlabPurgeShare;
  if (since > now || credit < kSlabPurgeMinUs ||
      !slab_purge_paid_us.compare_exchange_strong(paid, now, std::memory_order_relaxed))
    return;
  if (!purge_partial(now + credit)) emptied_bytes = 0;
  uint64_t spent = os::now_us() - now;
  slab_purge_paid_us.fetch_add((spent - credit) * kSlabPurgeShare, std::memory_order_relaxed);
}

bool ThreadHeap::purge_partial(uint64_t end_us) {
  unsigned looks = 0;
  bool purged = false;
  size_t kept = end_us == UINT64_MAX ? 0 : kHotSlabs;
  for (int i = 0; i < kClasses; ++i) {
    // Larger classes first: more system pages an object.
    purge_class = (purge_class + kClasses - 1) % kClasses;
    // From the back, without the first few: what is used next should keep its memory.
    const SlabList& list = bins[purge_class].partial;
    size_t left = list.size();
    for (Slab* s = list.back(); s != nullptr && left > kept; --left, s = s->prev) {
      purged |= slab_purge(s);
      if (++looks % kSlabsAClockRead == 0 && os::now_us() >= end_us) {
        ++purge_class;
        return true;
      }
    }
  }
  return purged;
}

// --- refill

// A partial slab with free objects, or one to carve if the current slab is carved up.
Slab* ThreadHeap::usable_partial(int c) {
  Bin& bin = bins[c];
  Slab* s = bin.partial.front();
  if (s == nullptr) return nullptr;
  if (s->free == nullptr) take_remote(s);
  bool room = bin.current == nullptr || bin.current->carved == bin.current->capacity;
  if (s->free == nullptr && s->decommitted == 0 && !(room && s->carved < s->capacity))
    return nullptr;
  bin.partial.remove(s);
  return s;
}

void ThreadHeap::note_needed(const Slab* empty) {
  size_t bytes = slab_bytes(empty);
  emptied_bytes -= bytes < emptied_bytes ? bytes : emptied_bytes;
}

Slab* ThreadHeap::fresh_slab(int c) {
  if (Slab* s = cache.take_slab(c)) {
    note_needed(s);
    return s;
  }
  remote_flush(this);
  collect_some();
  if (!shared) cache.raise_limit(kSizeClasses.pages[c] * kPageBytes);
  Slab* s = slab_acquire(c);
  // The cached memory is dirty, a clean span would raise the peak, and a limit may forbid it: use
  // the cache up first.
  if ((s == nullptr || s->zero) && cache.bytes() != 0) {
    if (s != nullptr) slab_release(s);
    trim();
    s = slab_acquire(c);
  }
  if (s == nullptr) return nullptr;
  HeapCounters::add(counters.fresh_slabs, 1);
  emptied_bytes = 0;
  s->set_owner(this);
  return s;
}

// Links the objects that start in the next kCarveBytes of the current slab, or more if the front
// says so: system pages are touched when they are needed, not before.
void* ThreadHeap::carve(int c) {
  Slab* s = bins[c].current;
  size_t size = kSizeClasses.size[c];
  char* first = s->base + s->carved * size;
  size_t at = uintptr_t(first) - uintptr_t(s->base);
  size_t end = carve_end(s, round_down(at, kCarveBytes) + kCarveBytes);
  auto count = uint32_t((end - at + size - 1) / size);
  if (count > uint32_t(s->capacity - s->carved)) count = uint32_t(s->capacity - s->carved);
  carved_clean = s->zero && at >= s->touched ? first : nullptr;
  s->carved = uint16_t(s->carved + count);
  return hand_out(c, link_carved(s, first, count), count * size);
}

void* ThreadHeap::refill_quickly(int c) {
  Bin& bin = bins[c];
  // A signal handler may have filled the list meanwhile.
  if (heads[c] != nullptr || bin.sample_points != nullptr || is_time_to_purge()) return nullptr;
  Slab *current = bin.current, *s = bin.partial.front();
  bool cached = s == nullptr;
  if (cached && (current == nullptr || current->carved == current->capacity))
    s = cache.slab_as_left(c);
  if (s == nullptr || s->free == nullptr || s->purged_at != 0) return nullptr;
  if (current != nullptr && remote_list(current) != nullptr) return nullptr;
  if (cached && central_has(c)) return nullptr;
  size_t bytes = free_bytes(s);
  if (countdown.bytes < bytes) return nullptr;
  countdown.bytes -= bytes;
  HeapCounters::add(counters.refills, 1);
  bin.deferred = 0;
  if (cached) {
    note_needed(s);
    cache.remove_slab(s);
  } else {
    bin.partial.remove(s);
  }
  put_current_away(c);
  return serve(c, attach(c, s));
}

void* ThreadHeap::refill(int c) {
  HeapCounters::add(counters.refills, 1);
  if (kChecked && counters.refills.load(std::memory_order_relaxed) % 256 == 0) check_heap(*this);
  // A signal handler may have filled it meanwhile.
  if (heads[c] != nullptr) return serve(c, heads[c]);
  Bin& bin = bins[c];
  if (bin.sample_points != nullptr) return take_sampled(c);
  bin.deferred = 0;
  for (;;) {
    Slab* current = bin.current;
    if (current != nullptr)
      if (void* list = remote_take(current)) return hand_out(c, list, slab_bytes(current));
    if (Slab* s = usable_partial(c)) {
      put_current_away(c);
      size_t bytes = free_bytes(s);
      if (void* list = attach(c, s)) return hand_out(c, list, bytes);
      continue;
    }
    if (current != nullptr) {
      if (current->carved < current->capacity) return carve(c);
      put_current_away(c);
    }
    Slab* s = central_pop(c);
    if (s != nullptr)
      s->set_owner(this);
    else
      s = fresh_slab(c);
    if (s == nullptr) return nullptr;
    size_t bytes = free_bytes(s);
    if (void* list = attach(c, s)) return hand_out(c, list, bytes);
  }
}

}  // namespace larder
