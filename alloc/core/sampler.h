// The sampler: which allocations are in the heap profile, and where those objects live.
//
// A *mark* lies on a place: on an object's slot in a slab, or on a span or mapping. Marks fall on
// places when these are handed out to be filled (ThreadHeap::hand_out, charge_large): on each byte
// alike, as a Poisson process, so that a place of s bytes is marked with the probability
// 1 - exp(-s / mean) and stands for 1 / (1 - exp(-s / mean)) objects. Who gets a marked place is
// sampled. When it is freed and may be the next to be handed out again, the mark stays on it
// (ThreadHeap::free_sampled_slot); when the place goes back to where it will be handed out afresh,
// the mark ends. So every place in use carries a mark with the same probability, whoever uses it.
//
// Free is to find out without a look at anything new: an object whose slot is marked lives in a
// *sample slab*, of which nobody is the owner, while its slot is in use as far as its own slab
// knows. A sample slab's `list` is an array of its objects' marks, its `free` lists objects to
// give. Sampled spans and mappings stay where they are (Slab::mark).
//
// For the leak checker everything is sampled, exactly (sample_everything): no thread has a heap
// then, so that every malloc comes to the slow path, every object lies in a sample slab, as a span
// or as a mapping, and its mark has no slot and the size that was asked for.
//
// Thread safety: any thread; one lock. Not from a signal handler that interrupted a slow path.
// Bounds: a mark of 64 bytes for each sampled object, its slot and its object; marks and arrays of
// slabs are used again, never freed. At most one empty sample slab a class is kept.
#pragma once

#include "base/chance.h"
#include "base/size_class.h"
#include "core/slab.h"
#include "os/lock.h"

namespace larder {

struct Site;

// Of SamplePoint::state: no leak, nor what it points to.
inline constexpr uint32_t kIgnored = 8;
inline constexpr uint32_t kDisabled = 16;
inline constexpr uint32_t kStays = kIgnored | kDisabled;

// Bytes from one mark to the next, on the average; 0: nothing is sampled.
size_t sample_mean();
void set_sample_mean(size_t bytes);

struct SamplePoint {
  SamplePoint* next;       // of its class in a heap, in the order of handing out; or unused
  void* slot;              // nullptr: of a span or mapping
  double objects;          // that it stands for, by its chance
  double weight;           // and since it was once kept where others were not
  uint32_t kept_in_a_row;  // times in a row that it was kept by lot
  uint32_t state;          // of the object, for the leak checker (reach.h)
  // While its place is in use:
  Site* site;
  size_t bytes;
  uint64_t since_us;
};

// The distance to the next byte that is marked, of small objects and of large ones. One a heap.
//
// Each sample costs time, most of it where the stack is to be walked, for which a heap has a
// budget: where it allocates so fast that it has spent most of that, it draws with a larger mean,
// and each mark stands for more.
struct Countdown {
  size_t bytes;
  bool only_a_check;  // nothing is marked there: the mean is to be looked at again
  double mean;        // that it was drawn with
  Chance chance;
  size_t large_bytes;
  size_t large_for;   // sample_mean() as it was then
  double large_rate;  // marks a byte that large_bytes was drawn with
  uint32_t budget;    // left, in samples without a walk
  uint64_t budget_since_ms;

  void draw();
  uint32_t budget_left();
  void spend(uint32_t samples);
  // Whether a mark falls on so many bytes of a large object; *expected marks do on the average.
  bool hits(size_t object_bytes, double* expected) {
    if (unlikely(large_for != sample_mean() || object_bytes >= large_bytes))
      return hits_slowly(object_bytes, expected);
    large_bytes -= object_bytes;
    *expected = double(object_bytes) * large_rate;
    return false;
  }

 private:
  double paced_mean();
  void draw_large();
  bool hits_slowly(size_t object_bytes, double* expected);
};

// As Countdown::hits, for a thread without a heap.
bool sample_hits(size_t bytes, double* expected);

// How many objects one that is marked stands for, by the marks that are expected on each.
double objects_of_sample(double expected);

// A mark on nothing; nullptr without memory.
SamplePoint* sample_point_new(void* slot, double objects);
void sample_point_drop(SamplePoint* point);

// An object of the class for a marked slot; without memory the slot itself, and no mark.
// `caller` is where the allocation returns to; `payer`, if any, whose budget it is taken from.
void* sample_small(SamplePoint* point, int c, void* caller, Countdown* payer);
// The object of a sample slab is free. Its mark, which is on the slot still; nullptr if it had
// none.
SamplePoint* sample_free(Slab* s, void* p);
void sample_large(SamplePoint* point, Slab* s, size_t size_bytes, void* caller, Countdown* payer);
// The place is not in use any more.
void sample_end(SamplePoint* point);
// The object has just been sampled with more than was asked for.
void sample_correct(SamplePoint* point, size_t size_bytes);
// The object was resized where it is.
void sample_resize(SamplePoint* point, size_t size_bytes, double objects);

// Estimated bytes.
struct SampleTotals {
  double allocated, in_use;
  double freed() const { return allocated - in_use; }
};
SampleTotals sample_totals();
// Called after each sample is taken or ends, from within the allocator; nullptr: nobody.
void set_sample_watch(void (*watch)());

// Everything from now on, once and for all. The calling thread gives up its heap.
extern bool sample_all __attribute__((visibility("hidden")));
// Of the class, zero; with what was asked for.
void* sample_exact(int c, size_t size_bytes, void* caller);
// What marks begin with: their state.
void set_state_of_new_samples(uint32_t state);

// Objects of sample slabs that a signal handler has freed: linked, for whoever can free them.
void sample_free_in_signal(void* p);
void* sample_take_freed_in_signal();

Lock& sample_lock();

}  // namespace larder
