// Planted bugs, to prove that the torture test finds them: the malloc family with one bug
// (-DLARDER_PLANT=KIND), around the allocator, which is linked beside it under its prefix.
//
// A bug strikes once in some thousands of calls, in any thread. State between calls is atomic, so
// that the planted bug is the only one.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "core/exported.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "os/os.h"

namespace larder::planted {
namespace {

enum class Bug {
  overlap,          // an object within another
  double_hand_out,  // one object to two threads
  misaligned,       // an object 8 bytes behind an aligned address
  lost_content,     // a byte changed by realloc
  late_overwrite,   // a word written into an object that another thread freed and reused
  usable_moves,     // one byte more than at the call before
  usable_too_small,
  dirty_calloc,  // a byte that is not zero
  changed_errno,
  no_memory,   // NULL although there is memory
  growth,      // a free that does nothing
  stale_last,  // the last object is freed without the owner test
  hoard,       // a heap that only frees keeps all slabs that it adopts
  miscount,    // a slab counts an object too many, which only a heap walk shows
  hang,        // a call that never returns
  crash,       // a wild write
};

constexpr Bug kBug = Bug::LARDER_PLANT;

// True once in `once_in` calls.
bool strikes(uint32_t once_in = 5000) {
  static constinit std::atomic<uint32_t> calls{0};  // relaxed: a count
  return calls.fetch_add(1, std::memory_order_relaxed) % once_in == once_in - 1;
}

constinit std::atomic<char*> remembered{nullptr};
constinit std::atomic<uint32_t> remembered_by{0};
// Handed out twice, so never freed: a torn list would crash before the test reports.
constinit std::atomic<char*> doubled{nullptr};
constinit std::atomic<size_t> remembered_size{0};

size_t asked_for(size_t size) {
  if constexpr (kBug == Bug::misaligned || kBug == Bug::overlap) return size + 64;
  if constexpr (kBug == Bug::usable_too_small)
    if (size > 2048 && size <= kSmallMax && strikes()) return size / 2;
  return size;
}

// Replaces the object p of malloc(size).
void* handed_out(void* p, size_t size) {
  auto* object = static_cast<char*>(p);
  if (p == nullptr) return p;
  if constexpr (kBug == Bug::overlap) {
    // The next object of up to 32 bytes lies in this one.
    if (char* other = size <= 32 ? remembered.exchange(nullptr) : nullptr) return other + 32;
    if (size >= 16 && strikes()) remembered = object;
  }
  if constexpr (kBug == Bug::double_hand_out) {
    if (char* other = remembered;
        other && remembered_size == size && remembered_by != thread_id()) {
      doubled = other;
      if (remembered.compare_exchange_strong(other, nullptr)) return other;
    }
    if (size <= 64 && strikes()) {
      remembered_by = thread_id();
      remembered_size = size;
      remembered = object;
    }
  }
  if constexpr (kBug == Bug::misaligned)
    if (size >= 16 && strikes()) return object + 8;
  if constexpr (kBug == Bug::no_memory) {
    if (strikes()) {
      errno = ENOMEM;
      return nullptr;
    }
  }
  if constexpr (kBug == Bug::hang)
    if (strikes())
      for (;;) os::yield();
  if constexpr (kBug == Bug::crash)
    if (strikes()) {
      uintptr_t nowhere = 64;
      asm volatile("" : "+r"(nowhere));
      *reinterpret_cast<volatile char*>(nowhere) = 1;
    }
  return p;
}

// Changes the object of calloc.
void* zeroed(void* p, size_t size) {
  if constexpr (kBug == Bug::dirty_calloc)
    if (p != nullptr && size != 0 && strikes()) static_cast<char*>(p)[size * 7 / 8] = 1;
  return p;
}

// The object may be freed: it must not be handed out again while it is live.
void forget(void* p) {
  if constexpr (kBug == Bug::overlap || kBug == Bug::double_hand_out) {
    auto* object = static_cast<char*>(p);
    if (p != nullptr) remembered.compare_exchange_strong(object, nullptr);
  }
}

// The bytes that realloc of p to `size` must preserve.
size_t preserved_bytes(void* p, const Slab* s, size_t size) {
  forget(p);
  if constexpr (kBug != Bug::lost_content) return 0;
  if (s->kind == Kind::kNull) return 0;
  size_t old = usable_size(s);
  return old < size ? old : size;
}

// Changes the object of realloc, of which `preserved` bytes are old.
void* resized(void* p, size_t preserved) {
  if constexpr (kBug == Bug::lost_content)
    if (p != nullptr && preserved != 0 && strikes()) static_cast<char*>(p)[preserved / 2] ^= 0x10;
  return p;
}

// False: the free is dropped.
bool to_be_freed(void* p) {
  forget(p);
  if constexpr (kBug == Bug::double_hand_out)
    if (p != nullptr && p == doubled) return false;
  if constexpr (kBug == Bug::growth) return p == nullptr || !strikes();
  if constexpr (kBug == Bug::stale_last) {
    if (uintptr_t(p) != thread_state.last) return true;
    Link* head = thread_state.last_head;
    set_next(p, *head);
    *head = p;
    return false;
  }
  if constexpr (kBug == Bug::hoard)
    if (ThreadHeap* heap = thread_state.heap)
      heap->bins[page_map.find(p)->size_class].idle_adoptions = 0;
  if constexpr (kBug == Bug::miscount) {
    // Not on the full list, where `used` is always 1.
    Slab* s = page_map.find(p);
    if (s->kind == Kind::kSlab && s->owned_by(thread_state.owner) && !is_current(s) &&
        s->used > 1 && strikes())
      ++s->used;
  }
  if constexpr (kBug == Bug::late_overwrite) {
    static constinit std::atomic<uint32_t> calls{0};
    if (p == nullptr) return true;
    // The second word: the first links free objects, and would crash the allocator.
    if (calls.fetch_add(1) % 512 == 0)
      if (char* object = remembered.exchange(nullptr)) memset(object + 8, 0xA5, 8);
    Slab* s = page_map.find(p);
    // One free in ten is of another thread's object.
    if (s->kind == Kind::kSlab && s->owner() != thread_state.heap &&
        kSizeClasses.size[s->size_class] >= 16 && strikes(500))
      remembered = static_cast<char*>(p);
  }
  return true;
}

void freed() {
  if constexpr (kBug == Bug::changed_errno)
    if (strikes()) errno = EAGAIN;
}

size_t usable(size_t bytes) {
  if constexpr (kBug == Bug::usable_moves)
    if (bytes != 0 && strikes()) return bytes + 1;
  return bytes;
}

}  // namespace
}  // namespace larder::planted

