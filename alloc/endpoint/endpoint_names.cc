// Names of functions for addresses, as pprof asks for them.
#include <errno.h>

#include "endpoint/endpoint_answer.h"
#include "sample/symbol.h"

namespace larder {

namespace {

// Named at once: each file is read once for so many.
constexpr size_t kMostAtOnce = 4096;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

// Takes the next 0xADDRESS off the front; what is none is passed over. False: there is none left.
bool take_address(http::Text& text, uintptr_t* address) {
  while (text.size != 0) {
    size_t length = 0;
    while (length < text.size && text.at[length] != '+') ++length;
    http::Text part = {text.at, length};
    length += length < text.size ? 1 : 0;
    text = {text.at + length, text.size - length};
    if (part.size < 3 || part.size > 18 || part.at[0] != '0' || (part.at[1] | 32) != 'x') continue;
    uintptr_t value = 0;
    size_t i = 2;
    for (; i < part.size && digit_of(part.at[i]) >= 0; ++i)
      value = value << 4 | uintptr_t(digit_of(part.at[i]));
    if (i != part.size || value == 0 || value == UINTPTR_MAX) continue;
    *address = value;
    return true;
  }
  return false;
}

// `count` addresses lie where the symbols are to be.
void write_named(Symbol* symbols, size_t count, Writer& out) {
  count = name_addresses(symbols, count);
  for (size_t i = 0; i < count; ++i) {
    if (symbols[i].name[0] == 0) continue;
    out.address(symbols[i].address - 1);
    out.put("\t");
    out.put(symbols[i].name);
    out.put("\n");
  }
}

}  // namespace

int write_names(http::Text addresses, MappedText* text) {
  size_t bytes = round_up(kMostAtOnce * sizeof(Symbol), os::page_size());
  auto* symbols = static_cast<Symbol*>(os::map(bytes));
  if (symbols == nullptr) return ENOMEM;
  Writer out(MappedText::add, text);
  size_t count = 0;
  // What is asked for is in the function, not behind a call: the one before that address.
  for (uintptr_t address; take_address(addresses, &address);) {
    reinterpret_cast<uintptr_t*>(symbols)[count++] = address + 1;
    if (count < kMostAtOnce) continue;
    write_named(symbols, count, out);
    count = 0;
  }
  write_named(symbols, count, out);
  out.flush();
  os::unmap(symbols, bytes);
  return out.error();
}

}  // namespace larder
