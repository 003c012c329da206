// Writes text into a sink, a buffer at a time: no libc, no allocation.
#pragma once

#include <string.h>

#include "base/text.h"

namespace larder {

// Takes a part of the text. Returns 0, or an error of errno.h. Must not allocate.
using TextSink = int (*)(void* context, const char* text, size_t bytes);

class Writer {
 public:
  Writer(TextSink sink, void* context) : sink_(sink), context_(context) {}
  void put(const char* text) { put(text, strlen(text)); }
  void put(const char* text, size_t size) {
    for (; size > 0; --size) {
      if (used_ == sizeof text_) flush();
      text_[used_++] = *text++;
    }
  }
  // Rounded to the nearest integer.
  void number(double value) {
    if (value < 0) put("-");
    double size = value < 0 ? -value : value;
    auto rest = uint64_t(size);
    whole(size - double(rest) >= 0.5 ? rest + 1 : rest);
  }
  void whole(uint64_t value) { put(Digits(value).text()); }
  void address(uintptr_t value) {
    put("0x");
    put(Digits(value, 16).text());
  }
  void flush() {
    if (error_ == 0 && used_ != 0) error_ = sink_(context_, text_, used_);
    used_ = 0;
  }
  int error() const { return error_; }

 private:
  TextSink sink_;
  void* context_;
  int error_ = 0;
  size_t used_ = 0;
  char text_[2048];
};

}  // namespace larder
