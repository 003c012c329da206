/* Larder's own interface, beside malloc: version, statistics, release of free memory, limits, the
 * heap profile.
 *
 * Any thread may call all functions. They are in liblarder.so, liblarder.a and
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

/* The version of the running library, like "0.1.0"; not that of this header. */
const char* larder_version(void);

/* Bytes, unless a comment says otherwise. Each figure is exact when it is read; together they are
 * no snapshot. New fields are added at the end. */
struct larder_stats {
  uint64_t size;                      /* of this structure, as the library filled it */
  uint64_t mapped;                    /* mapped from the system now, descriptors included */
  uint64_t in_use;                    /* in allocated objects, by their size class */
  uint64_t free_dirty;                /* free, and perhaps still backed by memory */
  uint64_t free_clean;                /* free, and untouched or purged */
  uint64_t kept_mappings;             /* freed mappings that are cached for reuse */
  uint64_t purged_total;              /* given back to the system since the start */
  uint64_t realloc_copied_bytes;      /* copied by realloc since the start: objects over 64 KiB */
  uint64_t realloc_copied_huge_bytes; /* of these, from objects over 1 MiB */
  uint64_t thread_heaps;              /* count, in use by a thread now */
  uint64_t shared_heaps;              /* count, for threads beyond the bound */
  uint64_t refills;                   /* count: entries into malloc's slow path since the start */
  uint64_t fresh_slabs;               /* count: slabs taken from the page heap since the start */
  uint64_t remote_frees;  /* count: objects freed in another heap's slab, pushed so far */
  uint64_t remote_pushes; /* count: atomic pushes these took */
  uint64_t system_calls;  /* count: mmap, munmap, mremap, madvise since the start */

  /* What is mapped, by kind: in_use and these add up to mapped and the page map's address space. */
  uint64_t slab_free;       /* free objects in slabs */
  uint64_t slab_uncarved;   /* of slabs, not carved into objects yet */
  uint64_t slab_tail;       /* ends of slabs; before large objects, for alignment */
  uint64_t sample_slabs;    /* slabs of sampled objects, whose slots are in use as well */
  uint64_t heap_runs;       /* spans that threads' heaps cache */
  uint64_t page_heap_dirty; /* free for any thread, and perhaps in memory */
  uint64_t page_heap_clean; /* free for any thread, and not in memory */
  uint64_t metadata;        /* descriptors and the page map */

  uint64_t objects;       /* count, in use */
  uint64_t slabs;         /* count, with an object in use or cached empty */
  uint64_t rounding_most; /* upper bound: of in_use, bytes that were not requested */
  uint64_t reused_total; /* memory that was handed out again while it could still be resident, since
                            the start: no page faults */
  uint64_t sample_mean;  /* of the heap profile; 0: off */
  uint64_t sites;        /* count, of stacks in the profile */
  uint64_t sampled_in_use; /* the profile's estimate of in_use */

  /* The resident bytes of each kind: the sum is what the heap adds to the process's RSS. All 0 if
   * the system does not say (a sandbox that refuses mincore). */
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

/* Fills up to `size` bytes of *stats. Returns 0; -1 if stats is null or size is less than 8. Walks
 * all slabs: a few microseconds a MiB of heap. docs/reference/statistics.md explains each figure.
 */
int larder_get_stats(struct larder_stats* stats, size_t size);

/* Writes the same as JSON, with size classes, to an open file. Returns 0; -1 with errno: write()'s,
 * or EBUSY in a signal handler that interrupted the allocator. */
int larder_stats_json(int file);

/* Gives free memory back to the system: the calling thread's cache, free spans, cached mappings.
 * Other threads' caches stay. Returns bytes. */
size_t larder_release_free_memory(void);

/* Limits on memory (docs/tasks/limit-memory.md), in bytes, rounded up to MiB; 0, the default: no
 * limit.
 *
 * Above the soft limit free memory is given back to the system at once, and threads cache less; no
 * allocation fails. An allocation that would exceed the hard limit fails with ENOMEM, or throws
 * bad_alloc, after all free memory was given back. Both count what may be resident: memory in use,
 * free memory that was not given back, and descriptors. A limit may be below what is in use.
 * LARDER_SOFT_LIMIT_MIB and LARDER_HEAP_LIMIT_MB set them at the start. */
enum larder_limit { LARDER_SOFT_LIMIT = 1, LARDER_HARD_LIMIT = 2 };
/* Returns 0; -1 with errno EINVAL if there is no such limit. */
int larder_set_limit(enum larder_limit which, size_t bytes);
size_t larder_get_limit(enum larder_limit which);

enum larder_pressure {
  LARDER_PRESSURE_SOFT = 1, /* above the soft limit, with all free memory given back */
  LARDER_PRESSURE_HARD = 2  /* an allocation is about to fail */
};
/* Sets the out-of-memory callback: function(pressure, bytes, context) is called when memory is
 * short, and freeing `bytes` would end that. An allocation that is about to fail is then tried
 * again. For the soft limit it is called once, until held memory is well below the limit.
 *
 * It runs within malloc, on the allocating thread: it may allocate and free, must not take a lock
 * that a caller of malloc may hold, and must return. One thread calls it at a time, and never from
 * within itself; other allocations that fail meanwhile just fail. NULL: no callback.
 * Returns 0. */
int larder_set_pressure_callback(void (*function)(enum larder_pressure, size_t bytes,
                                                  void* context),
                                 void* context);

/* The heap profile estimates, from samples, what is in use by the stack that allocated it
 * (docs/tasks/profile-the-heap.md). It is on from the start, with a mean of 512 KiB or
 * LARDER_PROFILE_BYTES.
 *
 * Sets the mean distance between two samples, in bytes; 0: no new samples. Earlier samples stay.
 * A thread follows within 1 MiB of allocation if the mean was 0, else within 8 MiB. */
void larder_profile_set_mean(size_t bytes);

/* Writes the profile to an open file, as text that pprof reads. Returns 0; -1 with errno:
 * write()'s, EBUSY in a signal handler that interrupted the allocator, ENOSYS if stacks cannot be
 * walked. */
int larder_profile_write(int file);

/* Counts growth from now on: later profiles also have what each stack has in use now.
 * Returns 0; -1 with errno EBUSY as above. */
int larder_profile_mark(void);

#ifdef __cplusplus
}
#endif

#endif
