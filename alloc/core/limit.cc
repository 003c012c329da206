#include "core/limit.h"

#include "base/stats.h"

namespace larder::limit {

constinit State state;

size_t lowest() {
  size_t s = soft(), h = hard();
  return s == 0 || (h != 0 && h < s) ? h : s;
}

size_t held_bytes() {
  auto mapped = size_t(stats::get(stats::kMappedBytes));
  size_t clean = state.clean_bytes.load(std::memory_order_relaxed);
  return mapped > clean ? mapped - clean : 0;
}

bool allows_now(size_t more_bytes) {
  size_t held = held_bytes();
  if (hard() != 0 && (held > hard() || more_bytes > hard() - held)) return false;
  if (soft() != 0 && (held > soft() || more_bytes > soft() - held))
    state.crossed.store(true, std::memory_order_relaxed);
  return true;
}

void press() { state.pressed.store(true, std::memory_order_relaxed); }

void relax() {
  state.pressed.store(false, std::memory_order_relaxed);
  state.reported.store(false, std::memory_order_relaxed);
}

}  // namespace larder::limit
