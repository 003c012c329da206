// Reachability: which objects of the heap the program can reach, and which leaks other leaks point
// to.
//
// Every word that may be a pointer is looked up in the page map. An address within the requested
// size means the object; an address in a free slot or beyond the size means none. Objects from
// before everything was sampled, or from a signal handler, cannot leak: they are roots.
//
// Thread safety: the world is stopped, and the caller holds the heap's locks (HeapLocked).
// Allocates nothing but its own mappings. Bounds: 16 bytes an object; time is linear in the bytes
// in use.
#pragma once

#include "core/sampler.h"

namespace larder {

// Bits of SamplePoint::state. Those of sampler.h persist between checks.
inline constexpr uint32_t kReached = 1;   // from a root
inline constexpr uint32_t kVisited = 2;   // as a leak
inline constexpr uint32_t kIndirect = 4;  // from another leak

struct HeapObject {
  SamplePoint* point;
  char* at;
};

// The object that contains the address; without a sample point: none. REQUIRES: HeapLocked.
HeapObject find_object(const void* address);

class Reach {
 public:
  struct Options {
    size_t source_alignment;  // of pointers: 1 to 8, a power of two
    size_t max_offset;        // from an object's base, of pointers to it
  };
  explicit Reach(const Options& options);
  ~Reach();
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
  bool has_memory() const { return has_memory_; }

  // REQUIRES: the world is stopped, until destruction.
  void begin() { index_heap(); }
  // An upper bound on the live objects.
  size_t max_objects() const { return room_; }
  // Marks what is reachable from [begin, end).
  void add_root(uintptr_t begin, uintptr_t end);
  // Marks what is no leak by definition, and all that it points to: objects with one of these
  // states, exempt sites, and objects without a sample point.
  void add_exempt(uint32_t states);
  // Marks leaks that other leaks point to.
  void sort_out();
  // Calls visit(object) for each live sampled object.
  template <typename Visit>
  void for_each(Visit visit);

 private:
  struct Huge {
    uintptr_t begin, end;
    Slab* slab;
  };
  HeapObject find(uintptr_t address) const;
  template <typename Meet>
  void scan(uintptr_t begin, uintptr_t end, Meet meet) const;
  template <typename Meet>
  void flood(Meet meet);
  void push(HeapObject object) { stack_[depth_++] = object; }
  void index_heap();

  Options options_;
  bool has_memory_ = false;
  uintptr_t low_ = UINTPTR_MAX, high_ = 0;  // bounds of all pages
  Huge* huge_ = nullptr;                    // by address
  size_t huge_count_ = 0, huge_room_ = 0;
  HeapObject* stack_ = nullptr;
  size_t depth_ = 0, room_ = 0;
  uint64_t reciprocal_[kClasses];  // 2^40 / size, rounded up
};

}  // namespace larder

#include "core/page_map.h"

namespace larder {

template <typename Visit>
void Reach::for_each(Visit visit) {
  page_map.for_each([&](uintptr_t page, Slab* s) {
    if (uintptr_t(s->base) != page) return;
    if (s->kind == Kind::kSampled) {
      for (size_t i = 0; i < s->carved; ++i)
        if (auto* point = static_cast<SamplePoint*>(s->points[i]))
          visit(HeapObject{point, s->base + i * kSizeClasses.size[s->size_class]});
    } else if ((s->kind == Kind::kSpan || s->kind == Kind::kHuge) && s->sample_point != nullptr &&
               s->sample_point->site != nullptr) {
      visit(HeapObject{s->sample_point, s->object()});
    }
  });
}

// Holds the heap's locks, so that the heap does not change once the threads are stopped.
class HeapLocked {
 public:
  HeapLocked();
  ~HeapLocked();
  HeapLocked(const HeapLocked&) = delete;
  HeapLocked& operator=(const HeapLocked&) = delete;
};

}  // namespace larder
