// Text that grows in memory outside of the heap.
#pragma once

#include "os/os.h"

namespace larder {

class MappedText {
 public:
  MappedText() = default;
  ~MappedText() { clear(); }
  MappedText(const MappedText&) = delete;
  MappedText& operator=(const MappedText&) = delete;

  // A sink (writer.h) whose context is a MappedText. 0, or ENOMEM.
  static int add(void* text, const char* more, size_t bytes);
  int add(const char* more, size_t bytes) { return add(this, more, bytes); }
  // Unmaps the text.
  void clear();

  // Terminated by a zero.
  const char* text() const { return text_ != nullptr ? text_ : ""; }
  size_t length() const { return length_; }
  size_t capacity() const { return capacity_; }

 private:
  char* text_ = nullptr;
  size_t length_ = 0, capacity_ = 0;
};

}  // namespace larder
