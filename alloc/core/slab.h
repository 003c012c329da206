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
//   a deferred free (thread_heap.h) counts as in use
// Of every other slab: owner == kUnowned.
#pragma once

#include <atomic>

#include "base/base.h"

namespace larder {

struct Segment;
struct SamplePoint;
struct ThreadHeap;

// Null, so that the null slab and the page map around it are zero pages without a file behind them.
inline ThreadHeap* const kUnowned = nullptr;

enum class Kind : uint8_t { kNull, kFree, kSlab, kSampled, kSpan, kHuge, kEmergency };

// `used` of a current slab starts here and only falls: free needs no second test.
inline constexpr uint32_t kCurrentBias = 1u << 30;

struct alignas(128) Slab {
  // --- written by the owner (a slab), or under the page heap's lock.
  // A heap, or kUnowned. Relaxed: only a heap's own thread writes that heap, so owned_by() is exact
  // for the caller's; everything else goes through `remote`, which orders.
  std::atomic<uintptr_t> owner_{0};
  void** list = nullptr;  // where the owner's free pushes to
  void* free = nullptr;   // free objects, linked by their first word
  uint32_t used = 0;
  uint16_t capacity = 0;
  uint8_t size_class = 0;
  Kind kind = Kind::kNull;
  char* base = nullptr;  // first byte of the span
  uint16_t carved = 0;
  uint16_t purged_at = 0;  // 1 + used at the last purge, or 0
  uint32_t pages = 0;      // of slabs and spans
  Slab* next = nullptr;
  Slab* prev = nullptr;

  // --- pushed to by any thread: fork generation (16 bits) | first object (48, the low 3 are the
  // State).
  alignas(64) std::atomic<uint64_t> remote{0};
  // --- constant while an object is allocated, except `touched` and `decommitted`.
  size_t bytes = 0;            // of the span or mapping
  uint32_t touched = 0;        // of a slab: bytes from the base on that may not be zero
  uint32_t offset = 0;         // of the object: colour, alignment
  Segment* segment = nullptr;  // its first, if it spans several; nullptr for mappings
  bool zero = false;           // the content is known to be zero
  float expected = 0;          // mean number of sample points on the `charged` bytes
  uint64_t decommitted = 0;    // bit i: system page i of the slab is purged, and the objects that
                               // start there are not in `free`
  // Of spans and mappings: the sample point on it, or nullptr, and the bytes that the sampler has
  // counted.
  SamplePoint* sample_point = nullptr;
  size_t charged = 0;

  LARDER_FAST ThreadHeap* owner() const {
    return reinterpret_cast<ThreadHeap*>(owner_.load(std::memory_order_relaxed));
  }
  LARDER_FAST bool owned_by(uintptr_t heap) const {
    return owner_.load(std::memory_order_relaxed) == heap;
  }
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

LARDER_FAST void*& next_of(void* object) { return *static_cast<void**>(object); }

// An intrusive list. Unsynchronised: it belongs to a heap, or to a central list's lock.
class SlabList {
 public:
  bool empty() const { return head_ == nullptr; }
  Slab* front() const { return head_; }
  Slab* back() const { return tail_; }
  size_t size() const { return size_; }
  void push_front(Slab* s) {
    s->prev = nullptr;
    s->next = head_;
    (head_ != nullptr ? head_->prev : tail_) = s;
    head_ = s;
    ++size_;
  }
  void push_back(Slab* s) {
    s->next = nullptr;
    s->prev = tail_;
    (tail_ != nullptr ? tail_->next : head_) = s;
    tail_ = s;
    ++size_;
  }
  void remove(Slab* s) {
    (s->prev != nullptr ? s->prev->next : head_) = s->next;
    (s->next != nullptr ? s->next->prev : tail_) = s->prev;
    s->next = s->prev = nullptr;
    --size_;
  }
  Slab* pop_front() {
    Slab* s = head_;
    if (s != nullptr) remove(s);
    return s;
  }

 private:
  Slab* head_ = nullptr;
  Slab* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace larder
