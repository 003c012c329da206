// Allocations of an arena or a pool: apart from each other, and filled with what nobody may change.
#pragma once

#include <cstring>
#include <iterator>
#include <map>

#include "kit.h"

class Regions {
 public:
  void add(void* memory, size_t size, unsigned char fill) {
    auto* begin = static_cast<unsigned char*>(memory);
    auto above = regions_.lower_bound(begin);
    CHECK(failing::owns(memory, size));
    CHECK(above == regions_.end() || begin + size <= above->first);
    CHECK(above == regions_.begin() ||
          std::prev(above)->first + std::prev(above)->second.size <= begin);
    if (size > 0) {
      std::memset(memory, fill, size);
      regions_[begin] = {size, fill};
    }
  }

  void remove(void* memory) {
    auto found = regions_.find(static_cast<unsigned char*>(memory));
    check(*found);
    regions_.erase(found);
  }

  void check_all() const {
    for (const auto& region : regions_) {
      check(region);
    }
  }

 private:
  struct Region {
    size_t size;
    unsigned char fill;
  };

  static void check(const std::pair<unsigned char* const, Region>& region) {
    for (size_t i = 0; i < region.second.size; i++) {
      CHECK(region.first[i] == region.second.fill);
    }
  }

  std::map<unsigned char*, Region> regions_;
};
