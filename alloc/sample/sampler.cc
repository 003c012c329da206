#include "core/sampler.h"

#include <string.h>

#include "base/layout.h"
#include "base/policy.h"
#include "core/guard.h"
#include "core/meta.h"
#include "core/misuse.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "sample/site.h"

namespace larder {

constinit bool sample_all = false;
constinit std::atomic<size_t> sample_mean_bytes{0};

namespace {

struct Sampler {
  Lock lock;
  SamplePoint* unused LARDER_GUARDED_BY(lock) = nullptr;
  Countdown countdown LARDER_GUARDED_BY(lock) = {};
  SlabList slabs[kClasses] LARDER_GUARDED_BY(lock);             // with free objects
  void** unused_arrays[kClasses] LARDER_GUARDED_BY(lock) = {};  // linked by their first word
  double allocated_bytes LARDER_GUARDED_BY(lock) = 0;
};
constinit Sampler sampler;

}  // namespace

Lock& sample_lock() LARDER_RETURNS(sampler.lock) { return sampler.lock; }

namespace {

// Linked by their first word. Relaxed where the exchange or compare-and-swap that follows orders.
constinit std::atomic<void*> freed_in_signal{nullptr};
constinit std::atomic<void (*)()> watch{nullptr};

void notify_watch() LARDER_EXCLUDES(sampler.lock) {
  if (auto* callback = watch.load(std::memory_order_acquire)) callback();
}
constinit thread_local uint32_t first_state = 0;

void** new_array(int c) LARDER_REQUIRES(sampler.lock) {
  void** array = sampler.unused_arrays[c];
  if (array == nullptr)
    return static_cast<void**>(meta_alloc(kSizeClasses.capacity[c] * sizeof(SamplePoint*), 8));
  sampler.unused_arrays[c] = static_cast<void**>(array[0]);
  array[0] = nullptr;
  return array;
}

Slab* new_slab(int c) LARDER_REQUIRES(sampler.lock) {
  void** array = new_array(c);
  if (array == nullptr) return nullptr;
  Slab* s = page_heap.alloc_span(kSizeClasses.pages[c], 1, Kind::kSampled);
  if (s == nullptr) {
    array[0] = static_cast<void*>(sampler.unused_arrays[c]);
    sampler.unused_arrays[c] = array;
    return nullptr;
  }
  s->size_class = uint8_t(c);
  s->capacity = kSizeClasses.capacity[c];
  s->inverse = kSizeClasses.inverse[c];
  s->points = array;
  s->free = nullptr;
  s->used = 0;
  s->carved = 0;
  sampler.slabs[c].push_front(s);
  return s;
}

void drop_slab(Slab* s) LARDER_REQUIRES(sampler.lock) {
  int c = s->size_class;
  sampler.slabs[c].remove(s);
  s->points[0] = static_cast<void*>(sampler.unused_arrays[c]);
  sampler.unused_arrays[c] = s->points;
  s->points = nullptr;
  page_heap.free_span(s, size_t{s->carved} * kSizeClasses.size[c]);
}

void*& sample_point_at(Slab* s, void* p) {
  return s->points[size_t(static_cast<char*>(p) - s->base) / kSizeClasses.size[s->size_class]];
}

void* new_object(int c, SamplePoint* point) LARDER_REQUIRES(sampler.lock) {
  Slab* s = sampler.slabs[c].front();
  if (s == nullptr && (s = new_slab(c)) == nullptr) return nullptr;
  void* p = s->free;
  if (p != nullptr)
    s->free = next_of(p);
  else
    p = s->base + size_t{s->carved++} * kSizeClasses.size[c];
  sample_point_at(s, p) = point;
  if (++s->used == s->capacity) sampler.slabs[c].remove(s);
  return p;
}

// Adds a sample to the site, or removes it (sign -1).
void count_in_use(SamplePoint* point, double sign) LARDER_REQUIRES(sampler.lock) {
  Site* site = point->site;
  sites_before_change(site);
  double objects = point->objects * point->weight, bytes = objects * double(point->bytes);
  double variance = objects * (objects - 1) * double(point->bytes) * double(point->bytes);
  site->in_use.objects += sign * objects;
  site->in_use.bytes += sign * bytes;
  site->variance += sign * variance;
  site->samples += sign > 0 ? 1 : -size_t{1};
  site->sampled_bytes += sign > 0 ? point->bytes : -point->bytes;
  if (sign > 0 && variance > site->heaviest * site->heaviest)
    site->heaviest = __builtin_sqrt(variance);
  sites_after_change(sign * bytes);
  // Rounding errors must not add up.
  if (site->samples == 0) {
    site->in_use = {};
    site->variance = 0;
  }
}

// Holds the sampler's lock, and finds the site of the stack from `caller` on.
class LARDER_SCOPED LockedSite {
 public:
  LARDER_SLOW LockedSite(void* caller, Countdown* payer) LARDER_ACQUIRE(sampler.lock) {
    void* frame = __builtin_frame_address(0);
    sampler.lock.acquire();
    site_ = sample_all ? nullptr : recall_site(caller, frame);
    payer_ = payer != nullptr ? payer : &sampler.countdown;
    spend(site_ != nullptr ? 1 : kStackWalkCost);
    if (site_ == nullptr) walk(caller, frame);
  }
  ~LockedSite() LARDER_RELEASE() { sampler.lock.release(); }
  LockedSite(const LockedSite&) = delete;
  LockedSite& operator=(const LockedSite&) = delete;
  Site* get() const { return site_; }
  void spend(uint32_t samples) { payer_->spend(samples); }

