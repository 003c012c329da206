// The contract with the kernel. os_linux.cc is the only file with system calls, except for files in
// place of memory (os_file.h) and stopped threads (stop_world.cc). In os/ a page is a system page.
//
// Every function may be called from any thread, from a signal handler and before libc is set up:
// raw system calls, no errno, no cancellation point, no allocation.
#pragma once

#include "base/base.h"

namespace larder::os {

// Bytes of a system page: 4, 16 or 64 KiB. Read once.
size_t page_size();

// Fresh zero pages, readable and writable, or nullptr. REQUIRES: `size_bytes` is a multiple of the
// page.
void* map(size_t size_bytes);
// Like map(), at a multiple of `align` (a power of two, >= the page). Unmaps what it mapped in
// excess. nullptr without address space.
void* map_aligned(size_t size_bytes, size_t align);
// False: the kernel refused (splitting a mapping can exceed vm.max_map_count), and the memory is
// still mapped.
bool unmap(void* addr, size_t size_bytes);
// Resizes a mapping in place. kNoRoom: nothing changed, another address may do. kRefused: nothing
// changed, and mremap cannot move it (the program has split it by mprotect, mlock or madvise).
enum class Resized { kDone, kNoRoom, kRefused };
Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes);
// Moves the pages of a mapping to `target`, replacing its mapping. False: nothing moved, and
// `target` may be unmapped (before Linux 6.17), so the caller must not touch it.
bool move_pages(void* addr, size_t old_bytes, void* target, size_t new_bytes);
// Discards pages: they read as zeros afterwards. False: refused (mlock, a sandbox), content
// unchanged.
bool discard(void* addr, size_t size_bytes);
// Asks for huge pages in this range, or forbids them there. False: the kernel has none, or the
// range is no memory for them.
bool ask_for_huge_pages(void* addr, size_t size_bytes);
bool forbid_huge_pages(void* addr, size_t size_bytes);

// Address space without memory: every access faults. nullptr: refused.
void* reserve(size_t size_bytes);
// Turns pages of it into zero pages, readable and writable, which count as mapped; or back, and the
// content is lost. False: refused, nothing changed.
bool commit(void* addr, size_t size_bytes);
bool decommit(void* addr, size_t size_bytes);

// Sets a byte for each page of the range, whose lowest bit says whether the page is in memory.
// REQUIRES: `addr` is page-aligned. False: refused, or not mapped.
bool resident(const void* addr, size_t size_bytes, unsigned char* pages);
// Populates the range for writing or reading, so that touching it cannot fail. kUnknown: before
// Linux 5.14.
enum class Populated { kYes, kNo, kUnknown };
Populated populate(void* addr, size_t size_bytes, bool to_write);
// Frees the file's pages of a shared mapping, which read as zeros afterwards. False: refused.
bool punch(void* addr, size_t size_bytes);
// Like map_aligned(), by sbrk; the program may move the break, too. May fail in a signal handler
// that interrupted another call of it.
void* grow_break(size_t size_bytes, size_t align);
// Whether sbrk may have returned this.
bool from_break(const void* addr);
// From now on map() falls back to sbrk.
void use_break_when_refused();

struct Range {
  uintptr_t begin, end;
};
// Whether these functions have mapped the address, and up to where: for the leak checker, which
// must call forget_own_mappings() if it is off. May miss a mapping made in a signal handler that
// interrupted another call.
bool is_own(uintptr_t address, uintptr_t* until);
void forget_own_mappings();
// Counts the program's memory for objects as Larder's own.
void count_as_own(void* addr, size_t size_bytes);
// Between these calls no other thread maps or unmaps here.
void lock_own_mappings();
void unlock_own_mappings();
// The tables of own mappings.
void own_tables(Range (&tables)[2]);
// False: one was not recorded, for want of memory or a lock.
bool own_mappings_are_known();

// Monotonic milliseconds, from a coarse clock: about 5 ns, no system call.
uint64_t now_ms();
// Monotonic microseconds.
uint64_t now_us();
// Where libc has registered each thread's area for restartable sequences, in bytes from its thread
// pointer; 0: nowhere.
ptrdiff_t rseq_offset();
// A CPU number below cpu_count(). A hint: it may be stale.
unsigned cpu();
// The CPUs that this process may ever run on, >= 1. Read once.
unsigned cpu_count();

// Sleeps while *word == expected; may wake spuriously.
void wait(uint32_t* word, uint32_t expected);
void wake_one(uint32_t* word);
// Whether the word's memory is mapped. REQUIRES: a multiple of 4.
bool is_readable(const void* word);
void yield();
void sleep_ms(unsigned ms);

// Creates a file for the process's user alone: a descriptor, or -errno. Never follows a link, never
// replaces a file.
int create(const char* path);
// Opens for reading: a descriptor, or -errno.
int open(const char* path);
// Bytes read, 0 at the end, or -errno.
long read(int file, void* to, size_t size_bytes);
long read_at(int file, void* to, size_t size_bytes, uint64_t offset);
// Writes all bytes: 0, or -errno.
int write(int file, const void* from, size_t size_bytes);
void close(int file);
// Not cached, because fork changes it.
int process_id();
// Whether this is the process's first thread.
bool is_first_thread();
// The kernel's number of the calling thread, without a system call, which a sandbox may punish. 0:
// unknown, or before learn_system_thread_ids().
int system_thread_id();
void learn_system_thread_ids();
// Whether a thread has this number: the same or a later one. True if the kernel does not say.
bool is_thread(int system_thread_id);

// Runs no destructors and flushes nothing. By libc's _exit, so that a recorder notices.
[[noreturn]] void end_process(int code);

// Best effort.
void write_stderr(const char* text, size_t size_bytes);

}  // namespace larder::os
