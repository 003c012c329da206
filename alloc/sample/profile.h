// The heap profile as text that pprof reads (docs/reference/heap-profile.md), written by raw system
// calls.
//
// Thread safety: any thread. It takes the sampler's lock for each site anew, so that no thread
// waits for a disk.
#pragma once

#include "base/writer.h"
#include "os/os.h"
#include "sample/site.h"

namespace larder {

// In the constructor, after the options are read: sets the mean, and reads LARDER_PROFILE.
void profile_init();
// 0, or an error of errno.h: the sink's; EBUSY in a signal handler that interrupted the allocator;
// ENOSYS if stacks cannot be walked.
int profile_write(TextSink sink, void* context);
// To a file descriptor.
int profile_write(int file);
// REQUIRES: the thread is in a slow path.
int profile_write_entered(int file);
void profile_complain(const char* path, int error);

// The format's parts, for profiles from other data: the sum, then its parts, then the mappings.
void profile_put_sum(Writer& out, const Estimate& in_use, const Estimate& allocated,
                     const char* kind);
void profile_put_part(Writer& out, const Site& site, const Estimate& in_use,
                      const Estimate& allocated);
void profile_put_mappings(Writer& out);
// A sink; `file` is the address of a descriptor.
int profile_put_into_file(void* file, const char* text, size_t bytes);

// Calls visit(copy of the site) in the order in which the sites were made, until it returns false.
// Returns like profile_write().
int profile_for_each_site(bool (*visit)(const Site& now, void* context), void* context);
// Growth is counted from now on. 0 or EBUSY.
int profile_mark();

// The 95 % interval of an estimate that is a sum over samples (the gamma distribution of Fay and
// Feuer). `deviation` is the largest of a single sample.
struct Interval {
  double low, high;
};
Interval interval_of(double estimate, double variance, double deviation, double at_least);

}  // namespace larder
