#include "core/meta.h"

#include "base/layout.h"
#include "base/policy.h"

namespace larder {

namespace {

struct Meta {
  Lock lock;
  uintptr_t next LARDER_GUARDED_BY(lock) = 0;
  uintptr_t end LARDER_GUARDED_BY(lock) = 0;
  // Linked by their first word, which has the address of the previous chunk.
  uintptr_t* chunks LARDER_GUARDED_BY(lock) = nullptr;
};
constinit Meta meta;

}  // namespace

constinit const MetaLayout meta_layout = {.last_chunk = static_cast<const void*>(&meta.chunks),
                                          .chunk_bytes = kMetaChunkBytes};

void meta_for_each_chunk(FunctionRef<void(const void*, size_t)> visit) {
  const uintptr_t* chunk;
  {
    LockGuard guard(meta.lock);
    chunk = meta.chunks;
  }
  for (; chunk != nullptr; chunk = reinterpret_cast<const uintptr_t*>(*chunk))
    visit(chunk, kMetaChunkBytes);
}

Lock& meta_lock() { return meta.lock; }

void* meta_alloc(size_t size_bytes, size_t align) {
  if (size_bytes >= kMetaChunkBytes) return os::map(round_up(size_bytes, os::page_size()));
  LockGuard guard(meta.lock);
  uintptr_t at = round_up(meta.next, align);
  if (meta.next == 0 || at + size_bytes > meta.end) {
    auto* chunk = static_cast<uintptr_t*>(os::map(kMetaChunkBytes));
    if (chunk == nullptr) return nullptr;
    *chunk = uintptr_t(meta.chunks);
    meta.chunks = chunk;
    meta.end = uintptr_t(chunk) + kMetaChunkBytes;
    at = round_up(uintptr_t(chunk + 1), align);
  }
  meta.next = at + size_bytes;
  return reinterpret_cast<void*>(at);
}

}  // namespace larder
