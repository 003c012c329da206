// Which objects of the heap the program can still reach, and which of the others hang together.
//
// Every word that may be a pointer is looked up in the page map: an address anywhere within what
// was asked for means the object, one in a free slot or behind the object's end nothing. Objects
// that were made before everything was sampled, or in a signal handler, cannot leak: they are
// roots.
//
// Thread safety: the world is stopped, and the caller holds the heap's locks (stop_heap). Allocates
// nothing but its own mappings. Bounds: 16 bytes an object; time grows with the bytes in use.
#pragma once

#include "core/sampler.h"

namespace larder {

// Of SamplePoint::state; those of sampler.h stay between two checks.
inline constexpr uint32_t kReached = 1;   // from a root
inline constexpr uint32_t kVisited = 2;   // as a leak
inline constexpr uint32_t kIndirect = 4;  // from another leak

struct HeapObject {
  SamplePoint* point;
  char* at;
};

// The one that has the address, anywhere within it; without a mark: none. REQUIRES: HeapLocked.
HeapObject find_object(const void* address);

class Reach {
 public:
  struct Options {
    size_t source_alignment;  // where pointers may lie: 1 to 8, a power of two
    size_t max_offset;        // how far into an object they may point
  };
  explicit Reach(const Options& options);
  ~Reach();
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
  bool has_memory() const { return has_memory_; }

  // REQUIRES: the world is stopped, from here on.
  void begin() { index_heap(); }
  // At most so many objects are live.
  size_t max_objects() const { return room_; }
  // What can be reached from [begin, end) is.
  void add_root(uintptr_t begin, uintptr_t end);
  // And from what nobody may call a leak: marks with one of these bits, exempt sites, early
  // objects.
  void add_exempt(uint32_t states);
  // Tells leaks that others point to from the rest.
  void sort_out();
  // Calls visit(object) for each live object that is sampled.
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
  uintptr_t low_ = UINTPTR_MAX, high_ = 0;  // where pages are
  Huge* huge_ = nullptr;                    // by address
  size_t huge_count_ = 0, huge_room_ = 0;
  HeapObject* stack_ = nullptr;
  size_t depth_ = 0, room_ = 0;
  uint64_t reciprocal_[kClasses];  // of the size: 2^40 / size, rounded up
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
        if (auto* point = static_cast<SamplePoint*>(s->list[i]))
          visit(HeapObject{point, s->base + i * kSizeClasses.size[s->size_class]});
    } else if ((s->kind == Kind::kSpan || s->kind == Kind::kHuge) && s->sample_point != nullptr &&
               s->sample_point->site != nullptr) {
      visit(HeapObject{s->sample_point, s->base + s->offset});
    }
  });
}

// Holds the locks of the heap, so that it stands still when the other threads do.
class HeapLocked {
 public:
  HeapLocked();
  ~HeapLocked();
  HeapLocked(const HeapLocked&) = delete;
  HeapLocked& operator=(const HeapLocked&) = delete;
};

}  // namespace larder
