#include "leak/leak_names.h"

// The C++ library's, if the program has one.
extern "C" [[gnu::weak]] char* __cxa_demangle(const char*, char*, size_t*, int*);
extern "C" void free(void*);

namespace larder {

LeakNames::LeakNames(const LeakSum* sums, size_t count) {
  for (size_t i = 0; i < count; ++i) room_ += sums[i].site->depth;
  bytes_ = round_up(room_ * sizeof(Symbol) + 1, os::page_size());
  symbols_ = static_cast<Symbol*>(os::map(bytes_));
  if (symbols_ == nullptr) return;
  auto* addresses = reinterpret_cast<uintptr_t*>(symbols_);
  for (size_t i = 0; i < count; ++i)
    for (uint32_t f = 0; f < sums[i].site->depth; ++f)
      addresses[count_++] = sums[i].site->frames[f];
  count_ = name_addresses(symbols_, count_);
}

LeakNames::~LeakNames() {
  if (symbols_ != nullptr) os::unmap(symbols_, bytes_);
}

const Symbol* LeakNames::find(uintptr_t address) const {
  size_t low = 0, high = count_;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (symbols_[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count_ && symbols_[low].address == address ? &symbols_[low] : nullptr;
}

PlainName::PlainName(const Symbol& symbol) : name_(symbol.name) {
  int status = 0;
  if (&__cxa_demangle != nullptr && name_[0] == '_')
    plain_ = __cxa_demangle(name_, nullptr, nullptr, &status);
}
PlainName::~PlainName() { free(plain_); }

}  // namespace larder
