// What every file of the allocator may use: path macros, assertions, bit arithmetic, geometry.
//
// LARDER_FAST marks code that is inlined into malloc and free, LARDER_WARM what these reach by a
// tail call, LARDER_SLOW rare code. Nothing here owns state, allocates, or calls libc.
#pragma once

#include <cstddef>
#include <cstdint>

#define LARDER_FAST inline __attribute__((always_inline))
// For what each allocation runs: it begins at a cache line, so that its time does not depend on the
// code before it (docs/how/experiments.md).
#define LARDER_HOT __attribute__((aligned(64)))
#define LARDER_WARM __attribute__((noinline))
#define LARDER_SLOW __attribute__((noinline, cold))

// C++20's keyword, as compilers have it before.
#if __cplusplus < 202002L
#ifdef __clang__
#define constinit __attribute__((require_constant_initialization))
#else
#define constinit __constinit
#endif
#endif

namespace larder {

// Writes one line to stderr and aborts. Never allocates.
[[noreturn]] LARDER_SLOW void fail(const char* what, const char* file, int line);

// LARDER_CHECK stays in every build, LARDER_ASSERT in debug builds only.
#define LARDER_CHECK(cond) \
  (__builtin_expect(!(cond), 0) ? ::larder::fail(#cond, __FILE__, __LINE__) : (void)0)
#ifdef LARDER_DEBUG
#define LARDER_ASSERT(cond) LARDER_CHECK(cond)
#else
#define LARDER_ASSERT(cond) ((void)sizeof(!(cond)))
#endif

LARDER_FAST bool likely(bool x) { return __builtin_expect(x, 1); }
LARDER_FAST bool unlikely(bool x) { return __builtin_expect(x, 0); }

constexpr bool is_pow2(size_t x) { return x != 0 && (x & (x - 1)) == 0; }
// REQUIRES: `align` is a power of two, and the sum does not wrap around.
constexpr size_t round_up(size_t x, size_t align) { return (x + align - 1) & ~(align - 1); }
constexpr size_t round_down(size_t x, size_t align) { return x & ~(align - 1); }
constexpr int log2_floor(size_t x) { return 63 - __builtin_clzll(x); }
constexpr size_t pow2_ceil(size_t x) {
  return x <= 1 ? 1 : size_t{1} << (64 - __builtin_clzll(x - 1));
}

// Geometry. Everything else derives from these constants.
inline constexpr int kPageShift = 14;
inline constexpr size_t kPageBytes = size_t{1} << kPageShift;  // the page: 16 KiB
inline constexpr int kSegmentShift = 21;
inline constexpr size_t kSegmentBytes = size_t{1} << kSegmentShift;       // the segment: 2 MiB
inline constexpr int kPagesPerSegment = int(kSegmentBytes / kPageBytes);  // 128
inline constexpr size_t kSmallMax = 64 * 1024;   // larger objects have a span each
inline constexpr size_t kSpanMax = 1024 * 1024;  // larger objects have a mapping each
inline constexpr size_t kMaxSize = PTRDIFF_MAX;  // larger requests fail with ENOMEM
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kColourSpan = 4096;  // addresses at this distance alias
#if defined(__x86_64__)
inline constexpr int kAddressBits =
    47;  // what Linux gives a process that does not ask for more by a hint
inline constexpr size_t kLargestSystemPage = 4096;
#else
inline constexpr int kAddressBits = 48;
inline constexpr size_t kLargestSystemPage = 64 * 1024;
#endif

}  // namespace larder
