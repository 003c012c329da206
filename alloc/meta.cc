#include "meta.h"

namespace larder {

namespace {

constexpr size_t kChunk = 64 * 1024;

struct Meta {
  Lock lock;
  uintptr_t next = 0;
  uintptr_t end = 0;
};
constinit Meta meta;

}  // namespace

Lock& meta_lock() { return meta.lock; }

void* meta_alloc(size_t size_bytes, size_t align) {
  if (size_bytes >= kChunk) return os::map(round_up(size_bytes, os::page_size()));
  LockGuard guard(meta.lock);
  uintptr_t at = round_up(meta.next, align);
  if (meta.next == 0 || at + size_bytes > meta.end) {
    at = uintptr_t(os::map(kChunk));
    if (at == 0) return nullptr;
    meta.end = at + kChunk;
  }
  meta.next = at + size_bytes;
  return reinterpret_cast<void*>(at);
}

}  // namespace larder
