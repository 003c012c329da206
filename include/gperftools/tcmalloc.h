/* The names under which gperftools 2.10 has the malloc family and the C++ operators, served by
 * Larder: the same objects as malloc's and new's, freed by any of them.
 */
#ifndef TCMALLOC_TCMALLOC_H_
#define TCMALLOC_TCMALLOC_H_

#include <malloc.h>
#include <stddef.h>
#ifdef __cplusplus
#include <new>
#endif

/* Of the interface; larder/larder.h has Larder's own. */
#define TC_VERSION_MAJOR 2
#define TC_VERSION_MINOR 10
#define TC_VERSION_PATCH ""
#define TC_VERSION_STRING "gperftools 2.10"

#ifdef __cplusplus
#define LARDER_TC_NOTHROW noexcept
extern "C" {
#else
#define LARDER_TC_NOTHROW __attribute__((__nothrow__))
#endif

/* TC_VERSION_STRING; null pointers are left alone. */
const char* tc_version(int* major, int* minor, const char** patch) LARDER_TC_NOTHROW;

void* tc_malloc(size_t size) LARDER_TC_NOTHROW;
void* tc_malloc_skip_new_handler(size_t size) LARDER_TC_NOTHROW;
void tc_free(void* p) LARDER_TC_NOTHROW;
void tc_free_sized(void* p, size_t size) LARDER_TC_NOTHROW;
void* tc_realloc(void* p, size_t size) LARDER_TC_NOTHROW;
void* tc_calloc(size_t count, size_t size) LARDER_TC_NOTHROW;
void tc_cfree(void* p) LARDER_TC_NOTHROW;
void* tc_memalign(size_t align, size_t size) LARDER_TC_NOTHROW;
int tc_posix_memalign(void** p, size_t align, size_t size) LARDER_TC_NOTHROW;
void* tc_valloc(size_t size) LARDER_TC_NOTHROW;
void* tc_pvalloc(size_t size) LARDER_TC_NOTHROW;
void tc_malloc_stats(void) LARDER_TC_NOTHROW;
int tc_mallopt(int parameter, int value) LARDER_TC_NOTHROW;
struct mallinfo tc_mallinfo(void) LARDER_TC_NOTHROW;
struct mallinfo2 tc_mallinfo2(void) LARDER_TC_NOTHROW;
size_t tc_malloc_size(void* p) LARDER_TC_NOTHROW;

#ifdef __cplusplus
/* 1: the functions above that allocate call the new handler, as operator new does, before they
 * fail; malloc itself never does. Returns what was set before; 0 at the start. */
int tc_set_new_mode(int mode) LARDER_TC_NOTHROW;
int tc_query_new_mode() LARDER_TC_NOTHROW;

void* tc_new(size_t size);
void* tc_new_nothrow(size_t size, const std::nothrow_t&) LARDER_TC_NOTHROW;
void tc_delete(void* p) LARDER_TC_NOTHROW;
void tc_delete_sized(void* p, size_t size) LARDER_TC_NOTHROW;
void tc_delete_nothrow(void* p, const std::nothrow_t&) LARDER_TC_NOTHROW;
void* tc_newarray(size_t size);
void* tc_newarray_nothrow(size_t size, const std::nothrow_t&) LARDER_TC_NOTHROW;
void tc_deletearray(void* p) LARDER_TC_NOTHROW;
void tc_deletearray_sized(void* p, size_t size) LARDER_TC_NOTHROW;
void tc_deletearray_nothrow(void* p, const std::nothrow_t&) LARDER_TC_NOTHROW;

#if __cplusplus >= 201703L
void* tc_new_aligned(size_t size, std::align_val_t align);
void* tc_new_aligned_nothrow(size_t size, std::align_val_t align,
                             const std::nothrow_t&) LARDER_TC_NOTHROW;
void tc_delete_aligned(void* p, std::align_val_t align) LARDER_TC_NOTHROW;
void tc_delete_sized_aligned(void* p, size_t size, std::align_val_t align) LARDER_TC_NOTHROW;
void tc_delete_aligned_nothrow(void* p, std::align_val_t align,
                               const std::nothrow_t&) LARDER_TC_NOTHROW;
void* tc_newarray_aligned(size_t size, std::align_val_t align);
void* tc_newarray_aligned_nothrow(size_t size, std::align_val_t align,
                                  const std::nothrow_t&) LARDER_TC_NOTHROW;
void tc_deletearray_aligned(void* p, std::align_val_t align) LARDER_TC_NOTHROW;
void tc_deletearray_sized_aligned(void* p, size_t size, std::align_val_t align) LARDER_TC_NOTHROW;
void tc_deletearray_aligned_nothrow(void* p, std::align_val_t align,
                                    const std::nothrow_t&) LARDER_TC_NOTHROW;
#endif
}
#endif

#undef LARDER_TC_NOTHROW

#endif
