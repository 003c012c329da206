// Every form of operator new and delete: alignment, distinctness, the new_handler loop, bad_alloc
// thrown and caught through the preloaded library, nothrow and sized and aligned forms.

#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kImpossible = size_t{1} << 61;

int handler_calls = 0;

struct alignas(256) Wide {
  char bytes[300];
};

void count_then_give_up() {
  ++handler_calls;
  if (handler_calls == 3) std::set_new_handler(nullptr);
}

struct HandlerThrew {};

void throw_from_handler() {
  ++handler_calls;
  throw HandlerThrew{};
}

void plain_forms() {
  void* zero = operator new(opaque(size_t{0}));
  void* also_zero = operator new(opaque(size_t{0}));
  CHECK(zero != nullptr && also_zero != nullptr && zero != also_zero);
  operator delete(zero);
  operator delete[](operator new[](opaque(size_t{0})));
  operator delete(also_zero, size_t{0});
  for (size_t size = 1; size < 3 * kMiB; size += size / 5 + 1) {
    void* object = operator new(size);
    CHECK(is_aligned(object, required_alignment(size)) && malloc_usable_size(object) >= size);
    memset(object, 1, size);
    operator delete(object, size);
    void* array = operator new[](size);
    memset(array, 1, size);
    operator delete[](array, size);
    object = operator new(size, std::nothrow);
    operator delete(object, std::nothrow);
    array = operator new[](size, std::nothrow);
    operator delete[](array, std::nothrow);
    operator delete[](operator new[](size));
    operator delete(operator new(size));
    // free of new's memory is undefined in C++, but programs do it, and malloc/delete, too.
    free(operator new(size));
  }
}

void aligned_forms() {
  for (size_t shift = 0; shift <= 22; ++shift) {
    const auto alignment = std::align_val_t{size_t{1} << shift};
    for (size_t size : {size_t{0}, size_t{1}, size_t{40}, size_t{5000}, 200 * kKiB}) {
      void* objects[] = {operator new(size, alignment), operator new[](size, alignment),
                                                        operator new(size, alignment, std::nothrow),
                                                        operator new[](size, alignment,
                                                                       std::nothrow)};
      for (void* object : objects) {
        CHECK_MSG(object != nullptr && is_aligned(object, size_t{1} << shift), "2^%zu: %p", shift,
                  object);
        memset(object, 1, size);
      }
      operator delete(objects[0], size, alignment);
      operator delete[](objects[1], size, alignment);
      operator delete(objects[2], alignment);
      operator delete[](objects[3], alignment, std::nothrow);
      operator delete(operator new(size, alignment), alignment, std::nothrow);
      operator delete[](operator new[](size, alignment), alignment);
    }
  }
  std::unique_ptr<Wide[]> wides(new Wide[5]);
  CHECK(is_aligned(wides.get(), 256));
  delete opaque(new Wide);
}

void null_is_accepted_everywhere() {
  const auto alignment = std::align_val_t{64};
  const auto null = [] { return opaque(static_cast<void*>(nullptr)); };
  operator delete(null());
  operator delete[](null());
  operator delete(null(), size_t{8});
  operator delete[](null(), size_t{8});
  operator delete(null(), std::nothrow);
  operator delete[](null(), std::nothrow);
  operator delete(null(), alignment);
  operator delete[](null(), alignment);
  operator delete(null(), size_t{8}, alignment);
  operator delete[](null(), size_t{8}, alignment);
  operator delete(null(), alignment, std::nothrow);
  operator delete[](null(), alignment, std::nothrow);
}

template <typename Call>
void expect_bad_alloc(const char* what, Call call) {
  handler_calls = 0;
  std::set_new_handler(count_then_give_up);
  bool thrown = false;
  try {
    void* object = call();
    CHECK_MSG(false, "%s returned %p", what, object);
  } catch (const std::bad_alloc& error) {
    thrown = true;
    CHECK(error.what() != nullptr);
  }
  CHECK_MSG(thrown && handler_calls == 3, "%s: the handler ran %d times, not 3", what,
            handler_calls);
}

template <typename Call>
void expect_null(const char* what, Call call) {
  handler_calls = 0;
  std::set_new_handler(count_then_give_up);
  void* object = call();
  CHECK_MSG(object == nullptr, "%s returned %p", what, object);
  CHECK_MSG(handler_calls == 3, "%s: the handler ran %d times, not 3", what, handler_calls);
}

