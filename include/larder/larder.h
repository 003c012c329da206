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

  /* What is mapped, by kind: in_use and these add up to mapped and the page map's address space. */
  uint64_t slab_free;       /* free objects in slabs */
  uint64_t slab_uncarved;   /* of slabs, never handed out since they are slabs */
  uint64_t slab_tail;       /* ends of slabs; before large objects, for their alignment */
  uint64_t sample_slabs;    /* where sampled objects are, whose slots are in use as well */
  uint64_t heap_runs;       /* free runs that threads' heaps keep */
  uint64_t page_heap_dirty; /* free for any thread, and perhaps in memory */
  uint64_t page_heap_clean; /* free for any thread, and not in memory */
  uint64_t metadata;        /* descriptors and the page map */

  uint64_t objects;        /* count, in use */
  uint64_t slabs;          /* count, with an object in use or kept empty */
  uint64_t rounding_most;  /* of in_use at most: what objects have beyond what was asked for */
  uint64_t reused_total;   /* free memory handed out since the start that may have been in memory
                              still, so that it takes no page faults */
  uint64_t sample_mean;    /* of the heap profile; 0: off */
  uint64_t sites;          /* count, of stacks in the profile */
  uint64_t sampled_in_use; /* the profile's estimate of in_use */

  /* Of each kind, what is in memory: the sum is what the heap adds to the process's RSS. All 0
   * where the system does not tell (a sandbox that refuses mincore). */
  uint64_t resident; /* the sum */
  uint64_t resident_in_use;
  uint64_t resident_slab_free;
  uint64_t resident_slab_uncarved;
  uint64_t resident_slab_tail;
  uint64_t resident_sample_slabs;
  uint64_t resident_heap_runs;
  uint64_t resident_page_heap_dirty;
  uint64_t resident_page_heap_clean;
  uint64_t resident_kept_mappings;
  uint64_t resident_metadata;
};

/* Fills at most `size` bytes of *stats. 0; -1 if stats is null or size is less than 8. Walks all
 * slabs: a few microseconds a MiB of heap. docs/reference/statistics.md says what each figure is.
 */
int larder_get_stats(struct larder_stats* stats, size_t size);

/* The same as JSON, and by size class, to an open file. 0; -1 with errno: what write() says, EBUSY
 * in a signal handler that interrupted the allocator. */
int larder_stats_json(int file);

/* Gives back to the system all memory that is free: the calling thread's kept slabs, free runs,
 * kept mappings. Bytes given back. Other threads' kept slabs stay. */
size_t larder_release_free_memory(void);

/* Limits on memory (docs/tasks/limit-memory.md), in bytes, rounded up to MiB; 0: none, as is the
 * default.
 *
 * Beyond the soft limit memory that is free goes back to the system at once, and threads keep less
 * of it; no allocation fails. What would go beyond the hard limit fails with ENOMEM, or throws
 * bad_alloc, once all memory that is free was given back. Both count what may be resident:
 * what is in use, what is free and not given back, and descriptors. A limit may be below what is
 * in use. They are LARDER_SOFT_LIMIT_MIB and LARDER_HEAP_LIMIT_MB at the start. */
enum larder_limit { LARDER_SOFT_LIMIT = 1, LARDER_HARD_LIMIT = 2 };
/* 0; -1 with errno EINVAL if there is no such limit. */
int larder_set_limit(enum larder_limit which, size_t bytes);
size_t larder_get_limit(enum larder_limit which);

enum larder_pressure {
  LARDER_PRESSURE_SOFT = 1, /* the soft limit is crossed, with all given back that was free */
  LARDER_PRESSURE_HARD = 2  /* an allocation is about to fail */
};
/* Calls function(pressure, bytes, context) when memory is short: `bytes` are to be freed to end
 * that. An allocation that is about to fail is tried again afterwards. Of the soft limit it is told
 * once, until a sixteenth less is held than that.
 *
 * It is called within malloc, on the thread that asks for memory: it may allocate and free, but
 * takes no lock that a caller of malloc may hold, and has to return. One thread calls it at a time,
 * and never from within itself; allocations that fail meanwhile, fail. NULL: nothing is called.
 * 0; -1 with errno ENOMEM. */
int larder_set_pressure_callback(void (*function)(enum larder_pressure, size_t bytes,
                                                  void* context),
                                 void* context);

/* The heap profile: what is in use by the stack that allocated it, estimated from samples
 * (docs/tasks/profile-the-heap.md). On from the start, at a mean of 512 KiB or of
 * LARDER_PROFILE_BYTES.
 *
 * Sets the mean distance between two samples, in bytes; 0 takes none from now on. What has been
 * sampled stays. Threads follow within their next MiB; from one mean to another within 8 MiB. */
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
