// The sampler: which allocations are in the heap profile, and where their objects live.
//
// A sample point lies on an object's slot in a slab, on a span, or on a mapping. Points are put
// there when memory is handed out (ThreadHeap::hand_out, charge_large), on each byte alike, as a
// Poisson process. So a slot of s bytes gets a point with probability 1 - exp(-s / mean), and its
// object stands for 1 / (1 - exp(-s / mean)) objects. The allocation that uses a slot with a point
// is sampled. When the object is freed and its slot is the next to be handed out, the point stays
// (ThreadHeap::free_sampled_slot); otherwise it is dropped. So every slot in use has a point with
// the same probability, whichever allocation uses it.
//
// free() needs no extra test: an object whose slot has a point lives in an unowned sample slab,
// while its slot stays in use for its own slab. A sample slab's `list` is an array of its objects'
// points, its `free` lists free objects. Sampled spans and mappings stay where they are
// (Slab::sample_point), until they are freed; each use of one is drawn anew.
//
// For the leak checker everything is sampled, exactly (sample_all): no thread has a heap then, so
// that every malloc takes the slow path. Every object lies in a sample slab, a span or a mapping,
// and its point has the requested size and no slot.
//
// Thread safety: any thread; one lock. Not from a signal handler that interrupted a slow path.
// Bounds: 64 bytes a sampled object, its slot and its object. Points and arrays are reused, never
// freed. At most one empty sample slab a class.
#pragma once

#include "base/chance.h"
#include "base/size_class.h"
#include "core/slab.h"
#include "os/lock.h"

namespace larder {

struct Site;

// Of SamplePoint::state: the object is no leak, nor is anything that it points to.
inline constexpr uint32_t kIgnored = 8;
inline constexpr uint32_t kDisabled = 16;
inline constexpr uint32_t kStays = kIgnored | kDisabled;

// Relaxed: a thread may follow a new mean late.
extern std::atomic<size_t> sample_mean_bytes __attribute__((visibility("hidden")));

// Mean distance of sample points, in bytes; 0: nothing is sampled.
inline size_t sample_mean() { return sample_mean_bytes.load(std::memory_order_relaxed); }
void set_sample_mean(size_t bytes);

struct SamplePoint {
  SamplePoint* next;       // in a heap: the next of its class to be handed out
  void* slot;              // nullptr for spans and mappings
  double objects;          // that it stands for, by its probability
  double weight;           // and because it was retained where others were dropped
  uint32_t kept_in_a_row;  // consecutive probabilistic retentions
  uint32_t state;          // of the object, for the leak checker (reach.h)
  // While its object is in use:
  Site* site;
  size_t bytes;
  uint64_t since_us;
};

// The distance to the next sample point, of small objects and of large ones. One a heap.
//
// A sample costs time, most of it for the stack walk, and a heap has a budget for it. At a point
// that leaves little of it the mean is doubled, so that the next ones stand for more; once there is
// much again, it is halved.
struct Countdown {
  size_t bytes;
  bool check_only;  // no point there: the mean is checked again
  bool large_check_only;
  double mean;  // of the distribution that it was drawn from
  Chance chance;
  size_t large_bytes;
  size_t large_for;  // sample_mean() when large_bytes was drawn
  float large_rate;  // points a byte, of that distribution
  uint32_t budget;   // left, in samples without a stack walk
  uint32_t pace;     // sample_mean() is multiplied by 2^pace
  uint64_t budget_since_ms;

  void draw();
  uint32_t budget_left();
  void spend(uint32_t samples);
  // Whether a point falls on this many bytes of a large object; *expected is the mean number of
  // points.
  bool hits(size_t object_bytes, float* expected) {
    *expected = mean_points(object_bytes);
    return !passes(object_bytes) && hits_slowly(object_bytes, expected);
  }
  // True: none falls on them. False: one may, and nothing is counted.
  bool passes(size_t object_bytes) {
    if (unlikely(large_for != sample_mean() || object_bytes >= large_bytes)) return false;
    large_bytes -= object_bytes;
    return true;
  }
  // On average.
  float mean_points(size_t object_bytes) const { return float(int64_t(object_bytes)) * large_rate; }

 private:
  double paced_mean(bool after_point);
  void draw_large(size_t object_bytes, bool after_point);
  bool hits_slowly(size_t object_bytes, float* expected);
};

// Like Countdown::hits, for a thread without a heap.
bool sample_hits(size_t bytes, float* expected);

// The number of objects that a sampled one stands for, by the mean number of points on each.
double objects_of_sample(double expected);

// A new point, or nullptr without memory.
SamplePoint* sample_point_new(void* slot, double objects);
void sample_point_drop(SamplePoint* point);

// An object of the class for a slot with a point, for a request of `size_bytes`; without memory the
// slot itself, and the point is dropped. `caller` is the allocation's return address; `payer` is
// the countdown whose budget pays; nullptr: that of threads without a heap.
void* sample_small(SamplePoint* point, int c, size_t size_bytes, void* caller, Countdown* payer);
// Frees the object of a sample slab. Returns the point, still on its slot; nullptr if it has no
// slot.
SamplePoint* sample_free(Slab* s, void* p);
void sample_large(SamplePoint* point, Slab* s, size_t size_bytes, void* caller, Countdown* payer);
// The sampled object is freed.
void sample_end(SamplePoint* point);
// The object was sampled with more bytes than were requested.
void sample_correct(SamplePoint* point, size_t size_bytes);
// The object was resized in place.
void sample_resize(SamplePoint* point, size_t size_bytes, double objects);

// Estimates, in bytes.
struct SampleTotals {
  double allocated, in_use;
  double freed() const { return allocated - in_use; }
};
SampleTotals sample_totals();
// Called after each sample begins or ends, from within the allocator; nullptr: none.
void set_sample_watch(void (*watch)());

// Samples everything from now on. It cannot be turned off. The calling thread gives up its heap.
extern bool sample_all __attribute__((visibility("hidden")));
// A zeroed object of the class, sampled with the requested size.
void* sample_exact(int c, size_t size_bytes, void* caller);
// The state of new sample points.
void set_state_of_new_samples(uint32_t state);

// Objects of sample slabs that a signal handler has freed, linked, until a thread can free them.
void sample_free_in_signal(void* p);
void* sample_take_freed_in_signal();

Lock& sample_lock();

}  // namespace larder