template <typename Call>
void expect_handlers_exception(const char* what, bool nothrow, Call call) {
  handler_calls = 0;
  std::set_new_handler(throw_from_handler);
  bool caught = false;
  try {
    call();
  } catch (const HandlerThrew&) {
    caught = true;
  }
  std::set_new_handler(nullptr);
  CHECK_MSG(handler_calls == 1, "%s: handler ran %d times", what, handler_calls);
  CHECK_MSG(caught != nothrow, "%s: the handler's exception did not arrive", what);
}

void failing_forms() {
  const auto alignment = std::align_val_t{128};
  const size_t impossible = opaque(kImpossible);
  expect_bad_alloc("new", [=] { return operator new(impossible); });
  expect_bad_alloc("new[]", [=] { return operator new[](impossible); });
  expect_bad_alloc("aligned new", [=] { return operator new(impossible, alignment); });
  expect_bad_alloc("aligned new[]", [=] { return operator new[](impossible, alignment); });
  expect_bad_alloc("new(SIZE_MAX)", [] { return operator new(opaque(SIZE_MAX)); });
  expect_bad_alloc("aligned new(SIZE_MAX)",
                   [=] { return operator new(opaque(SIZE_MAX), alignment); });
  expect_null("nothrow new", [=] { return operator new(impossible, std::nothrow); });
  expect_null("nothrow new[]", [=] { return operator new[](impossible, std::nothrow); });
  expect_null("aligned nothrow new",
              [=] { return operator new(impossible, alignment, std::nothrow); });
  expect_null("aligned nothrow new[]",
              [=] { return operator new[](impossible, alignment, std::nothrow); });
  expect_handlers_exception("new", false, [=] { return operator new(impossible); });
  // [new.delete.single]: the nothrow form returns null if the handler throws bad_alloc; other
  // exceptions would terminate, so only the throwing forms are tested here.
  CHECK(std::get_new_handler() == nullptr);
  bool thrown = false;
  try {
    static_cast<void>(opaque(operator new(impossible)));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown);
  CHECK(operator new(impossible, std::nothrow) == nullptr);
}

void throw_bad_alloc() { throw std::bad_alloc(); }

void nothrow_swallows_the_handlers_bad_alloc() {
  std::set_new_handler(throw_bad_alloc);
  CHECK(operator new(opaque(kImpossible), std::nothrow) == nullptr);
  CHECK(operator new[](opaque(kImpossible), std::nothrow) == nullptr);
  CHECK(operator new(opaque(kImpossible), std::align_val_t{64}, std::nothrow) == nullptr);
  std::set_new_handler(nullptr);
}

size_t reserve_in_handler = 0;
void* reserve = nullptr;

void release_reserve() {
  ++handler_calls;
  free(reserve);
  reserve = nullptr;
  std::set_new_handler(nullptr);
}

// A handler that frees memory is the purpose of the loop: the retry must succeed.
void handler_can_make_room() {
  in_child("handler_can_make_room", [] {
    reserve_in_handler = 64 * kMiB;
    reserve = malloc(reserve_in_handler);
    memset(reserve, 1, reserve_in_handler);
    const rlim_t ceiling = statm_bytes(0) + 8 * kMiB;
    const rlimit limit = {ceiling, ceiling};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    handler_calls = 0;
    std::set_new_handler(release_reserve);
    void* object = operator new(opaque(48 * kMiB));
    CHECK(object != nullptr && handler_calls == 1);
    memset(object, 2, 48 * kMiB);
    operator delete(object);
  });
}

void exceptions_pass_through() {
  for (int i = 0; i < 2000; ++i) {
    bool caught = false;
    try {
      std::vector<std::string> words(static_cast<size_t>(i % 37 + 1), std::string(100, 'x'));
      throw std::runtime_error(words.back() + std::to_string(i));
    } catch (const std::exception& error) {
      caught = strlen(error.what()) > 100;
    }
    CHECK(caught);
  }
  std::exception_ptr carried;
  std::thread thrower([&] {
    try {
      static_cast<void>(opaque(operator new(opaque(kImpossible))));
    } catch (...) {
      carried = std::current_exception();
    }
  });
  thrower.join();
  bool caught = false;
  try {
    std::rethrow_exception(carried);
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  CHECK(caught);
  bool length_error = false;
  try {
    std::vector<char> vast;
    vast.reserve(opaque(SIZE_MAX));
  } catch (const std::length_error&) {
    length_error = true;
  }
  CHECK(length_error);
}

}  // namespace

int main() {
  begin("new_delete");
  plain_forms();
  aligned_forms();
  null_is_accepted_everywhere();
  failing_forms();
  nothrow_swallows_the_handlers_bad_alloc();
  handler_can_make_room();
  exceptions_pass_through();
  say("all forms hold");
  return 0;
}
