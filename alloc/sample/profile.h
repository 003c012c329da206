// The heap profile as a file: text that pprof reads (docs/reference/heap-profile.md), written by
// raw system calls.
//
// Thread safety: any thread. It takes the sampler's lock for each site anew, so that nobody waits
// for a disk.
#pragma once

#include "base/writer.h"
#include "os/os.h"
#include "sample/site.h"

namespace larder {

// In the constructor, once options are read: sets the mean, and takes LARDER_PROFILE down.
void profile_init();
// 0, or an error of errno.h: what the sink refuses; EBUSY in a signal handler that interrupted
// the allocator; ENOSYS where stacks cannot be walked.
int profile_write(TextSink sink, void* context);
// The same, to a descriptor.
int profile_write(int file);
// By a thread that is in the slow path already.
int profile_write_entered(int file);
void profile_complain(const char* path, int error);

// For profiles that are made of other things: a sum, then its parts, then where the code lies.
void profile_put_sum(Writer& out, const Estimate& in_use, const Estimate& allocated,
                     const char* kind);
void profile_put_part(Writer& out, const Site& site, const Estimate& in_use,
                      const Estimate& allocated);
void profile_put_mappings(Writer& out);
// A sink: `file` is a descriptor's address.
int profile_put_into_file(void* file, const char* text, size_t bytes);

// Calls visit(site as it is now), in the order in which they were made, until it returns false.
// 0, or as profile_write.
int profile_for_each_site(bool (*visit)(const Site& now, void* context), void* context);
// Growth counts from now on. 0 or EBUSY.
int profile_mark();

// The 95 % interval of an estimate that is a sum over samples (gamma distribution of Fay and
// Feuer); `deviation` is the largest that one sample brought.
struct Interval {
  double low, high;
};
Interval interval_of(double estimate, double variance, double deviation, double at_least);

}  // namespace larder
