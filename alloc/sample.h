// The sampler: which allocations are in the heap profile, and where those objects live.
//
// A *mark* lies on a place: on an object's slot in a slab, or on a run or mapping. Marks fall on
// places when these are handed out to be filled (ThreadHeap::hand_out, charge_large): on each byte
// alike, as a Poisson process, so that a place of s bytes is marked with the probability
// 1 - exp(-s / mean) and stands for 1 / (1 - exp(-s / mean)) objects. Who gets a marked place is
// sampled. When it is freed and may be the next to be handed out again, the mark stays on it
// (ThreadHeap::freed_marked); when the place goes back to where it will be handed out afresh, the
// mark ends. So every place in use carries a mark with the same probability, whoever uses it.
//
// Free is to find out without a look at anything new: an object whose slot is marked lives in a
// *sample slab*, of which nobody is the owner, while its slot is in use as far as its own slab
// knows. A sample slab's `list` is an array of its objects' marks, its `free` lists objects to
// give. Sampled runs and mappings stay where they are (Slab::mark).
//
// Thread safety: any thread; one lock. Not from a signal handler that interrupted a slow path.
// Bounds: a mark of 64 bytes for each sampled object, its slot and its object; marks and arrays of
// slabs are used again, never freed. At most one empty sample slab a class is kept.
#pragma once

#include "chance.h"
#include "lock.h"
#include "size_class.h"
#include "slab.h"

namespace larder {

struct Site;

// Bytes from one mark to the next, on the average; 0: nothing is sampled.
size_t sample_mean();
void set_sample_mean(size_t bytes);

struct Mark {
  Mark* next;      // of its class in a heap, in the order of handing out; or unused
  void* slot;      // nullptr: of a run or mapping
  double objects;  // that it stands for, by its chance
  double factor;   // and since it was once kept where others were not
  uint32_t quick;  // times in a row that it was kept by lot
  // While its place is in use:
  Site* site;
  size_t bytes;
  uint64_t since_us;
};

// The distance to the next byte of small objects that is marked. One a heap.
//
// Each sample costs a walk of the stack, for which a heap has a budget: where it allocates so fast
// that it has spent most of that, it draws with a larger mean, and each mark stands for more.
struct Countdown {
  static constexpr uint32_t kMostWalks = 256;  // saved up

  size_t bytes;
  bool only_a_look;  // nothing is marked there: the mean is to be looked at again
  double mean;       // that it was drawn with
  Chance chance;
  uint32_t walks;  // left
  uint64_t walks_since_ms;

  void draw();
  uint32_t walks_left();
  // False: none is left.
  bool spend_walk();
  // Whether a large object is marked: one draw for it alone.
  bool hits(size_t object_bytes) {
    size_t now = sample_mean();
    return now != 0 && chance.exponential() * double(now) < double(object_bytes);
  }
};

// As Countdown::hits, for a thread without a heap.
bool sample_hits(size_t bytes);

// How many objects of the size one that is marked stands for.
double objects_of_mark(size_t size_bytes, double mean);

// A mark on nothing; nullptr without memory.
Mark* mark_new(void* slot, double objects);
void mark_drop(Mark* mark);

// An object of the class for a marked slot; without memory the slot itself, and no mark.
// `caller` is where the allocation returns to.
void* sample_small(Mark* mark, int c, void* caller);
// The object of a sample slab is free. Its mark, which is on the slot still.
Mark* sample_free(Slab* s, void* p);
void sample_large(Mark* mark, Slab* s, size_t size_bytes, void* caller);
// The place is not in use any more.
void sample_end(Mark* mark);
// The object was resized where it is.
void sample_resize(Mark* mark, size_t size_bytes, double objects);

// Objects of sample slabs that a signal handler has freed: linked, for whoever can free them.
void sample_defer(void* p);
void* sample_take_deferred();

Lock& sample_lock();

}  // namespace larder
