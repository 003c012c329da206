// The C++ operators: forward to the malloc family, and fail as the standard asks.
//
// Compiled with exceptions, but needs no libstdc++: what throwing needs is referenced weakly, and
// looked up only when memory runs out. A C program never comes here.

#include "core/new_delete.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "core/front.h"
#include "core/misuse.h"
#include "core/thread_heap.h"
#include "os/os.h"

// A C program has none of these. The unwinder needs them only where C++ code runs.
__asm__(".weak __gxx_personality_v0");
__asm__(".weak __cxa_begin_catch");
__asm__(".weak __cxa_end_catch");

extern "C" {
[[gnu::weak]] void _ZSt17__throw_bad_allocv();            // libstdc++: std::__throw_bad_alloc
[[gnu::weak]] void _ZNSt3__117__throw_bad_allocEv();      // libc++: the same
[[gnu::weak]] std::new_handler _ZSt15get_new_handlerv();  // std::get_new_handler
}

namespace larder {
namespace {

void* find_symbol(const char* name) {
  if (void* f = dlsym(RTLD_DEFAULT, name)) return f;
  // libstdc++ may have come with a library that was opened with RTLD_LOCAL.
  for (const char* library : {"libstdc++.so.6", "libc++.so.1"})
    if (void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      if (void* f = dlsym(handle, name)) return f;
  return nullptr;
}

[[noreturn]] void throw_bad_alloc() {
  if (&_ZSt17__throw_bad_allocv != nullptr) _ZSt17__throw_bad_allocv();
  if (&_ZNSt3__117__throw_bad_allocEv != nullptr) _ZNSt3__117__throw_bad_allocEv();
  for (const char* name : {"_ZSt17__throw_bad_allocv", "_ZNSt3__117__throw_bad_allocEv"})
    if (void* f = find_symbol(name)) reinterpret_cast<void (*)()>(f)();
  static constexpr char kText[] = "larder: out of memory in operator new, and no way to throw\n";
  os::write_stderr(kText, sizeof kText - 1);
  abort();
}

}  // namespace

std::new_handler current_new_handler() {
  if (&_ZSt15get_new_handlerv != nullptr) return _ZSt15get_new_handlerv();
  void* f = find_symbol("_ZSt15get_new_handlerv");
  return f == nullptr ? nullptr : reinterpret_cast<std::new_handler (*)()>(f)();
}

void* new_slow(size_t size, size_t align) {
  for (;;) {
    std::new_handler handler = current_new_handler();
    if (handler == nullptr) throw_bad_alloc();
    handler();
    if (void* p = align <= 16 ? Front::allocate(size) : Front::allocate_aligned(size, align))
      return p;
  }
}

}  // namespace larder

#define LARDER_EXPORT __attribute__((visibility("default")))

// The operators below, by names that no program replaces.
extern "C" {
[[gnu::visibility("hidden")]] void larder_own_delete(void* p) noexcept;
[[gnu::visibility("hidden")]] void larder_own_array_delete(void* p) noexcept;
}

namespace {

using namespace larder;

// A sized delete whose slab is not looked up twice, unless the program has replaced the operator
// that it must call.
LARDER_FAST bool is_own(void (*function)(void*), void (*own)(void*)) {
  __asm__("" : "+r"(own));  // what the names mean is decided when the program is linked and loaded
  return likely(function == own);
}
LARDER_FAST bool is_delete_own() {
  return is_own(static_cast<void (*)(void*)>(::operator delete), larder_own_delete);
}
LARDER_FAST bool is_array_delete_own() {
  return is_own(static_cast<void (*)(void*)>(::operator delete[]), larder_own_array_delete) &&
         is_delete_own();
}

template <bool kIsArray>
LARDER_WARM void delete_slow(void* p, size_t size) noexcept {
  // A program that has replaced the operators may have put a header before the object.
  bool is_own = kIsArray ? is_array_delete_own() : is_delete_own();
  if (unlikely(is_own && !size_fits(page_map.find(p), size + Front::kRoom)))
    return report_misuse("operator delete", Misuse::kSize, p);
  kIsArray ? ::operator delete[](p) : ::operator delete(p);
}

template <bool kIsArray>
LARDER_FAST void delete_sized(void* p, size_t size) {
  const ProcessPageMap* map = page_map.in_register();
  uintptr_t offset = map->offset_at(p);
  bool is_plain = has_class_of(map->slab_at(offset), size + Front::kRoom) &&
                  (kIsArray ? is_array_delete_own() : is_delete_own());
  if (unlikely(!is_plain)) return delete_slow<kIsArray>(p, size);
  Front::free_at(p, map, offset);
}

LARDER_FAST bool has_alignment(void* p, std::align_val_t align) {
  if (likely((uintptr_t(p) & (size_t(align) - 1)) == 0)) return true;
  report_misuse("operator delete", Misuse::kAlignment, p);
  return false;
}

}  // namespace

using larder::Front;

LARDER_EXPORT void* operator new(size_t size) {
  void* p = Front::allocate(size);
  return larder::likely(p != nullptr) ? p : larder::new_slow(size, 16);
}

LARDER_EXPORT void* operator new(size_t size, std::align_val_t align) {
  void* p = Front::allocate_aligned(size, size_t(align));
  return larder::likely(p != nullptr) ? p : larder::new_slow(size, size_t(align));
}

// The other forms call these two by their dynamic names: a program that replaces one of them
// replaces new[] and the nothrow forms as well.
LARDER_EXPORT void* operator new[](size_t size) { return ::operator new(size); }
LARDER_EXPORT void* operator new[](size_t size, std::align_val_t align) {
  return ::operator new(size, align);
}

LARDER_EXPORT void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(size);
  } catch (...) {
    return nullptr;
  }
}
LARDER_EXPORT void* operator new(size_t size, std::align_val_t align,
                                 const std::nothrow_t&) noexcept {
  try {
    return ::operator new(size, align);
  } catch (...) {
    return nullptr;
  }
}
LARDER_EXPORT void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  try {
    return ::operator new[](size);
  } catch (...) {
    return nullptr;
  }
}
LARDER_EXPORT void* operator new[](size_t size, std::align_val_t align,
                                   const std::nothrow_t&) noexcept {
  try {
    return ::operator new[](size, align);
  } catch (...) {
    return nullptr;
  }
}

