#include "core/pressure.h"

#include <errno.h>

#include "core/limit.h"
#include "core/purge.h"
#include "core/registry.h"
#include "core/thread_heap.h"

namespace larder {

namespace {

struct Callback {
  Lock lock;
  PressureCallback function LARDER_GUARDED_BY(lock) = nullptr;
  void* context LARDER_GUARDED_BY(lock) = nullptr;
};
constinit Callback callback;
// The thread in the callback, or 0. Relaxed in fork's child, which has one thread.
constinit std::atomic<uint32_t> thread_in_callback{0};

// False: there is no callback, or another thread is in it.
bool notify_program(larder_pressure kind, size_t bytes) {
  PressureCallback function = nullptr;
  void* context = nullptr;
  {
    LockGuard guard(callback.lock);
    function = callback.function;
    context = callback.context;
  }
  uint32_t none = 0;
  if (function == nullptr || !thread_in_callback.compare_exchange_strong(none, thread_id()))
    return false;
  thread_state.busy = false;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  int saved_errno = errno;
  function(kind, bytes, context);
  errno = saved_errno;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  thread_state.busy = true;
  thread_in_callback.store(0);
  return true;
}

bool trim_heap() {
  ThreadHeap* heap = thread_state.heap;
  if (heap == nullptr) return false;
  heap->cache.reset_limit();
  return heap->trim() != 0;
}

}  // namespace

void set_pressure_callback(PressureCallback function, void* context) {
  SlowPath path;  // a signal handler must not wait for the lock
  LockGuard guard(callback.lock);
  callback.function = function;
  callback.context = context;
}

Lock& callback_lock() { return callback.lock; }

void relieve_pressure() {
  limit::state.crossed.store(false, std::memory_order_relaxed);
  if (!limit::pressed()) {
    limit::press();
    trim_heap();
    registry_release_unused();
  }
  purge_to_limit();
  size_t held = limit::held_bytes(), soft = limit::soft();
  if (soft == 0 || held <= soft || limit::state.reported.exchange(true)) return;
  notify_program(LARDER_PRESSURE_SOFT, held - soft);
}

bool release_all_memory() {
  bool trimmed = trim_heap();
  if (registry_release_unused()) trimmed = true;
  if (limit::hard() != 0) {
    limit::press();
    if (purge_all() != 0) trimmed = true;
  }
  return release_address_space() || trimmed;
}

bool call_out_of_memory_callback(size_t size_bytes) {
  size_t held = limit::held_bytes(), hard = limit::hard();
  size_t room = hard == 0 || held > hard ? 0 : hard - held;
  if (!notify_program(LARDER_PRESSURE_HARD, size_bytes > room ? size_bytes - room : size_bytes))
    return false;
  release_all_memory();
  return true;
}

void forget_callback_threads() {
  if (thread_in_callback.load(std::memory_order_relaxed) != thread_id())
    thread_in_callback.store(0);
}

}  // namespace larder
