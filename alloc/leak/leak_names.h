// The names of all functions in the stacks of some sums, looked up together.
#pragma once

#include "leak/leak.h"
#include "sample/symbol.h"

namespace larder {

class LeakNames {
 public:
  LeakNames(const LeakSum* sums, size_t count);
  ~LeakNames();
  LeakNames(const LeakNames&) = delete;
  LeakNames& operator=(const LeakNames&) = delete;

  // nullptr without memory.
  const Symbol* find(uintptr_t address) const;

 private:
  Symbol* symbols_ = nullptr;
  size_t room_ = 0, count_ = 0, bytes_ = 0;
};

// The demangled name, if the program has a C++ library; else the name itself.
class PlainName {
 public:
  explicit PlainName(const Symbol& symbol);
  ~PlainName();
  PlainName(const PlainName&) = delete;
  PlainName& operator=(const PlainName&) = delete;
  const char* get() const { return plain_ != nullptr ? plain_ : name_; }

 private:
  const char* name_;
  char* plain_ = nullptr;
};

}  // namespace larder
