#include "core/pressure.h"

#include <errno.h>

#include "core/limit.h"
#include "core/meta.h"
#include "core/purge.h"
#include "core/registry.h"
#include "core/thread_heap.h"

namespace larder {

namespace {

// Never freed, because another thread may be about to call it. The same pair is reused.
struct Callback {
  Callback* next;
  PressureCallback function;
  void* context;
};
constinit std::atomic<Callback*> known{nullptr}, current{nullptr};
// The thread in the callback, or 0. Relaxed in fork's child, which has one thread.
constinit std::atomic<uint32_t> thread_in_callback{0};

Callback* callback_of(PressureCallback function, void* context) {
  Callback* first = known.load(std::memory_order_acquire);
  for (Callback* c = first; c != nullptr; c = c->next)
    if (c->function == function && c->context == context) return c;
  auto* made = static_cast<Callback*>(meta_alloc(sizeof(Callback), alignof(Callback)));
  if (made == nullptr) return nullptr;
  *made = {first, function, context};
  while (!known.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  return made;
}

// False: there is no callback, or another thread is in it.
bool notify_program(larder_pressure kind, size_t bytes) {
  Callback* callback = current.load(std::memory_order_acquire);
  uint32_t none = 0;
  if (callback == nullptr || !thread_in_callback.compare_exchange_strong(none, thread_id()))
    return false;
  thread_state.busy = false;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  int saved_errno = errno;
  callback->function(kind, bytes, callback->context);
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

bool set_pressure_callback(PressureCallback function, void* context) {
  Callback* callback = function == nullptr ? nullptr : callback_of(function, context);
  current.store(callback, std::memory_order_release);
  return callback != nullptr || function == nullptr;
}

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
