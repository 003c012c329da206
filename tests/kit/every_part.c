/* The kit in C11, and in a second file of one program. */
int use_every_part_in_c(void);

#define USE_EVERY_PART use_every_part_in_c
#include "every_part.h"
