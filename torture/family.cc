#include "family.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#ifdef TORTURE_PREFIXED
#include "larder/larder_malloc.h"
extern "C" [[gnu::weak]] void larder_check(void);
#endif

namespace torture {

Family family;

const char* make_name(Make make) {
  static constexpr const char* kNames[] = {
      "malloc",
      "calloc",
      "realloc",
      "aligned_alloc",
      "posix_memalign",
      "memalign",
      "valloc",
      "pvalloc",
      "operator new",
      "operator new[]",
      "operator new (nothrow)",
      "operator new[] (nothrow)",
      "operator new (align)",
      "operator new[] (align)",
      "operator new (align, nothrow)",
      "operator new[] (align, nothrow)",
  };
  static_assert(sizeof kNames / sizeof kNames[0] == size_t(Make::kCount));
  return kNames[size_t(make)];
}

bool Family::has(Make make) const {
  switch (make) {
    case Make::kMalloc:
      return true;
    case Make::kCalloc:
      return calloc != nullptr;
    case Make::kRealloc:
      return realloc != nullptr;
    case Make::kAlignedAlloc:
      return aligned_alloc != nullptr;
    case Make::kPosixMemalign:
      return posix_memalign != nullptr;
    case Make::kMemalign:
      return memalign != nullptr;
    case Make::kValloc:
      return valloc != nullptr;
    case Make::kPvalloc:
      return pvalloc != nullptr;
    default:
      return operators;
  }
}

#ifdef TORTURE_PREFIXED

bool find_family() {
  family = {.malloc = larder_malloc,
            .calloc = larder_calloc,
            .realloc = larder_realloc,
            .reallocarray = larder_reallocarray,
            .free = larder_free,
            .free_sized = larder_free_sized,
            .free_aligned_sized = larder_free_aligned_sized,
            .aligned_alloc = larder_aligned_alloc,
            .posix_memalign = larder_posix_memalign,
            .memalign = larder_memalign,
            .valloc = larder_valloc,
            .pvalloc = larder_pvalloc,
            .usable_size = larder_malloc_usable_size,
            .trim = larder_malloc_trim,
            .info = larder_mallinfo2,
            .check = larder_check,
            .operators = false,
            .promises_more = true,
            .object = "linked in, under the prefix larder_",
            .missing = "operator new"};
  return true;
}

#else

namespace {

const void* base_of(void* function) {
  Dl_info info;
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
}

// Only functions of the object that has malloc.
template <typename F>
void find(const char* name, const void* base, F*& function) {
  void* symbol = dlsym(RTLD_DEFAULT, name);
  function = base_of(symbol) == base ? reinterpret_cast<F*>(symbol) : nullptr;
  if (function != nullptr) return;
  size_t length = strlen(family.missing);
  snprintf(family.missing + length, sizeof family.missing - length, "%s%s", length == 0 ? "" : ", ",
           name);
}

}  // namespace

bool find_family() {
  void* symbol = dlsym(RTLD_DEFAULT, "malloc");
  Dl_info info;
  if (symbol == nullptr || dladdr(symbol, &info) == 0) {
    fprintf(stderr, "larder-torture: malloc is not found: link the program dynamically\n");
    return false;
  }
  const void* base = info.dli_fbase;
  family.object = info.dli_fname;
  find("malloc", base, family.malloc);
  find("free", base, family.free);
  find("calloc", base, family.calloc);
  find("realloc", base, family.realloc);
  find("reallocarray", base, family.reallocarray);
  find("free_sized", base, family.free_sized);
  find("free_aligned_sized", base, family.free_aligned_sized);
  find("aligned_alloc", base, family.aligned_alloc);
  find("posix_memalign", base, family.posix_memalign);
  find("memalign", base, family.memalign);
  find("valloc", base, family.valloc);
  find("pvalloc", base, family.pvalloc);
  find("malloc_usable_size", base, family.usable_size);
  find("malloc_trim", base, family.trim);
  find("mallinfo2", base, family.info);
  if (family.free == nullptr) {
    fprintf(stderr, "larder-torture: %s has malloc but not free: name an allocator's library\n",
            family.object);
    return false;
  }
  // libstdc++'s operators call malloc, so they belong to it, whichever object has them.
  family.operators = true;
  void* version = dlsym(RTLD_DEFAULT, "larder_version");
  family.promises_more = version != nullptr && base_of(version) == base;
  if (family.promises_more)
    family.check = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "larder_check"));
  return true;
}

#endif

namespace {

void* throwing_new(Make make, size_t size, size_t align) {
  switch (make) {
    case Make::kNew:
      return ::operator new(size);
    case Make::kNewArray:
      return ::operator new[](size);
    case Make::kNewAligned:
      return ::operator new(size, std::align_val_t(align));
    default:
      return ::operator new[](size, std::align_val_t(align));
  }
}

}  // namespace

void* operator_new(Make make, size_t size, size_t align) {
  switch (make) {
    case Make::kNewNothrow:
      return ::operator new(size, std::nothrow);
    case Make::kNewArrayNothrow:
      return ::operator new[](size, std::nothrow);
    case Make::kNewAlignedNothrow:
      return ::operator new(size, std::align_val_t(align), std::nothrow);
    case Make::kNewArrayAlignedNothrow:
      return ::operator new[](size, std::align_val_t(align), std::nothrow);
    default:
      try {
        return throwing_new(make, size, align);
      } catch (const std::bad_alloc&) {
        return nullptr;
      }
  }
}

const char* operator_delete(Make make, void* p, size_t size, size_t align, unsigned form) {
  auto a = std::align_val_t(align);
  switch (make) {
    case Make::kNew:
    case Make::kNewNothrow:
      if (form % 3 == 0) return ::operator delete(p, size), "operator delete (size)";
      if (form % 3 == 1) return ::operator delete(p, std::nothrow), "operator delete (nothrow)";
      return ::operator delete(p), "operator delete";
    case Make::kNewArray:
    case Make::kNewArrayNothrow:
      if (form % 3 == 0) return ::operator delete[](p, size), "operator delete[] (size)";
      if (form % 3 == 1) return ::operator delete[](p, std::nothrow), "operator delete[] (nothrow)";
      return ::operator delete[](p), "operator delete[]";
    case Make::kNewAligned:
    case Make::kNewAlignedNothrow:
      if (form % 3 == 0) return ::operator delete(p, size, a), "operator delete (size, align)";
      if (form % 3 == 1)
        return ::operator delete(p, a, std::nothrow), "operator delete (align, nothrow)";
      return ::operator delete(p, a), "operator delete (align)";
    default:
      if (form % 3 == 0) return ::operator delete[](p, size, a), "operator delete[] (size, align)";
      if (form % 3 == 1)
        return ::operator delete[](p, a, std::nothrow), "operator delete[] (align, nothrow)";
      return ::operator delete[](p, a), "operator delete[] (align)";
  }
}

}  // namespace torture
