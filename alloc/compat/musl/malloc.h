// glibc's malloc.h beyond musl's: what the functions of glibc_info.cc return and take. Programs
// have their own.
#pragma once

#include_next <malloc.h>
#include <stddef.h>

struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

#ifdef __cplusplus
extern "C" {
#endif
struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
#ifdef __cplusplus
}
#endif

#define M_MXFAST 1
#define M_NLBLKS 2
#define M_GRAIN 3
#define M_KEEP 4
#define M_TRIM_THRESHOLD (-1)
#define M_TOP_PAD (-2)
#define M_MMAP_THRESHOLD (-3)
#define M_MMAP_MAX (-4)
#define M_CHECK_ACTION (-5)
#define M_PERTURB (-6)
#define M_ARENA_TEST (-7)
#define M_ARENA_MAX (-8)
