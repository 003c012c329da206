/* Larder's own interface, beside malloc: version, statistics, release of free memory.
 *
 * All functions may be called from any thread. They are in liblarder.so, liblarder.a and
 * liblarder_prefixed.a. A program that only sometimes runs on Larder can look them up by dlsym.
 */
#ifndef LARDER_LARDER_H
#define LARDER_LARDER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LARDER_VERSION_MAJOR 0
#define LARDER_VERSION_MINOR 1
#define LARDER_VERSION_PATCH 0

/* "0.1.0": of the library that runs, not of this header. */
const char* larder_version(void);

/* Bytes unless a name says otherwise. Each figure is exact when it is read; together they are not
 * a snapshot. Fields are only ever added at the end. */
struct larder_stats {
  uint64_t size;                      /* of this structure, as the library filled it */
  uint64_t mapped;                    /* mapped from the system now, descriptors included */
  uint64_t in_use;                    /* in allocated objects, by their size class */
  uint64_t free_dirty;                /* free, and perhaps still backed by memory */
  uint64_t free_clean;                /* free, and untouched or given back */
  uint64_t kept_mappings;             /* freed large mappings kept for reuse */
  uint64_t purged_total;              /* given back to the system since the start */
  uint64_t realloc_copied_bytes;      /* copied by realloc since the start: blocks over 32 KiB */
  uint64_t realloc_copied_huge_bytes; /* of these, from blocks of 4 MiB and more */
  uint64_t thread_heaps;              /* count, in use by a thread now */
  uint64_t shared_heaps;              /* count, for threads beyond the bound */
  uint64_t refills;                   /* count: entries into malloc's slow path since the start */
  uint64_t fresh_slabs;               /* count: slabs taken from the page heap since the start */
  uint64_t remote_frees;  /* count: objects freed in another heap's slab, pushed so far */
  uint64_t remote_pushes; /* count: atomic pushes these took */
  uint64_t system_calls;  /* count: mmap, munmap, mremap, madvise since the start */
};

/* Fills at most `size` bytes of *stats. 0; -1 if stats is null or size is less than 8. Walks all
 * slabs: about a microsecond a MiB of heap. */
int larder_get_stats(struct larder_stats* stats, size_t size);

/* Gives back to the system all memory that is free: the calling thread's kept slabs, free runs,
 * kept mappings. Bytes given back. Other threads' kept slabs stay. */
size_t larder_release_free_memory(void);

/* The heap profile: what is in use by the stack that allocated it, estimated from samples
 * (docs/profile.md). On from the start, at a mean of 512 KiB or of LARDER_PROFILE_BYTES.
 *
 * Sets the mean distance between two samples, in bytes; 0 takes none from now on. What has been
 * sampled stays. Threads follow within their next MiB. */
void larder_profile_set_mean(size_t bytes);

/* Writes the profile to an open file, as text that pprof reads. 0; -1 with errno: what write()
 * says, EBUSY in a signal handler that interrupted the allocator, ENOSYS where stacks cannot be
 * walked. */
int larder_profile_write(int file);

/* What each stack has in use now is written beside what it has later: growth is the difference.
 * 0; -1 with errno EBUSY as above. */
int larder_profile_mark(void);

#ifdef __cplusplus
}
#endif

#endif
