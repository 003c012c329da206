// Colour: the offset of a large object's first byte.
//
// Objects that all start at a system page put equal offsets of several arrays into the same cache
// sets, and make loads seem to depend on stores 4 KiB away (Chadd, 2015: half the speed). So a
// large object starts at a rotating cache line within the slack of its rounding. An object with a
// requested alignment has colour 0.
#pragma once

#include <atomic>

#include "base/policy.h"
#include "os/options.h"

namespace larder {

// A multiple of the cache line, <= slack_bytes and < kColourSpan. Any thread.
inline uint32_t next_colour(size_t slack_bytes) {
  static constinit std::atomic<uint32_t> turn{0};
  constexpr uint32_t kColours = kColourSpan / kCacheLine;
  if (slack_bytes < kCacheLine || option(Option::kColour) == 0) return 0;
  // Relaxed, and no read-modify-write: two threads with the same turn do no harm.
  uint32_t mine = turn.load(std::memory_order_relaxed);
  turn.store(mine + 1, std::memory_order_relaxed);
  uint32_t step = mine * kColourStride;
  uint32_t fit = slack_bytes < kColourSpan ? uint32_t(slack_bytes / kCacheLine) + 1 : kColours;
  return (fit >= kColours ? step % kColours : step % fit) * uint32_t{kCacheLine};
}

}  // namespace larder
