/* What an allocation of this size takes up at least, without making it. */
#ifndef _NALLOCX_H_
#define _NALLOCX_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For flags: aligned to 1 << lg_align bytes. */
#define MALLOCX_LG_ALIGN(lg_align) ((int)(lg_align))

size_t nallocx(size_t size, int flags);
size_t tc_nallocx(size_t size, int flags);

#ifdef __cplusplus
}
#endif

#endif
