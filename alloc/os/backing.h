// Backing: where the memory for objects comes from. mmap, unless options choose sbrk, a memory file
// system or a device. All memory for objects is mapped, resized, discarded and unmapped here.
// Descriptors, and objects for signal handlers, always come from mmap. With a source of the
// program's (set_source) all memory for objects comes from it, without a fallback.
//
// A file or device is mapped once, as a *window* of address space that is handed out in chunks of 2
// MiB. An address belongs to the window that contains it. The file is closed then: a program may
// close all its files. Windows are tried in the order memfs, device, then mmap and sbrk as far as
// the options allow. What the program's source returns becomes a window, too; it is never
// discarded, because nothing says how.
//
// Invariants:
//   used[chunk] == pages of the chunk that are handed out
//   memory that is handed out reads as zeros
//   the first and last chunk of a window are never used, so no object reaches beyond it
// Thread safety: any thread. Under its lock only locks of the program's source are taken. Without a
// source or window each function costs one load beyond the system call.
#pragma once

#include "os/lock.h"
#include "os/os.h"

namespace larder::backing {

// Reads the options and opens what they ask for; reports in a line what cannot be had.
// Called by the constructor, or by the first request for memory. The first call that finds an
// environment counts.
void init();

// Like the functions of that name in os.h.
void* map_aligned(size_t size_bytes, size_t align);
bool unmap(void* addr, size_t size_bytes);
os::Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes);
bool discard(void* addr, size_t size_bytes);
// False: also in a window, which has the pages of its file.
bool ask_for_huge_pages(void* addr, size_t size_bytes);
bool forbid_huge_pages(void* addr, size_t size_bytes);
// Discards pages and forbids every access to them; opens them again, as zeros. False: refused, or
// of a window or the break; nothing changed.
bool close(void* addr, size_t size_bytes);
bool open(void* addr, size_t size_bytes);

// The program's memory: at least `size_bytes` at a multiple of `align`, with its size in
// *actual_bytes, or nullptr. Called under the heap's locks: its own allocations are mappings of
// their own, it must not wait for malloc, and it throws nothing. It never takes memory back. A null
// source: none from now on; its memory stays in use.
using Source = void* (*)(void* context, size_t size_bytes, size_t* actual_bytes, size_t align);
void set_source(Source source, void* context);
void* source_context();
// The fallback for such a source: mmap, or sbrk if the options say so.
void* map_for_source(size_t size_bytes, size_t align);

// Segments of one region: fewer with a window, whose file gives memory at once.
unsigned max_segments();

Lock& lock();
// fork's handlers. A child would share a shared window with its parent: it replaces the window by a
// copy, and the parent waits for that.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace larder::backing
