#include "calls.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "index.h"
#include "run.h"

namespace torture {

namespace {

// No error has this number, and no allocator writes it.
constexpr int kUntouched = 0x5AFE;

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
char huge_blocks;
constexpr size_t kHuge = kMiB;
// The kernel orders a raw munmap before the mmap that gets the same addresses; ThreadSanitizer does
// not see that.
void before_unmapping(size_t bytes) {
  if (bytes >= kHuge) __tsan_release(&huge_blocks);
}
void after_mapping(size_t bytes) {
  if (bytes >= kHuge) __tsan_acquire(&huge_blocks);
}
#else
void before_unmapping(size_t) {}
void after_mapping(size_t) {}
#endif

void enter(const char* call, const void* p, size_t size, size_t align) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  where->call.store(call, kRelaxed);
  where->address.store(reinterpret_cast<uintptr_t>(p), kRelaxed);
  where->size.store(size, kRelaxed);
  where->align.store(align, kRelaxed);
  where->calls.store(where->calls.load(kRelaxed) + 1, kRelaxed);
  errno = kUntouched;
}

// Threads would wait for each other at every block if each were counted in the total at once.
constexpr int64_t kCountedAtOnce = 64 * kKiB;

void count_live(int64_t bytes) {
  bytes += where->uncounted;
  where->uncounted = bytes;
  if (-kCountedAtOnce < bytes && bytes < kCountedAtOnce) return;
  where->uncounted = 0;
  int64_t live = totals.live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = totals.live_peak.load(std::memory_order_relaxed);
  while (peak < live && !totals.live_peak.compare_exchange_weak(peak, live)) {
  }
}

void require_errno_kept(const char* outcome, const Block& block) {
  if (errno != kUntouched && !is_ignored(Fault::kChangedErrno))
    fault(Fault::kChangedErrno, where, &block, nullptr, "%s has set errno to %d%s",
          where->call.load(), errno, outcome);
}

// max_align_t if one fits; below, what an object of that size may need.
size_t natural_align(size_t size) {
  size_t align = 1;
  while (align < 16 && align * 2 <= size) align *= 2;
  return align;
}

size_t required_align(const Block& block) {
  if (block.asked == 0 && block.make != Make::kPvalloc && !family.promises_more) return 1;
  if (block.make == Make::kValloc || block.make == Make::kPvalloc)
    return size_t(sysconf(_SC_PAGESIZE));
  size_t natural = natural_align(block.asked);
  return block.align > natural ? block.align : natural;
}

size_t query_usable(const Block& block) {
  if (family.usable_size == nullptr || block.p == nullptr) return block.asked;
  return family.usable_size(block.p);
}

void check_usable(const Block& block) {
  size_t usable = query_usable(block);
  if (usable != block.usable)
    fault(Fault::kUsableMoves, where, &block, nullptr,
          "malloc_usable_size was %zu when the block was allocated, and is now %zu", block.usable,
          usable);
}

[[noreturn]] void report_overlap(const Block& block, const Block& other) {
  if (other.p == nullptr)
    fault(Fault::kOverlap, where, &block, nullptr,
          "the block overlaps another that was still live, and has been freed since");
  bool same = other.p == block.p;
  fault(same ? Fault::kDoubleHandOut : Fault::kOverlap, where, &block, &other,
        same ? "the address is that of a block that is still live"
             : "the block overlaps another that is still live");
}

// Checks a block that the allocator has just returned, and adds it to the index.
void accept(Block* block) {
  size_t align = required_align(*block);
  if (reinterpret_cast<uintptr_t>(block->p) % align != 0 && !is_ignored(Fault::kMisaligned))
    fault(Fault::kMisaligned, where, block, nullptr, "%p is not a multiple of %zu",
          static_cast<void*>(block->p), align);
  block->usable = query_usable(*block);
  size_t least = block->make == Make::kPvalloc
                     ? (block->asked + required_align(*block) - 1) & ~(required_align(*block) - 1)
                     : block->asked;
  if (block->usable < least)
    fault(Fault::kUsableTooSmall, where, block, nullptr, "%zu bytes are usable, %zu must be",
          block->usable, least);
  check_usable(*block);
  Block other = {};
  live_blocks::Added added = live_blocks::insert(*block, &other);
  if (added == live_blocks::Added::kNoMemory) give_up("no memory for the index of live blocks");
  if (added == live_blocks::Added::kOverlaps) report_overlap(*block, other);
  count_live(int64_t(block->usable));
}

// The block's bytes may change afterwards.
void retire(const Block& block) {
  if (!live_blocks::remove(block)) give_up("the index has lost the block at %p", block.p);
  count_live(-int64_t(block.usable));
}

void check_content(const Block& block) {
  Damage damage;
  if (check_pattern(block.p, block.usable, block.id, &damage)) return;
  char text[256];
  describe_damage(damage, text, sizeof text);
  fault(Fault::kDamaged, where, &block, nullptr,
        "the block changed although no thread wrote to it; %s", text);
}

void check_kept(const Block& block, const Block& old) {
  size_t kept = old.asked < block.asked ? old.asked : block.asked;
  Damage damage;
  if (check_pattern(block.p, kept, block.id, &damage)) return;
  char text[256];
  describe_damage(damage, text, sizeof text);
  fault(Fault::kLostContent, where, &block, nullptr,
        "realloc from %zu to %zu bytes (%p to %p) lost contents; %s", old.asked, block.asked,
        static_cast<void*>(old.p), static_cast<void*>(block.p), text);
}

void* call(Make make, size_t size, size_t align) {
  switch (make) {
    case Make::kMalloc:
      return family.malloc(size);
    case Make::kCalloc: {
      // As many factors as the size has.
      size_t count = size % 24 == 0 ? 24 : size % 7 == 0 ? 7 : 1;
      return family.calloc(size / count, count);
    }
    case Make::kRealloc:
      return family.realloc(nullptr, size);
    case Make::kAlignedAlloc:
      return family.aligned_alloc(align, size);
    case Make::kPosixMemalign: {
      void* p = nullptr;
      int error = family.posix_memalign(&p, align, size);
      return error == 0 ? p : nullptr;
    }
    case Make::kMemalign:
      return family.memalign(align, size);
    case Make::kValloc:
      return family.valloc(size);
    case Make::kPvalloc:
      return family.pvalloc(size);
    default:
      return operator_new(make, size, align);
  }
}

[[noreturn]] void no_memory(const Block& block) {
  fault(Fault::kNoMemory, where, &block, nullptr,
        "%s gives no block of %zu bytes (errno %d) with %lld MiB live, RSS %zu MiB, address space "
        "%zu MiB",
        where->call.load(), block.asked, errno,
        static_cast<long long>(totals.live_bytes.load() >> 20), resident_bytes() >> 20,
        address_space_bytes() >> 20);
}

// The place has the block before it is in the index, so that a report can name it.
void obtain(Block* block, Make make, size_t size, size_t align, uint64_t id, bool listed) {
  block->p = nullptr;
  block->asked = size;
  block->usable = 0;
  block->align = takes_alignment(make) ? align : 0;
  block->id = id;
  block->make = make;
  block->listed = listed;
  enter(make_name(make), nullptr, size, block->align);
  block->p = static_cast<unsigned char*>(call(make, size, align));
  if (block->p == nullptr) no_memory(*block);
  if (family.promises_more) require_errno_kept(" on success", *block);
  after_mapping(size);
  accept(block);
  if (make == Make::kCalloc) {
    size_t at = first_nonzero(block->p, size);
    if (at != size)
      fault(Fault::kDirtyCalloc, where, block, nullptr,
            "the byte at offset %zu is 0x%02x instead of zero", at, block->p[at]);
  }
  fill_pattern(block->p, 0, block->usable, block->id);
  if (listed) live_blocks::mark_filled(*block);
}

}  // namespace

