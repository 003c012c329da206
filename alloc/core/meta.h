// Memory for descriptors: zeroed, never freed, never near objects.
//
// Thread safety: any thread; its lock is held for a few instructions or one mmap.
// Cost: descriptors share chunks of 64 KiB; bigger requests get a mapping.
#pragma once

#include "base/function_ref.h"
#include "os/lock.h"

namespace larder {

// Zero memory at a multiple of `align` (<= the system page), or nullptr.
void* meta_alloc(size_t size_bytes, size_t align);
// Calls `visit(base, bytes)` for each chunk.
void meta_for_each_chunk(FunctionRef<void(const void*, size_t)> visit);
Lock& meta_lock();

}  // namespace larder
