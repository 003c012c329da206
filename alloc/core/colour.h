// Offsets of large objects.
//
// Blocks that all start at a page boundary put equal offsets of several arrays into the same cache
// sets, and make loads seem to depend on stores 4 KiB away (Chadd, 2015: half of the speed). So a
// large object starts at a rotating multiple of the cache line, inside slack that its rounding left
// anyway; never where the caller asked for an alignment.
#pragma once

#include <atomic>

#include "os/options.h"

namespace larder {

inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kColourSpan = 4096;  // the distance at which addresses alias

// A multiple of the cache line, <= slack_bytes and < kColourSpan. Any thread.
inline uint32_t next_colour(size_t slack_bytes) {
  static constinit std::atomic<uint32_t> turn{0};
  constexpr uint32_t kPlaces = kColourSpan / kCacheLine;
  if (slack_bytes < kCacheLine || option(Option::kColour) == 0) return 0;
  // Not a read-modify-write: two threads that take the same turn do no harm.
  uint32_t mine = turn.load(std::memory_order_relaxed);
  turn.store(mine + 1, std::memory_order_relaxed);
  // An odd stride visits every place; neighbours in time lie far apart.
  uint32_t place = mine * 11;
  uint32_t fit = slack_bytes < kColourSpan ? uint32_t(slack_bytes / kCacheLine) + 1 : kPlaces;
  return (fit >= kPlaces ? place % kPlaces : place % fit) * uint32_t{kCacheLine};
}

}  // namespace larder
