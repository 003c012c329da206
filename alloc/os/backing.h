// Where the memory for objects comes from: mmap, unless options choose sbrk, a memory file system
// or a device. All that maps, resizes, discards or unmaps memory for objects goes through here;
// descriptors, and blocks for signal handlers, come from mmap always. Or the program has a source
// of its own (set_source): then all comes from that, and what it refuses is refused.
//
// A file or device is mapped once, as a *window* of address space that is handed out in chunks of
// 2 MiB; what an address belongs to is told by the window that it is in. Nothing of it is needed
// after that: a program may close all its files. Windows are tried in the order memfs, device; what
// they cannot give comes from mmap, then sbrk, as far as those are allowed. What the program's
// source gives becomes a window, too; there is no telling what discards it, or whether anything
// may.
//
// Invariants: a chunk's `used` is the number of its pages that are handed out; the memory of what
// is handed out reads as zeros; the first and the last chunk of a window are never used, so that no
// object ever reaches beyond it.
// Thread safety: any thread. There is one lock, and no other is ever taken under it, but for those
// of the program's source; unless there is such a source, each function costs one load beyond the
// system call.
#pragma once

#include "os/lock.h"
#include "os/os.h"

namespace larder::backing {

// Reads the options, and opens what they ask for; what cannot be had is told in a line on stderr.
// In the constructor, or before the first memory for objects if that comes earlier; the first call
// that finds an environment counts.
void init();

// As the functions of that name in os.h.
void* map_aligned(size_t size_bytes, size_t align);
bool unmap(void* addr, size_t size_bytes);
os::Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes);
bool discard(void* addr, size_t size_bytes);

// Memory of the program's own: at least `size_bytes` at a multiple of `align`, and how much in
// *actual_bytes, which has size_bytes; or nullptr. It is called under the locks of the heap: what
// it allocates is a mapping of its own, what it waits for must not wait for malloc, and it throws
// nothing. It is never asked to take memory back. nullptr: no source; what it gave stays in use.
using Source = void* (*)(void* context, size_t size_bytes, size_t* actual_bytes, size_t align);
void set_source(Source source, void* context);
void* source_context();
// What such a source may fall back to: mmap, or sbrk where the options say so.
void* map_for_source(size_t size_bytes, size_t align);

// What a window gives is taken from its file at once: no more blocks than this in one go.
unsigned max_segments();

Lock& lock();
// A window that is shared would be shared with a child of fork, too: the child replaces it by a
// copy, and the parent waits for that. In fork's handlers.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace larder::backing
