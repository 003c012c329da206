// A line for stderr without libc: malloc may write it.
#pragma once

#include "base/policy.h"
#include "base/text.h"
#include "os/os.h"

namespace larder {

class Line {
 public:
  Line() { put("larder: "); }
  // Shows other characters than printable ASCII as question marks. Cuts at `limit` characters.
  Line& put(const char* text, size_t limit = kMaxShownText) {
    for (size_t i = 0; i < limit && text[i] != 0 && length_ < sizeof text_ - 1; ++i)
      text_[length_++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    return *this;
  }
  Line& put_number(size_t value, unsigned base = 10) { return put(Digits(value, base).text()); }
  void write() {
    text_[length_++] = '\n';
    os::write_stderr(text_, length_);
  }

 private:
  char text_[1024];
  size_t length_ = 0;
};

}  // namespace larder