LARDER_EXPORT void operator delete(void* p) noexcept { Front::free(p); }
LARDER_EXPORT void operator delete[](void* p) noexcept { ::operator delete(p); }
LARDER_EXPORT void operator delete(void* p, size_t size) noexcept { delete_sized<false>(p, size); }
LARDER_EXPORT void operator delete[](void* p, size_t size) noexcept { delete_sized<true>(p, size); }
LARDER_EXPORT void operator delete(void* p, const std::nothrow_t&) noexcept {
  ::operator delete(p);
}
LARDER_EXPORT void operator delete[](void* p, const std::nothrow_t&) noexcept {
  ::operator delete[](p);
}
LARDER_EXPORT void operator delete(void* p, std::align_val_t align) noexcept {
  if (has_alignment(p, align)) Front::free(p);
}
LARDER_EXPORT void operator delete[](void* p, std::align_val_t align) noexcept {
  ::operator delete(p, align);
}
LARDER_EXPORT void operator delete(void* p, size_t, std::align_val_t align) noexcept {
  ::operator delete(p, align);
}
LARDER_EXPORT void operator delete[](void* p, size_t, std::align_val_t align) noexcept {
  ::operator delete[](p, align);
}
LARDER_EXPORT void operator delete(void* p, std::align_val_t align,
                                   const std::nothrow_t&) noexcept {
  ::operator delete(p, align);
}
LARDER_EXPORT void operator delete[](void* p, std::align_val_t align,
                                     const std::nothrow_t&) noexcept {
  ::operator delete[](p, align);
}

extern "C" {
[[gnu::alias("_ZdlPv")]] void larder_own_delete(void* p) noexcept;
[[gnu::alias("_ZdaPv")]] void larder_own_array_delete(void* p) noexcept;
}
