// Text without libc: numbers as digits, and text in a fixed array.
#pragma once

#include "base/base.h"

namespace larder {

class Digits {
 public:
  // At least `least` digits, padded with zeros; base 10 or 16.
  explicit Digits(uint64_t value, unsigned base = 10, int least = 1);
  const char* text() const { return text_ + first_; }

 private:
  char text_[24];
  int first_ = sizeof text_ - 1;
};

// Writes to the caller's array, always terminated by a zero. Drops what does not fit.
class TextBuffer {
 public:
  TextBuffer(char* to, size_t capacity) : to_(to), capacity_(capacity) { to_[0] = 0; }
  TextBuffer& put(const char* text);
  TextBuffer& put_number(uint64_t value, int least_digits = 1) {
    return put(Digits(value, 10, least_digits).text());
  }
  // Replaces %p by the number.
  TextBuffer& put_pattern(const char* pattern, uint64_t number);
  size_t length() const { return length_; }
  bool fits() const { return fits_; }

 private:
  char* to_;
  size_t capacity_, length_ = 0;
  bool fits_ = true;
};

}  // namespace larder