using namespace larder;

LARDER_EXPORT void* malloc(size_t size) noexcept {
  return planted::handed_out(larder_malloc(planted::asked_for(size)), size);
}

LARDER_EXPORT void free(void* p) noexcept {
  if (!planted::to_be_freed(p)) return;
  larder_free(p);
  planted::freed();
}

LARDER_EXPORT void* calloc(size_t count, size_t size) noexcept {
  return planted::zeroed(larder_calloc(count, size), count * size);
}

LARDER_EXPORT void* realloc(void* p, size_t size) noexcept {
  if (p == nullptr || size == 0) return larder_realloc(p, size);
  size_t preserved = planted::preserved_bytes(p, page_map.find(p), size);
  return planted::resized(larder_realloc(p, size), preserved);
}

LARDER_EXPORT void* reallocarray(void* p, size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return larder_reallocarray(p, count, size);
  return realloc(p, bytes);
}

LARDER_EXPORT void free_sized(void* p, size_t) noexcept { free(p); }

LARDER_EXPORT void free_aligned_sized(void* p, size_t, size_t) noexcept { free(p); }

LARDER_EXPORT void* aligned_alloc(size_t align, size_t size) noexcept {
  return larder_aligned_alloc(align, size);
}

LARDER_EXPORT int posix_memalign(void** memptr, size_t align, size_t size) noexcept {
  return larder_posix_memalign(memptr, align, size);
}

LARDER_EXPORT void* memalign(size_t align, size_t size) noexcept {
  return larder_memalign(align, size);
}

LARDER_EXPORT void* valloc(size_t size) noexcept { return larder_valloc(size); }

LARDER_EXPORT void* pvalloc(size_t size) noexcept { return larder_pvalloc(size); }

LARDER_EXPORT size_t malloc_usable_size(void* p) noexcept {
  // Larder would report the object within another.
  if constexpr (planted::kBug == planted::Bug::overlap)
    return p == nullptr ? 0 : usable_size(page_map.find(p));
  return planted::usable(larder_malloc_usable_size(p));
}

#include "core/other_names.h"