Block allocate(Make make, size_t size, size_t align, uint64_t id) {
  Block block;
  obtain(&block, make, size, align, id, true);
  return block;
}

void allocate_unlisted(Block* block, Make make, size_t size, size_t align, uint64_t id) {
  obtain(block, make, size, align, id, false);
}

void check(const Block& block) {
  enter("a check of the block", block.p, block.asked, block.align);
  check_usable(block);
  check_content(block);
}

void release(const Block& block, unsigned form) {
  check(block);
  before_unmapping(block.usable);
  retire(block);
  unsigned way = form % 4;
  if (is_operator(block.make)) {
    enter("operator delete", block.p, block.asked, block.align);
    where->call.store(operator_delete(block.make, block.p, block.asked, block.align, form / 4),
                      std::memory_order_relaxed);
    require_errno_kept("", block);
    return;
  }
  if (way == 0 && block.make <= Make::kRealloc && family.free_sized != nullptr) {
    enter("free_sized", block.p, block.asked, 0);
    family.free_sized(block.p, block.asked);
  } else if (way == 1 && block.make == Make::kAlignedAlloc &&
             family.free_aligned_sized != nullptr) {
    enter("free_aligned_sized", block.p, block.asked, block.align);
    family.free_aligned_sized(block.p, block.align, block.asked);
  } else {
    enter("free", block.p, block.asked, 0);
    family.free(block.p);
  }
  require_errno_kept("", block);
}

