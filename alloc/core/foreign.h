// Pointers from another malloc in the process: __libc_memalign's, the loader's, a library's that
// was opened with RTLD_DEEPBIND. Forwarded to glibc's own functions behind ours.
//
// Thread safety: any thread. Before the constructor such a pointer can only be the loader's, which
// never reuses it: its free does nothing.
#pragma once

#include "base/base.h"

namespace larder {

void foreign_init();
void foreign_free(void* p);
void* foreign_realloc(void* p, size_t size_bytes);
size_t foreign_usable_size(void* p);

}  // namespace larder
