// The other names of the malloc family. Included once, after its definitions.
#pragma once

#include "core/exported.h"

// NOLINTBEGIN(misc-definitions-in-headers)
extern "C" {
// glibc's names, which some programs and libraries call.
LARDER_ALIAS(malloc) void* __libc_malloc(size_t) noexcept;
LARDER_ALIAS(calloc) void* __libc_calloc(size_t, size_t) noexcept;
LARDER_ALIAS(realloc) void* __libc_realloc(void*, size_t) noexcept;
LARDER_ALIAS(free) void __libc_free(void*) noexcept;
LARDER_ALIAS(free) void cfree(void*) noexcept;
LARDER_ALIAS(memalign) void* __libc_memalign(size_t, size_t) noexcept;
LARDER_ALIAS(valloc) void* __libc_valloc(size_t) noexcept;
LARDER_ALIAS(pvalloc) void* __libc_pvalloc(size_t) noexcept;
// The names of own.h.
LARDER_OWN(calloc) void* larder_own_calloc(size_t, size_t) noexcept;
LARDER_OWN(realloc) void* larder_own_realloc(void*, size_t) noexcept;
LARDER_OWN(memalign) void* larder_own_memalign(size_t, size_t) noexcept;
LARDER_OWN(posix_memalign) int larder_own_posix_memalign(void**, size_t, size_t) noexcept;
LARDER_OWN(valloc) void* larder_own_valloc(size_t) noexcept;
LARDER_OWN(pvalloc) void* larder_own_pvalloc(size_t) noexcept;
LARDER_OWN(malloc_usable_size) size_t larder_own_malloc_usable_size(void*) noexcept;
}
// NOLINTEND(misc-definitions-in-headers)
