// CPU caches: free objects that threads without a heap share, an array a class and CPU.
//
// A restartable sequence (rseq) pushes and pops: the kernel starts it anew if the thread was
// interrupted within it, so that no lock and no atomic operation is needed. glibc 2.35 and later
// register the threads. Elsewhere, and on aarch64, there are no such caches, and these threads take
// the lock of their CPU's shared heap for each object.
//
// Invariants: objects[c][0 .. count[c]) are of class c, have a link that ends a list, and count as
// in use for their slabs, which any heap may own. The store of count[c] ends a sequence.
// Thread safety: any thread, and any signal handler. fork's child forgets what was cached.
// Bounds: max_deferred[c] objects a class; one cache for each of the first kMaxShared CPUs, made
// when a thread without a heap first allocates or frees there.
#pragma once

#include <stddef.h>

#include <atomic>

#include "base/policy.h"
#include "base/size_class.h"
#include "core/slab.h"

namespace larder {

struct CpuCache {
  uint32_t count[kClasses];
  void* objects[kClasses][kMaxDeferred];
};

struct CpuCaches {
  // Of the thread's area for sequences, in bytes from its thread pointer; 0: there are no caches.
  // Relaxed: the same for all threads.
  std::atomic<ptrdiff_t> area;
  // Relaxed: a sequence reads that of its own CPU, and a new one is zeros.
  std::atomic<CpuCache*> of[kMaxShared];
};
extern CpuCaches cpu_caches __attribute__((visibility("hidden")));

// Makes the cache of this thread's CPU, unless there is one, or cannot be one.
void cpu_cache_make();
void cpu_caches_forget();

// ThreadSanitizer would not see that one thread's push comes before another's pop.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

inline constexpr bool kHasCpuCaches = true;

// From label 1 to label 2 the thread stays on its CPU, or goes on at label 3, behind the signature
// that glibc has registered. %fs:4(area) is the CPU, negative for a thread that is not registered;
// %fs:8(area) leads to the sequence's description (linux/rseq.h).
#define LARDER_BEGIN_SEQUENCE                                    \
  ".pushsection .data.rel.ro.larder_rseq, \"aw\", @progbits\n"   \
  ".balign 32\n"                                                 \
  "4: .long 0, 0\n"                                              \
  ".quad 1f, 2f - 1f, 3f\n"                                      \
  ".popsection\n"                                                \
  ".pushsection .text.unlikely.larder_rseq, \"ax\", @progbits\n" \
  ".byte 0x0f, 0xb9, 0x3d\n"                                     \
  ".long 0x53053053\n"                                           \
  "3: jmp 5f\n"                                                  \
  ".popsection\n"                                                \
  "5: lea 4b(%%rip), %[at]\n"                                    \
  "mov %[at], %%fs:8(%[area])\n"                                 \
  "1: mov %%fs:4(%[area]), %k[at]\n"                             \
  "cmp %[cpus], %k[at]\n"                                        \
  "jae 6f\n"                                                     \
  "mov (%[caches],%[at],8), %[at]\n"                             \
  "test %[at], %[at]\n"                                          \
  "jz 6f\n"                                                      \
  "mov (%[at],%[c],4), %k[count]\n"
// The memory of a description may be unmapped when a program closes a library.
#define LARDER_END_SEQUENCE "movq $0, %%fs:8(%[area])\n"
#define LARDER_SEQUENCE_INPUTS                                       \
  [area] "r"(area), [caches] "r"(cpu_caches.of), [c] "r"(size_t(c)), \
      [first] "r"(size_t(c) * kMaxDeferred), [cpus] "i"(kMaxShared), \
      [objects] "i"(offsetof(CpuCache, objects))

// An object of the class, or nullptr.
LARDER_FAST void* cpu_cache_pop(int c) {
  ptrdiff_t area = cpu_caches.area.load(std::memory_order_relaxed);
  if (area == 0) return nullptr;
  void* p;
  size_t at, count;
  __asm__ volatile(LARDER_BEGIN_SEQUENCE
                   "sub $1, %k[count]\n"
                   "jc 6f\n"
                   "lea (%[first],%[count]), %[p]\n"
                   "mov %c[objects](%[at],%[p],8), %[p]\n"
                   "mov %k[count], (%[at],%[c],4)\n"
                   "2: jmp 7f\n"
                   "6: xor %k[p], %k[p]\n"
                   "7:\n" LARDER_END_SEQUENCE
                   : [p] "=&r"(p), [at] "=&r"(at), [count] "=&r"(count)
                   : LARDER_SEQUENCE_INPUTS
                   : "memory", "cc");
  return p;
}

// REQUIRES: no other thread knows the object. False: there is no room.
LARDER_FAST bool cpu_cache_push(int c, void* p) {
  ptrdiff_t area = cpu_caches.area.load(std::memory_order_relaxed);
  if (area == 0) return false;
  set_next(p, nullptr);
  size_t at, count, pushed;
  __asm__ volatile(
      LARDER_BEGIN_SEQUENCE
      "cmp %[room], %k[count]\n"
      "jae 6f\n"
      "lea (%[first],%[count]), %[pushed]\n"
      "mov %[p], %c[objects](%[at],%[pushed],8)\n"
      "add $1, %k[count]\n"
      "mov %k[count], (%[at],%[c],4)\n"
      "2: mov $1, %k[pushed]\n"
      "jmp 7f\n"
      "6: xor %k[pushed], %k[pushed]\n"
      "7:\n" LARDER_END_SEQUENCE
      : [pushed] "=&r"(pushed), [at] "=&r"(at), [count] "=&r"(count)
      : LARDER_SEQUENCE_INPUTS, [p] "r"(p), [room] "r"(uint32_t(kSizeClasses.max_deferred[c]))
      : "memory", "cc");
  return pushed != 0;
}

#else

inline constexpr bool kHasCpuCaches = false;

inline void* cpu_cache_pop(int) { return nullptr; }
inline bool cpu_cache_push(int, void*) { return false; }

#endif

}  // namespace larder