 private:
  LARDER_SLOW void walk(void* caller, void* frame) LARDER_REQUIRES(sampler.lock) {
    sampler.lock.release();
    Stack stack;
    capture(stack, caller);
    sampler.lock.acquire();
    site_ = site_of(stack);
    remember_site(caller, frame, stack, site_);
  }

  Site* site_;
  Countdown* payer_;
};

void count_allocated(SamplePoint* point, double sign) LARDER_REQUIRES(sampler.lock) {
  double objects = sign * point->objects * point->weight, bytes = objects * double(point->bytes);
  point->site->allocated.objects += objects;
  point->site->allocated.bytes += bytes;
  sampler.allocated_bytes += bytes;
}

void begin(SamplePoint* point, Site* site, size_t bytes) LARDER_REQUIRES(sampler.lock) {
  point->site = site;
  point->bytes = bytes;
  point->since_us = os::now_us();
  count_allocated(point, 1);
  count_in_use(point, 1);
}

void end(SamplePoint* point) LARDER_REQUIRES(sampler.lock) {
  uint64_t lived = os::now_us() - point->since_us;
  int i = lived == 0 ? 0 : log2_floor(lived);
  point->site->lifetimes[i < kLifetimes ? i : kLifetimes - 1] +=
      float(point->objects * point->weight);
  count_in_use(point, -1);
  point->site = nullptr;
}

void drop(SamplePoint* point) LARDER_REQUIRES(sampler.lock) {
  point->slot = nullptr;
  point->next = sampler.unused;
  sampler.unused = point;
}

SamplePoint* make_sample_point(void* slot, double objects) LARDER_REQUIRES(sampler.lock) {
  SamplePoint* point = sampler.unused;
  if (point != nullptr)
    sampler.unused = point->next;
  else
    point = static_cast<SamplePoint*>(meta_alloc(sizeof(SamplePoint), alignof(SamplePoint)));
  if (point == nullptr) return nullptr;
  *point = {nullptr, slot, objects, 1, 0, first_state, nullptr, 0, 0};
  return point;
}

}  // namespace

constinit const SamplerLayout sampler_layout = {.mean = &sample_mean_bytes,
                                                .everything = &sample_all,
                                                .deferred = &freed_in_signal,
                                                .point_bytes = sizeof(SamplePoint),
                                                .point_next = offsetof(SamplePoint, next),
                                                .point_slot = offsetof(SamplePoint, slot),
                                                .point_state = offsetof(SamplePoint, state),
                                                .point_site = offsetof(SamplePoint, site),
                                                .point_asked = offsetof(SamplePoint, bytes),
                                                .exempt_states = kStays};

void set_sample_mean(size_t bytes) {
  sample_mean_bytes.store(can_capture() ? bytes : 0, std::memory_order_relaxed);
}

double objects_of_sample(double expected) {
  if (expected > 40) return 1;  // exp(-40) is below a double's precision
  // 1 / (1 - exp(-x)) = exp(x) / (exp(x) - 1)
  double e = exp_minus_one(expected);
  return (e + 1) / e;
}

uint32_t Countdown::budget_left() {
  uint64_t now_ms = os::now_ms(), more = (now_ms - budget_since_ms) * kBudgetPerMs;
  if (budget_since_ms == 0) more = kFirstBudget;
  budget_since_ms = now_ms;
  return budget = more > kMaxBudget - budget ? kMaxBudget : budget + uint32_t(more);
}

void Countdown::spend(uint32_t samples) { budget -= samples < budget ? samples : budget; }

double Countdown::paced_mean(bool after_point) {
  size_t now = sample_mean();
  if (now < kPacedMean) return double(now);
  uint32_t left = budget_left();
  if (after_point && left < kMaxBudget / kSlowerShare && pace < kMaxPace) ++pace;
  if (pace > 0 && left >= (after_point ? kMaxBudget / kFasterShare : kMaxBudget)) --pace;
  return double(now) * double(uint64_t{1} << pace);
}

void Countdown::draw() {
  mean = paced_mean(!check_only);
  size_t look = mean == 0 ? kCheckBytesIfOff : kCheckBytes;
  double distance = mean == 0 ? double(look) : chance.exponential() * mean;
  // A Poisson process has no memory: the rest of the distance may be drawn again.
  check_only = distance >= double(look);
  bytes = check_only ? look : size_t(distance);
}

void Countdown::draw_large(size_t object_bytes, bool after_point) {
  large_for = sample_mean();
  double large_mean = paced_mean(after_point);
  size_t look = kCheckObjects * (object_bytes > kSpanMax ? object_bytes : kSpanMax);
  double distance = large_mean == 0 ? double(look) : chance.exponential() * large_mean;
  large_rate = large_mean == 0 ? 0 : float(1 / large_mean);
  large_check_only = distance >= double(look);
  large_bytes = large_check_only ? look : size_t(distance) + 1;
}

// A Poisson process has no memory: what lies beyond a point or a check, or was drawn for another
// mean, is drawn again.
bool Countdown::hits_slowly(size_t object_bytes, float* expected) {
  size_t left = object_bytes;
  *expected = 0;
  if (large_for != sample_mean() || large_bytes == 0) {
    draw_large(object_bytes, false);
  } else if (large_check_only) {
    *expected = mean_points(large_bytes);
    left -= large_bytes;
    draw_large(object_bytes, false);
  }
  *expected += mean_points(left);
  if (passes(left)) return false;
  draw_large(object_bytes, true);
  return true;
}

bool sample_hits(size_t bytes, float* expected) {
  LockGuard guard(sampler.lock);
  return sampler.countdown.hits(bytes, expected);
}

SamplePoint* sample_point_new(void* slot, double objects) {
  LockGuard guard(sampler.lock);
  return make_sample_point(slot, objects);
}

void sample_point_drop(SamplePoint* point) {
  LockGuard guard(sampler.lock);
  drop(point);
}

void* sample_small(SamplePoint* point, int c, size_t size_bytes, void* caller, Countdown* payer) {
  void* slot = point->slot;
  void* p = nullptr;
  {
    LockedSite site(caller, payer);
    if (guard_is_on() && (p = guard_take(point, c, size_bytes, site.get())) != nullptr)
      site.spend(kGuardCost);
    if (p == nullptr) p = new_object(c, point);
    if (p == nullptr) {
      drop(point);
      return slot;
    }
    begin(point, site.get(), kSizeClasses.size[c]);
  }
  notify_watch();
  return p;
}

namespace {

// Puts a freed object where the next one of its class is taken from.
void reuse(Slab* s, void* p) LARDER_REQUIRES(sampler.lock) {
  set_next(p, s->free);
  s->free = p;
  SlabList& slabs = sampler.slabs[s->size_class];
  if (s->used-- == s->capacity) slabs.push_front(s);
  // The last one stays for the next sample, if that costs a page.
  if (s->used == 0 && (slabs.size() > 1 || s->pages > 1)) drop_slab(s);
}

// False: the object is free already. *freed: its point, if that has a slot; else nullptr. *intact:
// nothing was written beside the object, as far as it has a guard.
bool take_freed(Slab* s, void* p, const GuardedFree& guarded, SamplePoint** freed, bool* intact) {
  LockGuard guard(sampler.lock);
  void*& entry = sample_point_at(s, p);
  auto* point = static_cast<SamplePoint*>(entry);
  if (point == nullptr) return false;
  entry = nullptr;
  end(point);
  if (s->guarded)
    *intact = guard_release(s, guarded);
  else
    reuse(s, p);
  if (point->slot != nullptr)
    *freed = point;
  else
    drop(point);
  return true;
}

}  // namespace

void* sample_exact(int c, size_t size_bytes, void* caller) {
  void* p = nullptr;
  {
    LockedSite site(caller, nullptr);
    SamplePoint* point = make_sample_point(nullptr, 1);
    if (point == nullptr) return nullptr;
    p = new_object(c, point);
    if (p == nullptr) {
      drop(point);
      return nullptr;
    }
    begin(point, site.get(), size_bytes);
  }
  notify_watch();
  // Old content might point to leaked objects.
  return memset(p, 0, kSizeClasses.size[c]);
}

void set_state_of_new_samples(uint32_t state) { first_state = state; }

SamplePoint* sample_free(Slab* s, void* p) {
  SamplePoint* point = nullptr;
  GuardedFree guarded;
  if (s->guarded) guarded = guard_free_here();
  bool intact = true;
  if (!take_freed(s, p, guarded, &point, &intact)) report_misuse("free", Misuse::kDoubleFree, p);
  if (!intact) report_misuse("free", Misuse::kOverflow, p);
  notify_watch();
  return point;
}

void sample_large(SamplePoint* point, Slab* s, size_t size_bytes, void* caller, Countdown* payer) {
  {
    LockedSite site(caller, payer);
    s->sample_point = point;
    begin(point, site.get(), size_bytes);
  }
  notify_watch();
}

void sample_end(SamplePoint* point) {
  {
    LockGuard guard(sampler.lock);
    end(point);
  }
  notify_watch();
}

void sample_correct(SamplePoint* point, size_t size_bytes) {
  LockGuard guard(sampler.lock);
  count_allocated(point, -1);
  count_in_use(point, -1);
  point->bytes = size_bytes;
  count_allocated(point, 1);
  count_in_use(point, 1);
}

void sample_resize(SamplePoint* point, size_t size_bytes, double objects) {
  LockGuard guard(sampler.lock);
  count_in_use(point, -1);
  point->bytes = size_bytes;
  point->objects = objects;
  count_in_use(point, 1);
}

void sample_free_in_signal(void* p) {
  void* head = freed_in_signal.load(std::memory_order_relaxed);
  do set_next(p, head);
  while (!freed_in_signal.compare_exchange_weak(head, p, std::memory_order_release,
                                                std::memory_order_relaxed));
}

void* sample_take_freed_in_signal() {
  if (freed_in_signal.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return freed_in_signal.exchange(nullptr, std::memory_order_acquire);
}

SampleTotals sample_totals() {
  LockGuard guard(sampler.lock);
  return {sampler.allocated_bytes, bytes_in_use()};
}

void set_sample_watch(void (*callback)()) { watch.store(callback, std::memory_order_release); }

}  // namespace larder
