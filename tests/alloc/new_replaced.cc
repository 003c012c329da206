// A program may replace only operator new(size_t) and operator delete(void*): the standard lets
// every other form reach them ([new.delete]), so the library's forms must forward, not bypass.
// The replacement puts a header before each object: a form that bypasses it is caught.

#include <new>
#include <string>

#include "support.h"

using namespace alloctest;

namespace {

constexpr uint64_t kMagic = 0x4C41524445523031u;
long news = 0;
long deletes = 0;

struct Header {
  uint64_t magic;
  uint64_t size;
  char unused[48];  // so that no size class of the object is one of the size that is asked for
};

}  // namespace

void* operator new(size_t size) {
  auto* header = static_cast<Header*>(malloc(sizeof(Header) + size));
  if (header == nullptr) throw std::bad_alloc();
  *header = {kMagic, size, {}};
  ++news;
  return header + 1;
}

// Leaving the sized form to the library is the point of this program.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif
void operator delete(void* object) noexcept {
  if (object == nullptr) return;
  Header* header = static_cast<Header*>(object) - 1;
  CHECK_MSG(header->magic == kMagic, "operator delete got an object that operator new never made");
  header->magic = 0;
  ++deletes;
  free(header);
}

int main() {
  begin("new_replaced");
  const long news_before = news;
  const long deletes_before = deletes;
  for (int i = 0; i < 100; ++i) {
    operator delete[](opaque(operator new[](opaque(size_t{24}))));
    operator delete[](opaque(operator new[](opaque(size_t{24}))), size_t{24});
    operator delete(opaque(operator new(opaque(size_t{24}))), size_t{24});
    operator delete(opaque(operator new(opaque(size_t{24}), std::nothrow)), std::nothrow);
    operator delete[](opaque(operator new[](opaque(size_t{24}), std::nothrow)), std::nothrow);
  }
  CHECK_MSG(news - news_before == 500, "500 objects made, the replaced new saw %ld",
            news - news_before);
  CHECK_MSG(deletes - deletes_before == 500, "500 objects deleted, the replaced delete saw %ld",
            deletes - deletes_before);
  const long news_of_strings = news;
  std::string text(1000, 'x');
  CHECK(news == news_of_strings + 1 && text.size() == 1000);
  say("every form reaches the replaced operators");
  return 0;
}
