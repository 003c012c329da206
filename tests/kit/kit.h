// The parts of the kit, with memory that is counted and fails on demand. One thread.
#pragma once

#include <cstdlib>
#include <iterator>
#include <map>

#include "choices.h"

namespace failing {

// Allocations that still succeed; negative: all do.
inline int countdown = -1;
inline bool failed = false;

// The sizes of the live allocations by their addresses.
inline std::map<char*, size_t> blocks;
inline size_t live_bytes = 0;

inline void* note(void* p, size_t size) {
  blocks[static_cast<char*>(p)] = size;
  live_bytes += size;
  return p;
}

inline void forget(void* p) {
  if (p != nullptr) {
    auto found = blocks.find(static_cast<char*>(p));
    CHECK(found != blocks.end());
    live_bytes -= found->second;
    blocks.erase(found);
  }
}

// Whether all of this is in one live allocation. What unpoisons memory also hides from
// AddressSanitizer that it is outside.
inline bool owns(void* p, size_t size) {
  auto above = blocks.upper_bound(static_cast<char*>(p));
  return above != blocks.begin() &&
         static_cast<char*>(p) + size <= std::prev(above)->first + std::prev(above)->second;
}

inline bool fails() {
  if (countdown == 0) {
    return failed = true;
  }
  countdown -= countdown > 0;
  return false;
}

inline void* allocate(size_t size) {
  if (fails()) {
    return nullptr;
  }
  return note(std::malloc(size), size);
}

inline void* reallocate(void* p, size_t size) {
  if (fails()) {
    return nullptr;
  }
  forget(p);
  return note(std::realloc(p, size), size);
}

inline void release(void* p) {
  forget(p);
  std::free(p);
}

// During one operation in eight, an allocation fails: the first or the second.
class Chance {
 public:
  explicit Chance(Choices& choices) {
    failed = false;
    countdown = choices.one_in(8) ? int(choices.below(2)) : -1;
  }
  ~Chance() { countdown = -1; }
  Chance(const Chance&) = delete;
  Chance& operator=(const Chance&) = delete;

  // An operation reports success if and only if no allocation failed.
  bool agrees(bool success) const { return success != failed; }
};

}  // namespace failing

#define LARDER_KIT_MALLOC failing::allocate
#define LARDER_KIT_REALLOC failing::reallocate
#define LARDER_KIT_FREE failing::release

#include "larder/kit/arena.h"
#include "larder/kit/buffer.h"
#include "larder/kit/bytes.h"
#include "larder/kit/hash.h"
#include "larder/kit/intern.h"
#include "larder/kit/list.h"
#include "larder/kit/number.h"
#include "larder/kit/pool.h"
#include "larder/kit/small_array.h"
#include "larder/kit/text.h"

// Whether AddressSanitizer would report a use of these bytes; true without it.
inline bool is_poisoned(void* p, size_t size) {
#ifdef LARDER_KIT_ASAN
  for (size_t i = 0; i < size; i++) {
    if (__asan_address_is_poisoned(static_cast<char*>(p) + i) == 0) {
      return false;
    }
  }
#else
  (void)p, (void)size;
#endif
  return true;
}
