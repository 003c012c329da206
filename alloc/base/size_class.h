// Size classes: 8; 16 to 128 by 16; eight per doubling to 8 KiB; four per doubling to 64 KiB.
//
// Invariants:
//   size(c) < size(c + 1);  of(s) = min { c : size(c) >= s } for 0 <= s <= kSmallMax
//   size(c) is a multiple of every power of two that divides some s with of(s) == c: rounding a
//   request up to its alignment and taking its class keeps the alignment (up to kPageBytes).
//   n is a multiple of size(c) <=> n * inverse(c) mod 2^64 < inverse(c), for n within a slab
//   size(c) - s <= 11 % of size(c) for 128 < s <= 8 KiB, <= 20 % to 64 KiB.
#pragma once

#include "base/base.h"
#include "base/policy.h"

namespace larder {

inline constexpr int kClasses = 69;
// Slabs are of 1, 2, 4, 8 or 16 pages.
inline constexpr int kSlabPageSteps = 5;
inline constexpr unsigned kMaxSlabPages = 1u << (kSlabPageSteps - 1);

struct SizeClasses {
  uint8_t of_small[1024 / 8 + 1] = {};          // by (size + 7) / 8
  uint8_t of_medium[kSmallMax / 128 + 1] = {};  // by (size + 127) / 128
  uint32_t size[kClasses] = {};
  uint16_t capacity[kClasses] = {};     // objects in a slab
  uint64_t inverse[kClasses] = {};      // 2^64 / size, rounded up
  uint8_t pages[kClasses] = {};         // pages in a slab
  uint8_t max_deferred[kClasses] = {};  // the bound on deferred frees

  constexpr SizeClasses() {
    int c = 0;
    size[c++] = 8;
    for (uint32_t s = 16; s <= 128; s += 16) size[c++] = s;
    for (uint32_t base = 128; base < 8192; base *= 2)
      for (uint32_t k = 1; k <= 8; ++k) size[c++] = base + k * base / 8;
    for (uint32_t base = 8192; base < kSmallMax; base *= 2)
      for (uint32_t k = 1; k <= 4; ++k) size[c++] = base + k * base / 4;
    for (c = 0; c < kClasses; ++c) {
      pages[c] = pages_for(size[c]);
      capacity[c] = uint16_t(pages[c] * kPageBytes / size[c]);
      inverse[c] = UINT64_MAX / size[c] + 1;
      uint32_t deferred = kDeferBytes / size[c];
      max_deferred[c] = uint8_t(deferred > kMaxDeferred   ? kMaxDeferred
                                : deferred < kMinDeferred ? kMinDeferred
                                                          : deferred);
    }
    c = 0;
    for (size_t s = 0; s <= 1024; s += 8) {
      while (size[c] < s) ++c;
      of_small[s / 8] = uint8_t(c);
    }
    c = 0;
    for (size_t s = 0; s <= kSmallMax; s += 128) {
      while (size[c] < s) ++c;
      of_medium[s / 128] = uint8_t(c);
    }
  }

  // Objects a slab: at least 16 up to 4 KiB, 8 up to 32 KiB, 2 above; 256 KiB at most.
  static constexpr uint8_t pages_for(uint32_t object_size) {
    size_t pages = 1;
    size_t objects = object_size <= 4096 ? 16 : object_size <= 32 * 1024 ? 8 : 2;
    while (pages * kPageBytes < object_size * objects) pages *= 2;
    return uint8_t(pages);
  }
};

inline constexpr SizeClasses kSizeClasses{};
static_assert(kSizeClasses.size[kClasses - 1] == kSmallMax, "the last class must be kSmallMax");

// Writable: LARDER_MIN_ALIGN=16 disables the 8-byte class.
struct SmallClasses {
  uint8_t of[1024 / 8 + 1] = {};
  constexpr SmallClasses() {
    for (size_t i = 0; i <= 1024 / 8; ++i) of[i] = kSizeClasses.of_small[i];
  }
};
inline constinit SmallClasses small_classes;

// size_bytes <= 1024.
LARDER_FAST size_t class_of_small_size(size_t size_bytes) {
  return small_classes.of[(size_bytes + 7) / 8];
}
// 1024 < size_bytes <= kSmallMax.
LARDER_FAST size_t class_of_medium_size(size_t size_bytes) {
  return kSizeClasses.of_medium[(size_bytes + 127) / 128];
}
LARDER_FAST size_t class_of(size_t size_bytes) {
  return size_bytes <= 1024 ? class_of_small_size(size_bytes) : class_of_medium_size(size_bytes);
}

}  // namespace larder
