// The malloc under test: every function of the family that the process resolves. Written once at
// the start, then read by any thread.
#pragma once

#include <malloc.h>
#include <stddef.h>

namespace torture {

// How a block was allocated, which decides how it may be freed.
enum class Make : unsigned char {
  kMalloc,
  kCalloc,
  kRealloc,
  kAlignedAlloc,
  kPosixMemalign,
  kMemalign,
  kValloc,
  kPvalloc,
  kNew,
  kNewArray,
  kNewNothrow,
  kNewArrayNothrow,
  kNewAligned,
  kNewArrayAligned,
  kNewAlignedNothrow,
  kNewArrayAlignedNothrow,
  kCount
};

const char* make_name(Make make);
constexpr bool is_operator(Make make) { return make >= Make::kNew; }
constexpr bool takes_alignment(Make make) {
  return (make >= Make::kAlignedAlloc && make <= Make::kMemalign) || make >= Make::kNewAligned;
}

// A null function is missing in the library under test. It is not tested, because the C library's
// function would work on another heap.
struct Family {
  void* (*malloc)(size_t);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*reallocarray)(void*, size_t, size_t);
  void (*free)(void*);
  void (*free_sized)(void*, size_t);
  void (*free_aligned_sized)(void*, size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  size_t (*usable_size)(void*);
  int (*trim)(size_t);
  struct mallinfo2 (*info)();
  void (*check)();  // Larder's walk over its own invariants, in builds that have it
  bool operators;   // operator new and delete lead to this malloc
  // Promises more than the standards require, like Larder: success does not change errno, and
  // blocks of no bytes are aligned like others.
  bool promises_more;
  const char* object;  // the file that holds malloc
  char missing[160];   // names of missing functions, as text

  bool has(Make make) const;
};

extern Family family;

// False, with a line on stderr, if there is no malloc and free to test.
bool find_family();

// Calls of the operators: nullptr for bad_alloc. `align` is ignored by forms that take none.
void* operator_new(Make make, size_t size, size_t align);
// One of the forms that may delete such a block, chosen by `form`; its name.
const char* operator_delete(Make make, void* p, size_t size, size_t align, unsigned form);

}  // namespace torture
