// Blocks of every size from every function of the family, passed between threads, verified, and
// freed or reallocated by the thread that gets them. Usage: remote_patterns [SECONDS [THREADS
// [SEED]]]
//
// Each block has a pattern derived from its address and size, checked before every free and
// realloc; its usable size must not change.

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kSlots = 4096;
constexpr size_t kLargest = kMiB;
constexpr size_t kHuge = 48 * kMiB;

struct Slot {
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  void* block = nullptr;
  size_t size = 0;
  size_t usable = 0;
  uint64_t key = 0;
};

Slot slots[kSlots];
std::atomic<bool> stop{false};
std::atomic<uint64_t> operations{0}, handed_over{0};
size_t seed_base = 1;

struct Owned {
  void* block;
  size_t size, usable;
  uint64_t key;
};

size_t pick_size(Random& random) {
  const size_t kind = random.below(20000);
  if (kind == 0) return random.below(kHuge);
  if (kind < 2000) return random.below(64);
  return random.log_uniform(kLargest);
}

void* make_by_any_member(Random& random, size_t size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t alignment = size_t{16} << random.below(11);
  void* block = nullptr;
  switch (random.below(size > 256 * kKiB ? 8 : 12)) {
    case 0:
    case 1:
      block = calloc(1, size);
      check_zero(block, size);
      return block;
    case 2:
      return realloc(nullptr, size);
    case 3:
      block = aligned_alloc(alignment, size);
      CHECK(is_aligned(block, alignment));
      return block;
    case 4:
      CHECK(posix_memalign(&block, alignment, size) == 0 && is_aligned(block, alignment));
      return block;
    case 5:
      block = random.below(2) == 0 ? valloc(size) : memalign(page, size);
      CHECK(is_aligned(block, page));
      return block;
    case 6:
      return operator new(size);
    case 7:
      return reallocarray(nullptr, size, 1);
    default:
      return malloc(size);
  }
}

Owned make(Random& random) {
  Owned owned;
  owned.size = pick_size(random);
  owned.block = make_by_any_member(random, owned.size);
  CHECK_MSG(owned.block != nullptr, "no memory for %zu bytes", owned.size);
  CHECK_MSG(is_aligned(owned.block, required_alignment(owned.size)), "%p for %zu bytes",
            owned.block, owned.size);
  owned.usable = malloc_usable_size(owned.block);
  CHECK(owned.usable >= owned.size);
  owned.key = pattern_key(owned.block, owned.size);
  fill_pattern(owned.block, owned.size, owned.key);
  return owned;
}

void verify(const Owned& owned) {
  CHECK_MSG(malloc_usable_size(owned.block) == owned.usable, "usable size of %p changed from %zu",
            owned.block, owned.usable);
  CHECK(owned.key == pattern_key(owned.block, owned.size));
  check_pattern(owned.block, owned.size, owned.size, owned.key);
}

void resize(Random& random, Owned& owned) {
  // Near the old size, anywhere, or a growth by half.
  size_t target = pick_size(random) + 1;
  if (random.below(3) == 0) target = owned.size + owned.size / 2 + 1;
  if (random.below(4) == 0) target = owned.size + random.below(64) + 1;
  void* moved = realloc(owned.block, target);
  CHECK_MSG(moved != nullptr, "realloc from %zu to %zu failed", owned.size, target);
  check_pattern(moved, owned.size, target, owned.key);
  owned.block = moved;
  owned.size = target;
  owned.usable = malloc_usable_size(moved);
  CHECK(owned.usable >= target);
  owned.key = pattern_key(moved, target);
  fill_pattern(moved, target, owned.key);
}

void release(Random& random, Owned& owned) {
  verify(owned);
  if (random.below(3) == 0) {
    resize(random, owned);
    verify(owned);
  }
  errno = 7777;
  free(owned.block);
  CHECK_MSG(errno == 7777, "free changed errno");
}

// Puts a block into a slot and takes the previous one.
Owned swap_into_slot(Random& random, Owned owned) {
  for (;;) {
    Slot& slot = slots[random.below(kSlots)];
    if (slot.busy.test_and_set(std::memory_order_acquire)) continue;
    const Owned old = {slot.block, slot.size, slot.usable, slot.key};
    slot.block = owned.block;
    slot.size = owned.size;
    slot.usable = owned.usable;
    slot.key = owned.key;
    slot.busy.clear(std::memory_order_release);
    return old;
  }
}

void* run_thread(void* argument) {
  const auto self = reinterpret_cast<uintptr_t>(argument);
  Random random(self * 1000 + seed_base);
  uint64_t done = 0, handed = 0;
  // One thread in four only takes and frees for long periods; one in four only allocates.
  while (!stop.load(std::memory_order_relaxed)) {
    const size_t burst = 1 + random.below(200);
    const size_t habit = (self + random.below(2)) % 4;
    for (size_t i = 0; i < burst; ++i, ++done) {
      const Owned fresh = habit == 0 ? Owned{} : make(random);
      Owned old = swap_into_slot(random, fresh);
      if (old.block == nullptr) continue;
      ++handed;
      release(random, old);
    }
  }
  operations.fetch_add(done);
  handed_over.fetch_add(handed);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  begin("remote_patterns");
  const size_t seconds = argument(argc, argv, 1, 12);
  const size_t threads = argument(argc, argv, 2, 8);
  seed_base = argument(argc, argv, 3, 1);
  pthread_t handles[64];
  CHECK(threads <= 64);
  for (size_t i = 0; i < threads; ++i) {
    CHECK(pthread_create(&handles[i], nullptr, run_thread, reinterpret_cast<void*>(i)) == 0);
  }
  sleep_ms(static_cast<long>(seconds) * 1000);
  stop.store(true);
  for (size_t i = 0; i < threads; ++i) CHECK(pthread_join(handles[i], nullptr) == 0);
  Random random(5);
  size_t live = 0;
  for (auto& slot : slots) {
    if (slot.block == nullptr) continue;
    Owned owned = {slot.block, slot.size, slot.usable, slot.key};
    live += owned.size;
    release(random, owned);
  }
  say("%zu threads, %zu s: %lu operations, %lu blocks handed over, %.1f MiB live at the end, peak "
      "resident %.1f MiB, %zu mappings",
      threads, seconds, static_cast<unsigned long>(operations.load()),
      static_cast<unsigned long>(handed_over.load()), mib(live), mib(status_bytes("VmHWM:")),
      mapping_count());
  CHECK(operations.load() > 1000);
  return 0;
}
