#include "base/text.h"

namespace larder {

Digits::Digits(uint64_t value, unsigned base, int least) {
  text_[first_] = 0;
  do text_[--first_] = "0123456789abcdef"[value % base];
  while ((value /= base) != 0 || int(sizeof text_) - 1 - first_ < least);
}

TextBuffer& TextBuffer::put(const char* text) {
  for (; *text != 0 && length_ + 1 < capacity_; ++text) to_[length_++] = *text;
  to_[length_] = 0;
  fits_ = fits_ && *text == 0;
  return *this;
}

TextBuffer& TextBuffer::put_pattern(const char* pattern, uint64_t number) {
  for (const char* at = pattern; *at != 0; ++at) {
    const char one[] = {*at, 0};
    bool is_number = at[0] == '%' && at[1] == 'p';
    put(is_number ? Digits(number).text() : one);
    if (is_number) ++at;
  }
  return *this;
}

}  // namespace larder
