// Slab: the descriptor of a span, whatever the span holds. Out of line: no object can overflow into
// it.
//
// Kinds: kSlab and kSampled hold objects of one class, kSampled for the sampler (sampler.h); kSpan,
// kHuge and kEmergency hold one object; kFree holds none; kNull stands for every address that is
// not Larder's.
//
// A kSlab is in one of three states (the low bits of `remote`):
//   kOwned    A heap owns it: as its current slab of the class (list == &heads[class], which has
//             the slab's free objects), or partial (list == &free), or cached empty, or on the full
//             list. Only the owner's thread touches the first cache line.
//   kFull     Unowned, and every object is in use. The first thread that frees into it adopts it,
//             by one compare-and-swap on `remote`.
//   kCentral  Unowned, with free objects: in its class's central list, under that list's lock.
//
// Invariants of an owned slab:
//   partial:    carved == used + |free| + |decommitted|; used counts the objects on `remote`, too
//   current:    carved == in use + |remote| + |its objects in heads[class]|
//               used is biased by kCurrentBias, and counts nothing
//   full list:  carved == capacity, free is empty, used == 1: the first free makes it 0
//   |decommitted| == 0 unless partial, empty or central; |decommitted| != 0 => purged_at != 0
//   object i lies at base + i * size, 0 <= i < carved <= capacity
//   p lies at an object <=> (p - base) * inverse mod 2^64 < inverse
//   a deferred free (thread_heap.h) counts as in use
// Of every other slab: owner == kUnowned.
//
// A free object of a kSlab has a tagged link in its first word; malloc clears it. So an object with
// a tag there is free already, unless the program has written the like (core/misuse.h).
#pragma once

#include <atomic>

#include "base/base.h"
#include "base/list.h"

namespace larder {

struct Segment;
struct SamplePoint;
struct ThreadHeap;

// Null, so that the null slab and the page map around it are zero pages without a file behind them.
inline ThreadHeap* const kUnowned = nullptr;

enum class Kind : uint8_t { kNull, kFree, kSlab, kSampled, kSpan, kHuge, kEmergency };

// `used` of a current slab starts here and only falls: free needs no second test.
inline constexpr uint32_t kCurrentBias = 1u << 30;

// In the bits that no address has. As text it is no UTF-8, as a number negative and tiny or huge.
inline constexpr int kLinkTagShift = 48;
inline constexpr uint16_t kLinkTag = 0x9E4D;
// kLinkTag << kLinkTagShift, in memory: malloc and free need it within one instruction.
extern const uintptr_t link_tag __attribute__((visibility("hidden")));

// A place for the address of a free object, or none: a free object's first word, and the head of a
// list of them. All zeros: not a list yet. It moves from one place to another as it is, so that a
// pair of malloc and free does not wait for the tag.
class Link {
 public:
  constexpr Link() = default;
  constexpr Link(std::nullptr_t) : word_(uintptr_t{kLinkTag} << kLinkTagShift) {}
  LARDER_FAST Link(void* object) : word_(uintptr_t(object) ^ link_tag) {}
  LARDER_FAST operator void*() const { return reinterpret_cast<void*>(word_ ^ link_tag); }
  // While another thread may write it. Relaxed: a figure, or checked by whoever asks.
  void* peek() const {
    return reinterpret_cast<void*>(__atomic_load_n(&word_, __ATOMIC_RELAXED) ^ link_tag);
  }

 private:
  uintptr_t word_ = 0;
};

struct alignas(128) Slab {
  // --- written by the owner (a slab), or under the page heap's lock.
  // A heap, or kUnowned. Relaxed: only a heap's own thread writes that heap, so owned_by() is exact
  // for the caller's; everything else goes through `remote`, which orders.
  std::atomic<uintptr_t> owner_{0};
  union {
    Link* list = nullptr;  // where the owner's free pushes to
    void** points;         // of a kSampled, by object
  };
  Link free;  // free objects, linked by their first word
  uint32_t used = 0;
  uint16_t capacity = 0;
  uint8_t size_class = 0;
  Kind kind = Kind::kNull;
  char* base = nullptr;  // first byte of the span
  uint64_t inverse = 0;  // 2^64 / the size of an object, rounded up
  Slab* next = nullptr;
  Slab* prev = nullptr;

