#include "os/mapped_text.h"

#include <errno.h>
#include <string.h>

namespace larder {

int MappedText::add(void* text, const char* more, size_t bytes) {
  auto* to = static_cast<MappedText*>(text);
  if (to->length_ + bytes >= to->capacity_) {
    size_t capacity = round_up(2 * (to->capacity_ + bytes), os::page_size());
    auto* grown = static_cast<char*>(os::map(capacity));
    if (grown == nullptr) return ENOMEM;
    size_t length = to->length_;
    if (length != 0) memcpy(grown, to->text_, length);
    to->clear();
    to->text_ = grown;
    to->length_ = length;
    to->capacity_ = capacity;
  }
  memcpy(to->text_ + to->length_, more, bytes);
  to->length_ += bytes;
  return 0;  // what lies behind is zero
}

void MappedText::clear() {
  if (text_ != nullptr) os::unmap(text_, capacity_);
  text_ = nullptr;
  length_ = capacity_ = 0;
}

}  // namespace larder
