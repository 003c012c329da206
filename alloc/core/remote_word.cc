#include "core/remote_word.h"

#include "base/single_threaded.h"

namespace larder {

namespace {

constinit std::atomic<uint64_t> generation{
    0};  // relaxed: written in a child of fork, by its one thread

constexpr int kGenerationShift = 48;
constexpr uint64_t kPointerMask = (uint64_t{1} << kGenerationShift) - 1 - kStateMask;

uint64_t generation_bits() {
  return generation.load(std::memory_order_relaxed) << kGenerationShift;
}
// The list of a word; nullptr if it was pushed before the last fork.
void* list_of(uint64_t word) {
  bool current = word >> kGenerationShift == generation_bits() >> kGenerationShift;
  return current ? reinterpret_cast<void*>(word & kPointerMask) : nullptr;
}

// Replaces the word if it still is `seen`, else updates `seen`. In a process of one thread it
// cannot have changed, and relaxed is enough.
bool replace(Slab* s, uint64_t& seen, uint64_t with, std::memory_order order) {
  if (single_threaded()) {
    s->remote.store(with, std::memory_order_relaxed);
    return true;
  }
  return s->remote.compare_exchange_strong(seen, with, order, std::memory_order_relaxed);
}

}  // namespace

bool remote_try_push(Slab* s, const Chain& chain) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  if ((word & kStateMask) != kOwned) return false;
  set_next(chain.tail, list_of(word));
  return replace(s, word, generation_bits() | uintptr_t(chain.head), std::memory_order_release);
}

bool remote_try_adopt(Slab* s) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  return (word & kStateMask) == kFull &&
         replace(s, word, generation_bits() | kOwned, std::memory_order_acquire);
}

void* remote_take(Slab* s) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  if ((word & kPointerMask) == 0) return nullptr;
  return list_of(s->remote.exchange(generation_bits() | kOwned, std::memory_order_acquire));
}

void* remote_list(const Slab* s) { return list_of(s->remote.load(std::memory_order_acquire)); }

bool remote_release(Slab* s, State state) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  while (list_of(word) == nullptr)
    if (replace(s, word, generation_bits() | state, std::memory_order_release)) return true;
  return false;
}

void remote_reset(Slab* s) {
  s->remote.store(generation_bits() | kOwned, std::memory_order_release);
}

void remote_new_generation() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace larder
