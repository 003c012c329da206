// Slab: the descriptor of a span, whatever the span holds. Out of line: no object can
// overflow into it.
//
// Kinds: kSlab holds objects of one class, as kSampled does, which is nobody's and the sampler's
// (sampler.h); kSpan, kHuge, kEmergency hold one object;
// kFree nothing; kNull stands for every address that is not Larder's.
//
// A kSlab is, at any time, in one of these states, told by the low bits of `remote`:
//   kOwned    by a heap: its `current` of the class (list == &heads[class], the objects not in use
//             are in that list), or in the heap's list of partial slabs (list == &free), or kept
//             empty by it, or full and set aside. Only the owner's thread touches the first cache
//             line.
//   kFull     nobody's: every object is in use. Whoever frees into it first adopts it, by one
//             compare-and-swap on `remote`.
//   kCentral  nobody's, with objects to give: in the central list of its class, under its lock.
//
// Invariants, for an owned slab:
//   partial:  carved = used + |free| + |gone|         (used counts what is on `remote`, too)
//   current:  carved = (in use) + |remote| + |its objects in heads[class]|; when that is empty,
//             carved = in use + |remote|; used is biased by kCurrentBias and means nothing
//   set aside: carved = capacity, free is empty and used == 1, so that the first free is noticed
//   gone: objects that start in a discarded page, all of them free; in partial, empty and central
//   slabs only, and only where purged_at != 0
//   An object that a heap holds (thread_heap.h) is in use.
//   0 <= carved <= capacity; the object i lies at base + i * size for i < carved
//   a slab that is not owned has owner == kUnowned
#pragma once

#include <atomic>

#include "base/base.h"

namespace larder {

struct Segment;
struct SamplePoint;
struct ThreadHeap;

// Zero, so that the null slab and the page map around it are zero pages that no file backs.
inline ThreadHeap* const kUnowned = nullptr;

enum class Kind : uint8_t { kNull, kFree, kSlab, kSampled, kSpan, kHuge, kEmergency };

// `used` of the current slab starts here and only falls, so that free needs no other test.
inline constexpr uint32_t kCurrentBias = 1u << 30;

struct alignas(128) Slab {
  // --- written by the owner (for a slab) or under the lock of the page heap.
  std::atomic<uintptr_t> owner_{0};  // a heap, or kUnowned
  void** list = nullptr;             // where the owner's free pushes to
  void* free = nullptr;              // objects to give, linked by their first word
  uint32_t used = 0;
  uint16_t capacity = 0;
  uint8_t size_class = 0;
  Kind kind = Kind::kNull;
  char* base = nullptr;  // first byte of the span
  uint16_t carved = 0;
  uint16_t purged_at = 0;  // 1 + used when pages were last looked for, or 0
  uint32_t pages = 0;      // slabs and spans
  Slab* next = nullptr;
  Slab* prev = nullptr;

  // --- pushed to by anyone. A word: fork generation (16) | address of the first object (48, of
  // which the low 3 bits are the state).
  alignas(64) std::atomic<uint64_t> remote{0};
  // --- constant while an object is allocated, but for `touched` and `gone`.
  size_t bytes = 0;            // of the span or mapping
  uint32_t touched = 0;        // a slab's bytes from the base on that may not be zero
  uint32_t offset = 0;         // of the object in it: colour, alignment
  Segment* segment = nullptr;  // that it is in (its first, if several); not of mappings
  bool zero = false;           // content is known to be zero
  float expected = 0;          // marks on the `charged` bytes, on the average
  uint64_t decommitted =
      0;  // pages of a slab that were discarded: what starts there is not in free
  // Of spans and mappings, for the sampler: on them, or nullptr; bytes that it has counted.
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

// Holds objects of a size class.
inline bool is_small(const Slab* s) { return s->kind == Kind::kSlab || s->kind == Kind::kSampled; }

// Of a slab that a heap owns.
inline bool is_current(const Slab* s) { return s->list != &s->free; }

enum State : uint64_t { kOwned = 0, kFull = 1, kCentral = 2, kStateMask = 7 };

LARDER_FAST void*& next_of(void* object) { return *static_cast<void**>(object); }

// An intrusive list. No locking of its own: belongs to a heap, or to a central list's lock.
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
