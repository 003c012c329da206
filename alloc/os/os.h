// The contract with the kernel. os_linux.cc is the only file with system calls, but for sockets
// (os_socket.h), files in place of memory (os_file.h) and threads that are stopped (stop_world.cc).
//
// Every function may be called from any thread, from a signal handler and before libc is set up:
// raw system calls, no errno, no cancellation point, no allocation.
#pragma once

#include "base/base.h"

namespace larder::os {

// Bytes a page; 4, 16 or 64 KiB. Read once.
size_t page_size();

// Fresh zero pages, readable and writable, or nullptr. `size_bytes` is a multiple of the page.
void* map(size_t size_bytes);
// As map, at a multiple of `align` (a power of two, >= the page). What was mapped in excess to
// find the place is unmapped again; nullptr when no address space is left.
void* map_aligned(size_t size_bytes, size_t align);
// False when the kernel refuses (it may: splitting a mapping can exceed vm.max_map_count); the
// memory is then still mapped.
bool unmap(void* addr, size_t size_bytes);
// Resizes a mapping where it is. kNoRoom: nothing changed, another place may do. kRefused: nothing
// changed, and no mremap will do (the program has split the mapping by mprotect, mlock, madvise).
enum class Resized { kDone, kNoRoom, kRefused };
Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes);
// Moves the pages of a mapping to `target`, replacing what is mapped there. False: nothing moved,
// and `target` may be unmapped already (kernels before 6.17): it must not be touched any more.
bool move_pages(void* addr, size_t old_bytes, void* target, size_t new_bytes);
// Gives pages back; afterwards they read as zeros. False: refused (mlock, a sandbox), and the
// content must be taken as unchanged.
bool discard(void* addr, size_t size_bytes);

// For each page of the range, which begins with one: its lowest bit says whether it is in memory.
// False: refused, or not mapped.
bool resident(const void* addr, size_t size_bytes, unsigned char* pages);
// Memory for the pages of this range, to be written or to be read, so that touching them cannot
// fail. kUnknown: the kernel does not know how.
enum class Populated { kYes, kNo, kUnknown };
Populated populate(void* addr, size_t size_bytes, bool to_write);
// Frees the file's pages behind a shared mapping; they read as zeros then. False: refused.
bool punch(void* addr, size_t size_bytes);
// As map_aligned, by sbrk; the program may move the break as well. It may fail in a signal handler
// that interrupted another call of it.
void* grow_break(size_t size_bytes, size_t align);
// Whether sbrk may have given this.
bool from_break(const void* addr);
// From now on map() asks sbrk for what mmap refuses.
void use_break_when_refused();

struct Range {
  uintptr_t begin, end;
};
// Whether the address lies in what these functions have mapped, and until where that goes on: for
// the leak checker, which says first that it needs to know, or not. A map in a signal handler that
// interrupted another may be missed.
bool is_own(uintptr_t address, uintptr_t* until);
void forget_own_mappings();
// Of the program's making, but to hold objects.
void count_as_own(void* addr, size_t size_bytes);
// Nobody else maps or unmaps here meanwhile.
void lock_own_mappings();
void unlock_own_mappings();
// Where that is written down.
void own_tables(Range (&tables)[2]);
// False: there was no memory to note one, or a lock was not to be had.
bool own_mappings_are_known();

// Monotonic milliseconds, from a coarse clock (about 5 ns, no system call).
uint64_t now_ms();
// Monotonic microseconds, exact.
uint64_t now_us();
// A CPU number below cpu_count(); a hint, stale by the time it is used.
unsigned cpu();
// CPUs this process may ever run on, >= 1; read once.
unsigned cpu_count();

// Sleeps while *word == expected; may wake spuriously.
void wait(uint32_t* word, uint32_t expected);
void wake_one(uint32_t* word);
void yield();
void sleep_ms(unsigned ms);

// A new file for the process's user alone: a descriptor, or -errno. Never follows or replaces what
// is there.
int create(const char* path);
// To read: a descriptor, or -errno.
int open(const char* path);
// Bytes read, 0 at the end, or -errno.
long read(int file, void* to, size_t size_bytes);
long read_at(int file, void* to, size_t size_bytes, uint64_t offset);
// All of it: 0, or -errno.
int write(int file, const void* from, size_t size_bytes);
void close(int file);
// Not cached: a child of fork has its own.
int process_id();
// Whether the calling thread is the one that the process began with.
bool is_first_thread();
// Of the calling thread, as the kernel has it, without a system call, which a sandbox may punish;
// 0 where that cannot be had, and before learn_system_thread_ids().
int system_thread_id();
void learn_system_thread_ids();
// Whether a thread has this number, perhaps another one by now; where the kernel does not tell,
// yes.
bool is_thread(int system_thread_id);

// No destructors, and nothing is written out. By libc, where a recorder hears of it.
[[noreturn]] void end_process(int code);

// Bytes to stderr, best effort.
void write_stderr(const char* text, size_t size_bytes);

}  // namespace larder::os