void resize(Block* block, size_t size, bool array) {
  check(*block);
  Block old = *block;
  before_unmapping(old.usable);
  retire(old);
  array = array && family.reallocarray != nullptr && size % 4 == 0;
  enter(array ? "reallocarray" : "realloc", old.p, size, 0);
  void* p = array ? family.reallocarray(old.p, size / 4, 4) : family.realloc(old.p, size);
  block->p = static_cast<unsigned char*>(p);
  block->asked = size;
  block->align = 0;
  block->make = Make::kRealloc;
  if (p == nullptr) no_memory(*block);
  if (family.promises_more) require_errno_kept(" on success", *block);
  after_mapping(size);
  accept(block);
  check_kept(*block, old);
  size_t kept = old.asked < size ? old.asked : size;
  fill_pattern(block->p, kept, block->usable, block->id);
  if (block->listed) live_blocks::mark_filled(*block);
}

namespace {

void require_refused(const void* p, int expected) {
  if ((p == nullptr && errno == expected) || is_ignored(Fault::kWrongResult)) return;
  fault(Fault::kWrongResult, where, nullptr, nullptr,
        "%s with size %zu and alignment %zu gives %p and errno %d; NULL and errno %d are due",
        where->call.load(), where->size.load(), where->align.load(), p, errno, expected);
}

}  // namespace

void ask_for_the_impossible(unsigned which) {
  constexpr size_t kTooMuch = size_t(PTRDIFF_MAX) + 1;
  switch (which % 6) {
    case 0:
      enter("malloc", nullptr, kTooMuch, 0);
      return require_refused(family.malloc(kTooMuch), ENOMEM);
    case 1:
      if (family.calloc == nullptr) return;
      enter("calloc", nullptr, SIZE_MAX / 2, 0);
      return require_refused(family.calloc(SIZE_MAX / 2, 3), ENOMEM);
    case 2: {
      if (family.realloc == nullptr) return;
      Block block = allocate(Make::kMalloc, 100, 0, 1);
      enter("realloc", block.p, kTooMuch, 0);
      require_refused(family.realloc(block.p, kTooMuch), ENOMEM);
      return release(block, 3);
    }
    case 3:
      if (family.reallocarray == nullptr) return;
      enter("reallocarray", nullptr, SIZE_MAX / 4, 0);
      return require_refused(family.reallocarray(nullptr, SIZE_MAX / 4, 8), ENOMEM);
    case 4: {
      if (family.posix_memalign == nullptr) return;
      static char untouched;
      void* p = &untouched;
      enter("posix_memalign", nullptr, 100, 24);
      int error = family.posix_memalign(&p, 24, 100);
      if ((error != EINVAL || p != &untouched) && !is_ignored(Fault::kWrongResult))
        fault(Fault::kWrongResult, where, nullptr, nullptr,
              "posix_memalign with alignment 24 gives %d; EINVAL and an untouched pointer are due",
              error);
      return;
    }
    default:
      if (family.aligned_alloc == nullptr) return;
      enter("aligned_alloc", nullptr, kTooMuch, 64);
      return require_refused(family.aligned_alloc(64, kTooMuch), ENOMEM);
  }
}

}  // namespace torture
