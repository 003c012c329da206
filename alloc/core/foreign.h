// Pointers from another malloc in the process: __libc_memalign's, the loader's, a library's that
// was opened with RTLD_DEEPBIND. Forwarded to glibc's own functions behind ours.
//
// Thread safety: any thread. Before the constructor such a pointer can only be the loader's, which
// never reuses it: its free does nothing. Where no other malloc is behind ours, in a static program
// and with the prefixed names, no such pointer is one: false.
#pragma once

#include "base/base.h"

namespace larder {

// In the constructor; is_alone: no other malloc may be called.
void foreign_init(bool is_alone);
bool foreign_free(void* p);
// *result: the object's new address, or nullptr with errno set.
bool foreign_realloc(void* p, size_t size_bytes, void** result);
bool foreign_usable_size(void* p, size_t* bytes);

}  // namespace larder
