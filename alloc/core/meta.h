// Memory for descriptors: never freed, never near objects.
//
// Thread safety: any thread; a lock of its own, held for a few instructions or one mmap. Zeroed.
// Cost: descriptors of one process share chunks of 64 KiB; bigger ones get a mapping.
#pragma once

#include "os/lock.h"

namespace larder {

// Zero memory at a multiple of `align` (<= the page), or nullptr.
void* meta_alloc(size_t size_bytes, size_t align);
// Calls `visit` for each chunk that there is.
void meta_for_each_chunk(void (*visit)(const void*, size_t, void*), void* context);
Lock& meta_lock();

}  // namespace larder
