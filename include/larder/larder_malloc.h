/* The malloc family under a prefix, from liblarder_prefixed.a, beside another malloc in one
 * process. Each function has the contract of glibc's function without the prefix. Free an object by
 * the family that allocated it. Any thread.
 */
#ifndef LARDER_LARDER_MALLOC_H
#define LARDER_LARDER_MALLOC_H

#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

void* larder_malloc(size_t size);
void* larder_calloc(size_t count, size_t size);
void* larder_realloc(void* p, size_t size);
void* larder_reallocarray(void* p, size_t count, size_t size);
void larder_free(void* p);
void larder_free_sized(void* p, size_t size);
void larder_free_aligned_sized(void* p, size_t align, size_t size);
void* larder_aligned_alloc(size_t align, size_t size);
int larder_posix_memalign(void** memptr, size_t align, size_t size);
void* larder_memalign(size_t align, size_t size);
void* larder_valloc(size_t size);
void* larder_pvalloc(size_t size);
size_t larder_malloc_usable_size(void* p);
int larder_malloc_trim(size_t pad);
int larder_mallopt(int parameter, int value);
struct mallinfo larder_mallinfo(void);
struct mallinfo2 larder_mallinfo2(void);
int larder_malloc_info(int options, FILE* stream);
void larder_malloc_stats(void);

#ifdef __cplusplus
}
#endif

#endif
