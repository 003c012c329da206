#include "core/cpu_cache.h"

#include "core/meta.h"
#include "os/os.h"

namespace larder {

constinit CpuCaches cpu_caches = {};

namespace {

constinit std::atomic<bool> is_begun[kMaxShared] = {};  // relaxed: it says who makes the cache

}  // namespace

void cpu_cache_make() {
  ptrdiff_t area = os::rseq_offset();
  if (!kHasCpuCaches || area == 0) return;
  const auto* thread = static_cast<const char*>(__builtin_thread_pointer());
  uint32_t cpu =
      __atomic_load_n(reinterpret_cast<const uint32_t*>(thread + area + 4), __ATOMIC_RELAXED);
  if (cpu >= kMaxShared || is_begun[cpu].load(std::memory_order_relaxed) ||
      is_begun[cpu].exchange(true, std::memory_order_relaxed))
    return;
  auto* cache = static_cast<CpuCache*>(meta_alloc(sizeof(CpuCache), alignof(CpuCache)));
  cpu_caches.of[cpu].store(cache, std::memory_order_relaxed);
  cpu_caches.area.store(area, std::memory_order_relaxed);
}

// What another thread was pushing while this one forked may be half there. Relaxed: one thread.
void cpu_caches_forget() {
  for (auto& of_cpu : cpu_caches.of)
    if (CpuCache* cache = of_cpu.load(std::memory_order_relaxed))
      for (uint32_t& count : cache->count) count = 0;
}

}  // namespace larder
