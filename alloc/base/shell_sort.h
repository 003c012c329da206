// Sorting without libc, whose sort may allocate. O(n^1.5) at worst, in place.
#pragma once

#include "base/base.h"

namespace larder {

template <typename T, typename Less>
void shell_sort(T* items, size_t count, Less less) {
  if (items == nullptr) return;
  size_t gap = 1;
  while (gap < count / 3) gap = gap * 3 + 1;
  for (; gap > 0; gap /= 3)
    for (size_t i = gap; i < count; ++i) {
      T item = items[i];
      size_t j = i;
      for (; j >= gap && less(item, items[j - gap]); j -= gap) items[j] = items[j - gap];
      items[j] = item;
    }
}

}  // namespace larder
