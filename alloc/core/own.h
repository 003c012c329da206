// The exported malloc family, by names that nothing else in the process can define.
#pragma once

#include <malloc.h>
#include <stddef.h>

extern "C" {
void* larder_own_calloc(size_t count, size_t size) noexcept;
void* larder_own_realloc(void* p, size_t size) noexcept;
void* larder_own_memalign(size_t align, size_t size) noexcept;
int larder_own_posix_memalign(void** memptr, size_t align, size_t size) noexcept;
void* larder_own_valloc(size_t size) noexcept;
void* larder_own_pvalloc(size_t size) noexcept;
size_t larder_own_malloc_usable_size(void* p) noexcept;
void larder_own_malloc_stats() noexcept;
int larder_own_mallopt(int parameter, int value) noexcept;
struct mallinfo larder_own_mallinfo() noexcept;
struct mallinfo2 larder_own_mallinfo2() noexcept;
}