  // --- pushed to by any thread: fork generation (16 bits) | first object (48, the low 3 are the
  // State). Relaxed loads are compared alone: the exchange or compare-and-swap that follows orders
  // what the list holds, or the central list's lock does.
  alignas(64) std::atomic<uint64_t> remote{0};
  // --- constant while an object is allocated, except `touched` and `decommitted`.
  size_t bytes = 0;            // of the span or mapping
  uint32_t touched = 0;        // of a slab: bytes from the base on that may not be zero
  uint32_t offset = 0;         // of the object: colour, alignment
  Segment* segment = nullptr;  // its first, if it spans several; nullptr for mappings
  uint16_t pages = 0;          // of slabs and spans
  uint16_t carved = 0;
  uint16_t purged_at = 0;  // 1 + used at the last purge, or 0
  bool zero = false;       // the content was zero when the page heap handed it out
  bool guarded = false;    // one sampled object of `bytes` (guard.h)
  float expected = 0;      // mean number of sample points on the `charged` bytes
  union {
    // Of a slab. Bit i: system page i is purged, and the objects that start there are not in
    // `free`.
    uint64_t decommitted = 0;
    size_t charged;  // of spans and mappings: bytes that the sampler has counted
  };
  SamplePoint* sample_point = nullptr;  // of spans and mappings: the one on it

  LARDER_FAST ThreadHeap* owner() const {
    return reinterpret_cast<ThreadHeap*>(owner_.load(std::memory_order_relaxed));
  }
  LARDER_FAST bool owned_by(uintptr_t heap) const {
    return owner_.load(std::memory_order_relaxed) == heap;
  }
  // Of spans and mappings: what malloc returns.
  char* object() const { return base + offset; }
  void set_owner(ThreadHeap* heap) {
    owner_.store(reinterpret_cast<uintptr_t>(heap), std::memory_order_relaxed);
  }
};
static_assert(sizeof(Slab) == 128, "two cache lines: the owner's and everyone's");

// Whether it holds objects of a size class.
inline bool is_small(const Slab* s) { return s->kind == Kind::kSlab || s->kind == Kind::kSampled; }

// REQUIRES: a heap owns it.
inline bool is_current(const Slab* s) { return s->list != &s->free; }

enum State : uint64_t { kOwned = 0, kFull = 1, kCentral = 2, kStateMask = 7 };

LARDER_FAST Link& link_of(void* object) { return *static_cast<Link*>(object); }
LARDER_FAST void* next_of(const void* object) { return *static_cast<const Link*>(object); }
LARDER_FAST void set_next(void* object, void* next) { link_of(object) = next; }
// For an object that is handed out.
LARDER_FAST void clear_link(void* object) { *static_cast<uintptr_t*>(object) = 0; }
// Any address within the heap.
LARDER_FAST bool has_link(const void* object) {
  uint16_t high;
  __builtin_memcpy(&high, static_cast<const char*>(object) + kLinkTagShift / 8, sizeof high);
  return high == kLinkTag;
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the tag is a word's last bytes");
// Whether the address is that of an object, in use or free. REQUIRES: is_small(s), and the page of
// p is one of the slab's.
LARDER_FAST bool at_object(const void* p, const Slab* s) {
  return (uintptr_t(p) - uintptr_t(s->base)) * s->inverse < s->inverse;
}

// Puts free objects into a list, in the order in which they come. The list has always an end.
class ObjectList {
 public:
  void* first() const { return first_; }
  void append(void* p) {
    end_with(p);
    restart_behind(p);
  }
  // Objects that are linked already. Nothing may be appended behind them.
  void end_with(void* list) { last_ == nullptr ? void(first_ = list) : set_next(last_, list); }
  // What is appended now follows `p`, which is in another list.
  void restart_behind(void* p) {
    last_ = p;
    set_next(p, nullptr);
  }

 private:
  void* first_ = nullptr;
  void* last_ = nullptr;
};

// Belongs to a heap, or to a central list's lock.
using SlabList = List<Slab, &Slab::next, &Slab::prev>;

}  // namespace larder
